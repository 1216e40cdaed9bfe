"""numba behind a typed face, for the sequential kernels of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Places: TypeAlias = npt.NDArray[np.uint64]
"""Positions as a kernel wants them: unsigned, they are not looked at for counting from the end."""

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile `function` on its first call; the code is cached on disk. Sums keep the order they are written in."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)(function))
