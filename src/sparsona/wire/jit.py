"""numba behind a typed face: a kernel keeps the signature that it was written with."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

KERNEL: tuple[Literal["C"], Literal["A"], Literal["W"]] = ("C", "A", "W")
"""What `numpy.require` is to ask of a caller's array: others make a kernel compile once more, which takes longer than
the copy that some need.
"""


def _fingerprint() -> str:
    """Of all sources of the wire. A compiled kernel contains those it calls, from whatever file, but numba only
    looks at the file that the kernel itself is in: without this, an update could leave half of the old code at work.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return f"{zlib.crc32(b''.join(source.read_bytes() for source in sources)):08x}"


_SOURCES = _fingerprint()


def jit(function: F) -> F:
    """Compile `function` on its first call, once a machine: the code is cached on disk, under a name of its own for
    every state of the sources.

    Kernels use 64-bit integers throughout and no floating point, so that every machine writes the same bytes.
    """
    function.__qualname__ += f".{_SOURCES}"
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


if TYPE_CHECKING:

    def i64(number: Any) -> int:
        """`number` as the 64-bit integer that kernels calculate with; to the type checker an int."""

else:

    @jit
    def i64(number):
        return np.int64(number)
