"""The tables in docs/ name every setting, every field and every option that there is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from sparsona.data import Columns
from sparsona.experiment import SECTIONS, Experiment
from sparsona.runs.records import ClientRecord
from sparsona.wire import Ledger

DOCS = Path(__file__).parents[1] / "docs"


def test_every_field_of_a_record_is_documented() -> None:
    text = (DOCS / "runs.md").read_text(encoding="utf-8").partition("## records.jsonl")[2].partition("## Settings")[0]
    for kind in (ClientRecord, Ledger):
        assert [f.name for f in dataclasses.fields(kind) if f"`{f.name}`" not in text] == []


def test_every_setting_is_documented() -> None:
    text = (DOCS / "runs.md").read_text(encoding="utf-8").partition("## Settings")[2]
    top = [name for name in Experiment.model_fields if name not in SECTIONS]
    inner = [f"{section}.{f.name}" for section, kind in SECTIONS.items() for f in dataclasses.fields(kind)]
    assert [name for name in (*top, *inner) if f"`{name}`" not in text] == []


def test_every_declaration_of_columns_is_documented() -> None:
    text = (DOCS / "data.md").read_text(encoding="utf-8")
    assert [f.name for f in dataclasses.fields(Columns) if f"`{f.name}` |" not in text] == []
