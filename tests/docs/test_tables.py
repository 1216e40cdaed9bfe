"""The tables in docs/ that are written by hand name every field and every option that there is."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path

import pytest
from pages import ROOT, pages

import sparsona
from sparsona.data import Columns
from sparsona.methods import METHODS
from sparsona.runs.about import About, ClientData
from sparsona.runs.records import ClientRecord
from sparsona.version import __version__
from sparsona.wire import Ledger

DOCS = ROOT / "docs"


def section(name: str) -> str:
    """A section of the page about the files of a run."""
    return (DOCS / "runs.md").read_text(encoding="utf-8").partition(f"## {name}\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    sparsona.run("spfl", clients=4, rounds=1, new_clients=0.25, out=out, set=("split.fewest=74", "evaluation.ft=true"))
    return out


@pytest.mark.parametrize(
    "page", [p for p in pages() if "papers" not in p.relative_to(ROOT).parts], ids=lambda page: page.name
)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(page: Path) -> None:
    head = 0
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line))) if line.startswith("|") else 0
        assert cells == head or not (cells and head), line
        head = cells


def test_the_loss_of_a_record_is_a_number_and_that_of_a_summary_an_object(run: Path) -> None:
    record = json.loads((run / "records.jsonl").read_text(encoding="utf-8").partition("\n")[0])
    assert isinstance(record["loss"], float)
    assert "| `loss` | number |" in section("records.jsonl")
    row = next(line for line in section("summary.json").splitlines() if line.startswith("| `loss`"))
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert [key for key in summary["loss"] if f"`{key}`" not in row] == []


def test_every_field_of_a_record_is_documented() -> None:
    for kind in (ClientRecord, Ledger):
        assert [f.name for f in dataclasses.fields(kind) if f"`{f.name}`" not in section("records.jsonl")] == []


def test_every_key_of_a_summary_is_documented(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    inner = {f"bytes.{key}" for key in summary["bytes"]} | set(summary["accuracy"]) | set(summary["accuracy"]["pre"])
    assert {"too_few_test_rows", "new_clients", "picked"} <= set(summary)
    wanted = {*summary, *inner} - {"bytes"}
    assert sorted(key for key in wanted if f"`{key}`" not in section("summary.json")) == []


def test_every_column_of_clients_csv_and_every_key_of_about_json_is_documented(run: Path) -> None:
    with (run / "clients.csv").open(newline="") as file:
        columns = next(csv.reader(file))
    assert {"client", "train", "validation", "test"} <= set(columns)
    assert [
        c for c in columns if f"`{c.replace('post', 'pre').replace('ft', 'pre')}`" not in section("clients.csv")
    ] == []
    for kind in (About, ClientData):
        assert [f.name for f in dataclasses.fields(kind) if f"`{f.name}`" not in section("about.json")] == []


def test_every_file_of_a_run_is_documented(run: Path) -> None:
    text = (DOCS / "runs.md").read_text(encoding="utf-8").partition("## ")[0]
    shown = [file.name + ("/" if file.is_dir() else "") for file in run.iterdir() if file.suffix != ".png"]
    assert sorted(name for name in shown if f"`{name}`" not in text and not name.startswith(".")) == []


def test_every_declaration_of_columns_is_documented() -> None:
    text = (DOCS / "data.md").read_text(encoding="utf-8")
    assert [f.name for f in dataclasses.fields(Columns) if f"`{f.name}` |" not in text] == []


def test_the_readme_is_short_and_names_no_method_that_is_not_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    for name in re.findall(r"sparsona run ([a-z-]+) ", text):
        METHODS.check(name)
    counted = re.search(r"personal ones among them \| (\d+), ", text)
    assert counted is not None
    ours = [name for name, about in METHODS.describe().items() if not about.startswith("(plug-in")]
    assert int(counted[1]) == len(ours), "the comparison counts the methods"


def test_the_version_stands_in_one_place_and_is_cited() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
