"""numba behind a typed face: a kernel keeps the signature that it was written with."""

import atexit
import logging
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils
from numba.extending import intrinsic

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])

Places: TypeAlias = npt.NDArray[np.uint64]
"""Positions for a kernel. Unsigned numbers need no check for negative indices."""

KERNEL: tuple[Literal["C"], Literal["A"], Literal["W"]] = ("C", "A", "W")
"""Requirements for arrays of callers. Other arrays are copied, since compiling a kernel for them takes longer."""


@cache
def _fingerprint(folder: Path) -> str:
    """Return the fingerprint of all sources in a folder. A compiled kernel contains the kernels that it calls, also
    those of other files. But numba only checks the kernel's own file, so an update could leave old code in use.
    """
    sources = [Path(__file__), *sorted(folder.glob("*.py"))]
    return f"{zlib.crc32(b''.join(source.read_bytes() for source in sources)):08x}"


def _jitted(function: Callable[..., Any], fastmath: bool | set[str]) -> Any:
    """Compile with a cache on disk; where no folder can be written, with a temporary one, or none."""

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    options["no_cfunc_wrapper"] = True  # no C code calls a kernel, and a wrapper takes time to compile

    def jit(cache: bool) -> Any:
        return numba.njit(cache=cache, **options)(function)

    for _ in range(2):
        try:
            return jit(True)
        except RuntimeError:  # numba: no locator available
            if not _take_temporary_cache():
                break
    return jit(False)


@cache
def _take_temporary_cache() -> bool:
    """Have numba keep compiled code in a folder that is removed when this process ends; its children use it, too."""
    try:
        folder = tempfile.mkdtemp(prefix="sparsona-numba-")
    except OSError:
        folder = ""
    where = "is compiled again by each process" if not folder else "is kept in a temporary folder"
    fix = "set NUMBA_CACHE_DIR to a folder that can be written"
    log.warning("numba can write neither beside the package nor in the home folder: compiled code %s; %s", where, fix)
    if folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        setattr(numba.config, "CACHE_DIR", folder)  # noqa: B010 (numba's types do not know it)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return bool(folder)


def compiled(function: F) -> F:
    """Compile `function` on its first call, once per machine. The code is cached on disk, under another name for every
    state of the sources beside it. Sums keep the order they are written in.

    Kernels of the wire use 64-bit integers throughout and no floating point, so that every machine writes the same
    bytes.
    """
    function.__qualname__ += f".{_fingerprint(Path(function.__code__.co_filename).parent)}"
    return cast(F, _jitted(function, False))


def compiled_sums(function: F) -> F:
    """Compile arithmetic of models: sums are taken in the order that is fastest on this machine.

    Results differ in the last bits from one kind of processor to another. NaN stays NaN.
    """
    function.__qualname__ += f".{_fingerprint(Path(function.__code__.co_filename).parent)}"
    loose = {"reassoc", "contract", "nsz"}
    return cast(F, _jitted(function, loose))


if TYPE_CHECKING:

    def i64(number: Any) -> int:
        """Return `number` as the 64-bit integer of kernels; to the type checker it is an int."""

    def u64(number: Any) -> int:
        """Return `number` without a sign: for bits, and for places, which then need no check for negative indices."""

    def i32(number: Any) -> int:
        """Return a 32-bit integer, for loops over arrays of such numbers: the machine takes twice as many at a time."""

    def u32(number: Any) -> int:
        """Return a 32-bit integer without a sign."""

    def bit_length(number: int) -> int:
        """Return the number of bits of a number in 0 .. 2**32 - 1; 0 has none."""

    def zeros_at_end(number: int) -> int:
        """Return the number of trailing zero bits; 64 for 0."""

    def load64(data: npt.NDArray[np.uint8], at: int) -> int:
        """Load eight bytes from `at` on, the lowest first. The caller guarantees that they exist."""

    def store64(data: npt.NDArray[np.uint8], at: int, number: int) -> None:
        """Store a number in eight bytes from `at` on, the lowest first. The caller guarantees that they exist."""

else:

    def _as(kind):
        """Cast inside the calling kernel. `numpy.int64(number)` would be compiled for each type of number."""

        @intrinsic
        def cast(context, number):
            def code(context, builder, signature, arguments):
                return context.cast(builder, arguments[0], signature.args[0], kind)

            return kind(number), code

        return cast

    i64, u64, i32, u32 = map(_as, (numba.int64, numba.uint64, numba.int32, numba.uint32))

    @intrinsic
    def bit_length(context, number):
        def code(context, builder, signature, arguments):
            zeros = builder.ctlz(arguments[0], context.get_constant(numba.types.boolean, False))
            return builder.sub(context.get_constant(numba.uint32, 32), zeros)

        return numba.uint32(numba.uint32), code

    @intrinsic
    def zeros_at_end(context, number):
        def code(context, builder, signature, arguments):
            return builder.cttz(arguments[0], context.get_constant(numba.types.boolean, False))

        return numba.int64(numba.uint64), code

    def _eight_bytes(context, builder, kind, data, at):
        """Return a pointer to eight bytes of an array."""
        start = cgutils.create_struct_proxy(kind)(context, builder, data).data
        word = ir.IntType(64)
        return builder.bitcast(builder.gep(start, [at]), word.as_pointer())

    def _little(builder, number):
        return number if sys.byteorder == "little" else builder.bswap(number)

    def _are_bytes(data):
        """Return whether an array is contiguous bytes; for any other array numba refuses to compile the kernel."""
        return isinstance(data, numba.types.Array) and (data.dtype, data.ndim, data.layout) == (numba.uint8, 1, "C")

    @intrinsic
    def load64(context, data, at):
        def code(context, builder, signature, arguments):
            where = _eight_bytes(context, builder, signature.args[0], *arguments)
            return _little(builder, builder.load(where, align=1))

        return (numba.types.uint64(data, numba.types.uint64), code) if _are_bytes(data) else None

    @intrinsic
    def store64(context, data, at, number):
        def code(context, builder, signature, arguments):
            where = _eight_bytes(context, builder, signature.args[0], *arguments[:2])
            builder.store(_little(builder, arguments[2]), where, align=1)
            return context.get_dummy_value()

        kinds = data, numba.types.uint64, numba.types.uint64
        return (numba.types.void(*kinds), code) if _are_bytes(data) and data.mutable else None
