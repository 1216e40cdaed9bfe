"""A cache for arrays that take long to make from published files. Without pickle."""

import hashlib
import io
import logging
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from sparsona.data._store import Store
from sparsona.data.dataset import Array
from sparsona.files import write_whole

FOLDER = ".arrays"
log = logging.getLogger(__name__)


def cached(
    store: Store, files: Sequence[Path], config: str, make: Callable[[], Mapping[str, Array]]
) -> Mapping[str, Array]:
    """Return the arrays that `make` makes of these files, from the cache if possible.

    The key covers the content of the files and the `config`, so a changed archive or tokenizer gives new arrays. An
    unreadable cache is rebuilt; without a writable cache the arrays are made each time.
    """
    name = f"{store.source.name}-{fingerprint(store, files, config)}.npz"
    for root in store.roots:
        arrays = _read(root / FOLDER / name)
        if arrays is not None:
            return arrays
    arrays = make()
    for root in store.roots:
        try:
            content = io.BytesIO()
            np.savez(content, allow_pickle=False, **arrays)
            (root / FOLDER).mkdir(parents=True, exist_ok=True)
            write_whole(root / FOLDER / name, content.getbuffer())
            break
        except OSError as error:
            log.info("no cache below %s: %s", root, error)
    return arrays


def fingerprint(store: Store, files: Sequence[Path], config: str) -> str:
    """Return the cache key of these files and `config`."""
    digest = hashlib.sha256(config.encode())
    for path in files:
        with store.reading(path), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:20]


def _read(path: Path) -> Mapping[str, Array] | None:
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        log.info("the cache %s is made anew: %s", path, error)
        return None
