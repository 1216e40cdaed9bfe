"""Kernels as plain Python in which every access to an array is checked: numba checks none, `load64` least of all.

Numbers are plain ints, wrapped where a kernel says so and where they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from sparsona import compiled
from sparsona.wire import lanes

DEEPEST = 86
"""Bytes beyond the end of the lanes that a reader may look at, as `lanes.SLACK` has it."""


class OutOfBounds(Exception):
    """An access outside an array."""


class Guard(np.ndarray[Any, Any]):
    """An array whose places begin at 0 and end before its length; what is read is an int."""

    def __getitem__(self, place: Any) -> Any:
        _look(self.shape, place)
        found = super().__getitem__(place)
        return found if isinstance(found, np.ndarray) else int(found)

    def __setitem__(self, place: Any, value: Any) -> None:
        """What is too long for an unsigned number is cut, as a kernel does it; for a signed one it is an error."""
        _look(self.shape, place)
        if type(value) is int and self.dtype.kind == "u":
            value &= (1 << 8 * self.itemsize) - 1
        super().__setitem__(place, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist()) if self.ndim == 1 else super().__iter__()


MASK = 2**64 - 1


def _look(shape: tuple[int, ...], place: Any) -> None:
    for size, one in zip(shape, place if type(place) is tuple else (place,), strict=False):
        if type(one) is int:
            inside = 0 <= one < size
        else:
            inside = isinstance(one, slice) or bool(np.all((np.asarray(one) >= 0) & (np.asarray(one) < size)))
        if not inside:
            raise OutOfBounds(f"{one} of {size}")


def guarded(value: Any) -> Any:
    """The same memory, if it is an array."""
    return value.view(Guard) if isinstance(value, np.ndarray) else value


def load64(data: Guard, at: int) -> int:
    if data.dtype != np.uint8 or not 0 <= at <= len(data) - 8 - (lanes.SLACK - DEEPEST):
        raise OutOfBounds(f"8 bytes at {at} of {len(data)}")
    return int.from_bytes(data[at : at + 8].tobytes(), "little")


def store64(data: Guard, at: int, number: int) -> None:
    if data.dtype != np.uint8 or not 0 <= at <= len(data) - 8:
        raise OutOfBounds(f"8 bytes at {at} of {len(data)}")
    data[at : at + 8] = np.frombuffer((number & MASK).to_bytes(8, "little"), np.uint8)


def _signed(bits: int) -> Callable[[int], int]:
    half = 1 << (bits - 1)
    return lambda number: (int(number) + half & (2 * half - 1)) - half


class _Numpy:
    """numpy, whose arrays are guarded."""

    def __getattr__(self, name: str) -> Any:
        held = getattr(np, name)
        if isinstance(held, type) or not callable(held):
            return held
        return lambda *given, **named: guarded(held(*given, **named))


class _Room:
    """A module whose kernels are checked."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return _checked(getattr(self._module, name))


OWN: dict[int, Any] = {
    id(compiled.i64): _signed(64),
    id(compiled.i32): _signed(32),
    id(compiled.u64): lambda number: int(number) & MASK,
    id(compiled.u32): lambda number: int(number) & 0xFFFFFFFF,
    id(compiled.bit_length): lambda number: int(number).bit_length(),
    id(compiled.load64): load64,
    id(compiled.store64): store64,
    id(np): _Numpy(),
}


def _checked(held: Any) -> Any:
    if id(held) in OWN:
        return OWN[id(held)]
    if isinstance(held, ModuleType):
        return _Room(held)
    return checked(held) if hasattr(held, "py_func") else guarded(held)


@cache
def checked(kernel: Any) -> Callable[..., Any]:
    """A kernel in plain Python, with all that it calls."""
    plain: FunctionType = kernel.py_func
    known = {name: _checked(held) for name, held in plain.__globals__.items() if name in plain.__code__.co_names}
    here = FunctionType(plain.__code__, {"__builtins__": __builtins__, **known}, plain.__name__)
    return lambda *given: here(*map(guarded, given))
