"""``parquet:PATH``: the user's own rows in one file.

``--client COLUMN`` names each row's client, or ``--partition`` divides the rows; one of them must be given.
"""

from pathlib import Path

from sparsona.data._arrow import read_parquet
from sparsona.data._source import source
from sparsona.data._store import Store
from sparsona.data.schema.table import Tables


@source(
    about="your own rows in one file: parquet:PATH, with --client COLUMN where it holds several clients",
    licence="yours",
)
def load(store: Store, path: Path) -> Tables:
    """The rows of one parquet file."""
    path = path.expanduser()
    return Tables(path.stem, (read_parquet(path, ""),), owned=False)
