"""The entry point as a function, and as a process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from sparsona import cli
from sparsona.cli.app import out


class Shell:
    """Calls the entry point in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys, self.monkeypatch = capsys, monkeypatch

    def __call__(self, *words: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["sparsona", *map(str, words)])
        self.capsys.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = self.capsys.readouterr()
        return code, out, err


@pytest.fixture
def sparsona(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "_width", 80)
    return Shell(capsys, monkeypatch)


@pytest.fixture
def wards(tmp_path: Path) -> Path:
    """Three wards' tables in a folder: two numbers, a category, and who is ill."""
    folder = tmp_path / "wards"
    folder.mkdir()
    rng = np.random.default_rng(7)
    for ward in ("east", "north", "west"):
        lines = ["age,pulse,sex,ill"]
        for _ in range(60):
            age, pulse, sex = rng.integers(20, 90), rng.normal(70, 8), rng.choice(["f", "m"])
            lines.append(f"{age},{pulse:.2f},{sex},{'yes' if age + pulse > 128 else 'no'}")
        (folder / f"{ward}.csv").write_text("\n".join(lines) + "\n")
    return folder
