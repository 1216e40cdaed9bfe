"""Mutations of real JSON trees and files, for property tests: a grammar of what can go wrong."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 7.5, 2**31, 2**62, 2**70, 10**400, -(10**30), 1e308, -1e308, 1e-320, float("inf"),
    float("nan"), "", "a\nb", "\x1b[2J", "[/bold]", "../../etc", "\u202e", "\ud800", "x" * 5000, [], {}, [[]], [[[1]]],
    [None], [0] * 50, {"": {}}, {"kind": []},
]  # fmt: skip
"""Values of every type that stand for what a writer of mistakes, or of malice, would put anywhere."""


def deep(levels: int) -> Any:
    """Lists in lists."""
    tree: Any = 1
    for _ in range(levels):
        tree = [tree]
    return tree


def _places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    if len(at) > 8:
        return [at]
    return [at, *(place for key, value in inner for place in _places(value, (*at, key)))]


def _odd(draw: st.DrawFn) -> Any:
    number = draw(st.integers(0, len(ODD)))
    return copy.deepcopy(ODD[number]) if number < len(ODD) else deep(100)


@st.composite
def mutated(draw: st.DrawFn, tree: Any) -> Any:
    """A copy of a JSON tree with one to three places changed: replaced, removed, doubled, renamed, or grown."""
    out = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        found: tuple[Any, ...] = draw(st.sampled_from(_places(out)))
        path, last = ("root", *found)[:-1], ("root", *found)[-1]
        holder: Any = {"root": out}
        top = holder
        for key in path:
            holder = holder[key]
        act = draw(st.sampled_from(["replace", "remove", "wrap", "grow", "add"]))
        if act == "remove" and path:
            del holder[last]
        elif act == "wrap":
            holder[last] = [holder[last]]
        elif act == "grow":
            holder[last] = [copy.deepcopy(holder[last]) for _ in range(draw(st.sampled_from([2, 40])))]
        elif act == "add" and isinstance(holder[last], dict):
            holder[last][draw(st.sampled_from(["kind", "x", "__class__", "\x1b"]))] = _odd(draw)
        else:
            holder[last] = _odd(draw)
        out = top["root"]
    return out


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """A copy of a file with one to four changes: a flipped bit, bytes cut out, doubled, or replaced."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(out) - 1)))
        act = draw(st.sampled_from(["flip", "cut", "double", "write", "end"]))
        size = draw(st.sampled_from([1, 2, 8, 64]))
        if act == "flip" and out:
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif act == "cut":
            del out[at : at + size]
        elif act == "double":
            out[at:at] = out[at : at + size]
        elif act == "write":
            out[at : at + size] = draw(st.sampled_from([b"\xff" * 8, b"\0" * 8, b"9" * 30, b"[" * 64, b"1e999", b"-"]))
        else:
            del out[at:]
    return bytes(out)
