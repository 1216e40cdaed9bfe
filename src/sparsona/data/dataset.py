"""Data sets: arrays in one place, and index sets into them. Samples are never copied per client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sparsona.data.schema.rows import Rows
    from sparsona.data.varied import ResampledRows

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


FIELD_TYPES = ("uint8", "int32", "float32")


@dataclass(frozen=True)
class Field:
    """One of several inputs; `name` is the keyword, empty for a positional input.

    Lists of different lengths are padded with zeros to `shape` and followed by their lengths.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    lengths: bool = False

    @property
    def size(self) -> int:
        """Return the bytes of one sample."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize + 4 * self.lengths


@dataclass(frozen=True)
class Dataset:
    """All samples of a data set; the publisher's test part, if there is one, stands at the end.

    `inputs` is (n, channels, height, width) uint8 for images, (n, features) float32 for tables (NaN is a missing
    value), (n, length) integer tokens for text. `targets` is (n,) int64 for classes, floats otherwise.
    `mean` and `std` normalise a batch when it is made (uint8 images are first divided by 255).
    """

    name: str
    inputs: Array
    targets: Array
    classes: int
    official_test: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    groups: Indices | None = None
    group_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    model: str = "mlp"
    vocabulary: int = 0
    rows: Rows | None = None
    """Raw rows before the agreement on a schema; `inputs` and `targets` then serve the partition only."""
    places: tuple[str, ...] = ()
    """The file of each group, for messages; empty if unknown."""
    redrawn: ResampledRows | None = None
    """Redraws training samples of a Dataset with random transforms."""
    fields: tuple[Field, ...] = ()
    """Several inputs per sample: `inputs` are then rows of bytes, see `sparsona.data.fields`."""

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def has_missing(self) -> bool:
        """True if inputs hold NaN: a batch then carries a mask of the missing values."""
        return self.inputs.dtype.kind == "f" and bool(np.isnan(self.inputs).any())


@dataclass(frozen=True)
class ClientSplit:
    """One client's part: indices into the data set's arrays."""

    name: str
    train: Indices
    validation: Indices
    test: Indices


@dataclass(frozen=True)
class Samples:
    """The facts for a partition: labels, and the natural group of each sample if the data have groups."""

    labels: Array
    classes: int
    groups: Indices | None = None
    group_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Federation:
    """A data set and how it is spread over clients."""

    data: Dataset
    splits: Mapping[str, ClientSplit] = field(default_factory=dict)

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients' names."""
        return tuple(self.splits)
