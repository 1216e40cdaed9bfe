"""``csv:PATH``: the user's own rows in one file.

``--client COLUMN`` names each row's client, or ``--partition`` divides the rows; one of them must be given.
"""

from pathlib import Path

from sparsona.data._csv import read_csv
from sparsona.data._source import source
from sparsona.data._store import Store
from sparsona.data.schema.table import Tables


@source(
    about="your own rows in one file: csv:PATH, with --client COLUMN where it holds several clients", licence="yours"
)
def load(store: Store, path: Path) -> Tables:
    """Load the rows of one csv file."""
    path = path.expanduser()
    return Tables(path.stem, (read_csv(path, ""),), owned=False)
