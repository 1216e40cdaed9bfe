"""``parquet:PATH``: the user's own rows in one file.

``--client COLUMN`` says whose each row is, or ``--partition`` deals them out; one of them must be given.
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
