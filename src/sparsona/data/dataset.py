"""What a data set is: arrays in one place, and index sets into them. Samples are never copied per client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sparsona.data.redrawn import Redrawn
    from sparsona.data.schema.rows import Rows

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


FIELD_TYPES = ("uint8", "int32", "float32")


@dataclass(frozen=True)
class Field:
    """One of several inputs. `name` is the keyword, empty for one that is given by place.

    Lists of different lengths are filled up with zeros to `shape`; their lengths stand behind them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    lengths: bool = False

    @property
    def size(self) -> int:
        """The bytes of one sample."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize + 4 * self.lengths


@dataclass(frozen=True)
class Dataset:
    """All samples of a data set; the publisher's test part, where there is one, stands at the end.

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
    """Raw rows whose schema is still to be agreed on. `inputs` and `targets` are then for dealing out only."""
    places: tuple[str, ...] = ()
    """Where the samples of each group were read, for messages: a file each; empty where that is not known."""
    redrawn: Redrawn | None = None
    """Draws training samples anew, where the user's Dataset has random transforms."""
    fields: tuple[Field, ...] = ()
    """The inputs of a sample where there are several: `inputs` are then rows of bytes, see `sparsona.data.fields`."""

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def has_missing(self) -> bool:
        """Whether inputs hold NaN: a batch then carries, beside the filled values, which of them were missing."""
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
    """What a partition may look at: labels, and the natural group of each sample where the data have groups."""

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
