"""Data files that claim too much or never end: one clear line, at once."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from sparsona import data
from sparsona.errors import DataError


def header(shape: tuple[int, ...], kind: str) -> bytes:
    """The head of a .npy file."""
    text = str({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize("rows", [2**40, 2**59])
def test_an_archive_that_claims_terabytes(tmp_path: Path, rows: int) -> None:
    with zipfile.ZipFile(tmp_path / "claims.npz", "w") as archive:
        archive.writestr("x.npy", header((rows, 1), "<f4") + bytes(100))
        archive.writestr("y.npy", header((rows,), "<i8") + bytes(100))
    with pytest.raises(
        DataError, match=r"claims\.npz (claims more than fits into memory|is not a \.npz file, or it is)"
    ):
        data.load(f"npz:{tmp_path / 'claims.npz'}")


@pytest.mark.parametrize("kind", ["csv", "npz", "parquet"])
def test_a_file_that_is_a_device(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"a.{kind}").symlink_to("/dev/zero")
    for source in (f"{kind}:{tmp_path / f'a.{kind}'}", f"folder:{tmp_path}"):
        with pytest.raises(DataError, match=f"a.{kind} is not a regular file"):
            data.load(source)


def test_class_numbers_need_not_be_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "ids.npz", x=rng.normal(size=(40, 3)), y=np.where(np.arange(40) % 2, 0, 10**12))
    assert data.load(f"npz:{tmp_path / 'ids.npz'}").classes == 2
