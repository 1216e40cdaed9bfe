"""The search space: the learning rate and a method's options, with ranges from their declarations."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from sparsona.errors import InputError
from sparsona.methods import METHODS
from sparsona.options import options_of
from sparsona.registry import suggest
from sparsona.training.config import TrainConfig


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, on a logarithmic scale if `log`."""

    low: float
    high: float
    log: bool
    whole: bool


@dataclass(frozen=True)
class Knob:
    """A searched setting: its key for ``--set``, its start, and a range or choices."""

    key: str
    start: Any
    range: Range | None = None
    choices: tuple[Any, ...] = ()


def knobs(method: str, only: tuple[str, ...] = ()) -> list[Knob]:
    """Return the learning rate and the method's options that have a range or a few values.

    >>> [knob.key for knob in knobs("fedprox")][:2]
    ['lr', 'mu']
    """
    rate = TrainConfig().lr
    found = [Knob("lr", rate, Range(rate / 20, rate * 5, log=True, whole=False))]
    for leaf in options_of(METHODS.get(method)):
        knob = _knob(leaf.name, leaf.hint, None if leaf.default is dataclasses.MISSING else leaf.default)
        if knob is not None:
            found.append(knob)
    for key in only:
        if key not in [knob.key for knob in found]:
            raise InputError(f"{method} has no knob {key!r}{suggest(key, [knob.key for knob in found])}")
    return [knob for knob in found if not only or knob.key in only]


def _knob(name: str, hint: Any, start: Any) -> Knob | None:
    if start is None:
        return None
    if isinstance(start, bool):
        return Knob(name, start, choices=(start, not start))
    kind, bounds = _plain(hint, type(start))
    if get_origin(kind) is Literal:
        return Knob(name, start, choices=(start, *(value for value in get_args(kind) if value != start)))
    if not isinstance(start, int | float) or kind not in (int, float):
        return None
    step = 1 if isinstance(start, int) else 0
    low = bounds["gt"] + step if "gt" in bounds else bounds.get("ge")
    high = bounds["lt"] - (step or 0.02 * abs(bounds["lt"])) if "lt" in bounds else bounds.get("le")
    range = number_range(start, low, high if high is None else max(high, start))
    return Knob(name, start, range) if range is not None else None


def number_range(start: float, low: float | None, high: float | None) -> Range | None:
    """Return the range of a number that starts at `start`, with optional bounds.

    A share is searched down to 1/50, a positive number within a factor of ten, a count within a factor of four. A
    number that starts at 0 without an upper bound is not searched, because 0 turns something off.

    >>> number_range(0.5, 0, 1), number_range(10, 1, None)
    (Range(low=0.02, high=1.0, log=True, whole=False), Range(low=3, high=40, log=True, whole=True))
    """
    whole = isinstance(start, int)
    if low is not None and high is not None:
        if whole:
            return Range(low, high, log=False, whole=True)
        if start == 0:
            return Range(low, high, log=False, whole=False)
        return Range(max(low, min(high / 50, start / 10)), float(high), log=low >= 0, whole=False)
    if start <= 0:
        return None
    if whole:
        return Range(max(low or 1, math.ceil(start / 4), 1), 4 * int(start), log=True, whole=True)
    return Range(start / 10, 10 * start if high is None else min(high, 10 * start), log=True, whole=False)


def _plain(hint: Any, kind: type) -> tuple[Any, dict[str, float]]:
    """Return the member `kind` of a type, and its bounds."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        marks = [mark for extra in extras for mark in getattr(extra, "metadata", [extra])]
        bounds = {key: getattr(mark, key) for mark in marks for key in ("gt", "ge", "lt", "le") if hasattr(mark, key)}
        found, more = _plain(inner, kind)
        return found, {**more, **bounds}
    if get_origin(hint) is Literal or not get_args(hint):
        return hint, {}
    members = [_plain(member, kind) for member in get_args(hint)]
    return next(((found, bounds) for found, bounds in members if found is kind), (hint, {}))
