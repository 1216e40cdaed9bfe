"""Clients may be called anything; their files have names that every file system takes."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsona
from sparsona.errors import InputError
from sparsona.runs.names import VERSIONED, file_stem

PATHS = ["a", "A", "0", ".", "..", "/", "\\", "\0", " ", "\n", "\t", "%", "%41", "=", "~", "-", "_", "*", "?", '"', ":"]
SIGNS = [
    "医",
    "病院",
    "é",
    "e\u0301",
    "ß",
    "\u202e",
    "\ufeff",
    "🏥",
    "\x7f",
    "\x1b[31m",
    "|",
    "'",
    "$(rm)",
    "con",
    "nul",
]


def odd_names(count: int) -> list[str]:
    """So many different names of odd parts, of 0 to 400 characters."""
    rng = random.Random(0)
    names = {"", ".", "..", "医" * 29, "医" * 5000, "c0", "C0", "a" * 100, "a" * 101, "a" * 255, "a" * 4096}
    while len(names) < count:
        names.add("".join(rng.choices(PATHS + SIGNS, k=rng.choice([1, 2, 3, 10, 60, 200]))))
    return sorted(names)


def test_a_thousand_odd_names_have_a_thousand_files(tmp_path: Path) -> None:
    names = odd_names(1000)
    for name in names:
        stem = file_stem(name)
        (tmp_path / f"{stem}.safetensors").write_text(name, encoding="utf-8", newline="")
        assert re.fullmatch(VERSIONED, f"{stem}.12")
        assert not stem.startswith(".")
    assert len(list(tmp_path.iterdir())) == 1000
    for name in names:
        assert (tmp_path / f"{file_stem(name)}.safetensors").read_bytes().decode() == name


@given(st.text(max_size=300), st.text(max_size=300))
def test_names_differ_where_clients_do(one: str, other: str) -> None:
    try:
        stems = file_stem(one), file_stem(other)
    except InputError:
        return
    assert (stems[0] == stems[1]) == (one == other)
    assert max(map(len, stems)) <= 100


def test_a_name_that_is_no_text_is_one_line() -> None:
    with pytest.raises(InputError, match=r"the name of client 'x\\udcff' is not text") as caught:
        file_stem("x\udcff")
    str(caught.value).encode()


def test_a_run_of_oddly_named_clients_keeps_every_result(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = odd_names(1000)
    data = {name: (rng.normal(size=(12, 3)).astype("float32"), np.arange(12) % 2) for name in names}
    found = sparsona.run(
        "local", data=data, rounds=1, engine="inprocess", evaluation={"every": 0}, out=tmp_path / "run"
    )
    assert set(found.models) == set(names)
    assert len(list((tmp_path / "run" / "models").iterdir())) == 1000
    assert len(list((tmp_path / "run" / "checkpoint" / "clients").iterdir())) == 1000
    for name in names[::50]:
        assert found.models[name].predict(data[name][0]).shape == (12,)


def test_a_name_that_is_no_text_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    data = {name: (np.zeros((12, 3), "float32"), np.arange(12) % 2) for name in ("a", "b\udcff")}
    with pytest.raises(InputError, match="is not text"):
        sparsona.run("local", data=data, rounds=1, out=tmp_path / "run")
    assert not (tmp_path / "run" / "records.jsonl").exists()
