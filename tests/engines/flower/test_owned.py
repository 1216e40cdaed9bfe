from __future__ import annotations

from pathlib import Path

import pytest

from sparsona.engines.flower.owned import own_file
from sparsona.errors import DataError


def test_a_clients_file_is_found_by_its_name_also_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "va.CSV").write_text("age,ill\n")
    (tmp_path / "vale.csv").write_text("age,ill\n")
    assert own_file(tmp_path, "va") == tmp_path / "va.CSV"
    assert own_file(tmp_path / "vale.csv", "va") == tmp_path / "vale.csv", "a file that is named is taken as it is"
    (tmp_path / "va.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="holds 2 files of 'va', expected one of"):
        own_file(tmp_path, "va")
    with pytest.raises(DataError, match="holds 0 files of 'east'"):
        own_file(tmp_path, "east")
