"""An owner's table as it came: columns by name, and where to find a row if something is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparsona.data.dataset import Array, Indices
from sparsona.data.schema.columns import Columns


@dataclass(frozen=True)
class Table:
    """The rows of one owner, or of all where a column says whose a row is.

    `columns` hold numbers (NaN: missing), texts (empty: missing) or dates, one value a row. `block` holds samples of
    more than one axis, which have no columns. The last `test` rows are the owner's own test part. `lines` are the
    rows' lines in the file `where`. `categories` are columns that their own type declares as categorical; `aside` are
    columns that are used only where an option names them. `target` names the target where the way in tells it.
    """

    owner: str
    where: str
    columns: Mapping[str, Array]
    block: Array | None = None
    test: int = 0
    lines: Indices | None = None
    categories: frozenset[str] = frozenset()
    aside: frozenset[str] = frozenset()
    target: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.block) if self.block is not None else len(next(iter(self.columns.values())))

    def at(self, row: int) -> str:
        """Where a row stands, for messages: the line of a file, else the row counted from 0.

        >>> import numpy as np
        >>> Table("a", "a.csv", {"x": np.zeros(2)}, lines=np.array([2, 4])).at(1)
        'a.csv, line 4'
        """
        return f"{self.where}, row {row}" if self.lines is None else f"{self.where}, line {self.lines[row]}"


@dataclass(frozen=True)
class Tables:
    """All tables of a data set. `owned`: each is a client's; else they are for a partition to deal out.

    `columns` is what the publisher declares; what the user declares goes before it.
    """

    name: str
    tables: tuple[Table, ...]
    owned: bool
    model: str = "mlp"
    columns: Columns = field(default_factory=Columns)
