"""Files from outside with mutations: one line that names the file, or success; no traceback, no hang."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import damaged, mutated

import sparsona
from sparsona.data.folder import read_table
from sparsona.data.schema.columns import Format
from sparsona.errors import InputError, SparsonaError
from sparsona.experiment import build, parsed, read
from sparsona.export.files import card_of, model_of
from sparsona.export.predict import load_model
from sparsona.report.measured import measure
from sparsona.runs.answers import read_answers
from sparsona.runs.directory import RunDirectory, checked_summary

PROPERTY = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds on tables."""
    folder = tmp_path_factory.mktemp("mutated")
    rng = np.random.default_rng(1)
    (folder / "wards").mkdir()
    for ward in ("east", "west"):
        rows = [f"{rng.normal():.3f},{rng.choice(['f', 'm'])},{rng.choice(['no', 'yes'])}" for _ in range(40)]
        (folder / "wards" / f"{ward}.csv").write_text("age,sex,ill\n" + "\n".join(rows) + "\n")
    sparsona.run(
        "fedavg", data=f"folder:{folder / 'wards'}", columns={"target": "ill", "categorical": "sex"}, rounds=2,
        clients=0, partition="groups", out=folder / "run",
    )  # fmt: skip
    return folder / "run"


def survives(act: Callable[[], Any]) -> bool:
    """Whether it works; an error must be one of ours."""
    try:
        act()
    except SparsonaError:
        return False
    return True


@PROPERTY
@given(st.data())
def test_a_damaged_model_is_refused(run: Path, data: st.DataObject) -> None:
    """One flipped bit in a model is found: by its hash, or before."""
    whole = RunDirectory(run).model_file("east").read_bytes()
    changed = data.draw(damaged(whole))
    if survives(lambda: model_of(changed, ".safetensors", "model.safetensors")):
        assert model_of(changed, ".safetensors", "").card == model_of(whole, ".safetensors", "").card


@PROPERTY
@given(st.data())
def test_a_mutated_card_is_refused_or_read(run: Path, data: st.DataObject) -> None:
    card = model_of(RunDirectory(run).model_file("east").read_bytes(), ".safetensors", "").card
    tree = data.draw(mutated(json.loads(card.text())))
    survives(lambda: card_of(json.dumps(tree), "model"))


@PROPERTY
@given(st.data())
def test_a_damaged_experiment_is_refused_or_read(run: Path, data: st.DataObject) -> None:
    text = data.draw(damaged((run / "experiment.toml").read_bytes())).decode("utf-8", "replace")
    survives(lambda: build(parsed(text, "experiment.toml"), "experiment.toml"))


@PROPERTY
@given(st.data())
def test_a_damaged_table_is_refused_or_read(run: Path, data: st.DataObject) -> None:
    file = run.parent / "damaged.csv"
    file.write_bytes(data.draw(damaged((run.parent / "wards" / "east.csv").read_bytes())))
    survives(lambda: read_table(file, "east").read(Format()))


JSONS = ("summary.json", "about.json", "records.jsonl", "clients.csv", "checkpoint/manifest.json", "experiment.toml")


@pytest.mark.parametrize("name", JSONS)
@settings(PROPERTY, max_examples=25)
@given(data=st.data())
def test_a_damaged_run_directory_is_refused_or_read(run: Path, name: str, data: st.DataObject) -> None:
    copy = run.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    (copy / name).write_bytes(data.draw(damaged((run / name).read_bytes())))
    survives(lambda: measure(copy))
    survives(lambda: sparsona.load(copy))


def test_answers_with_one_wrong_byte_are_refused_or_read(run: Path, tmp_path: Path) -> None:
    whole = (run / "answers.npz").read_bytes()
    refused = 0
    for at in range(0, len(whole), 3):
        (tmp_path / "answers.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        refused += not survives(lambda: read_answers(tmp_path))
    assert refused > 100, "the sums of the archive find nearly all"


@settings(PROPERTY, max_examples=25)
@given(data=st.data())
def test_a_mutated_summary_is_refused_or_read(run: Path, data: st.DataObject) -> None:
    tree = data.draw(mutated(json.loads((run / "summary.json").read_text())))
    with contextlib.suppress(ValueError):
        assert checked_summary(tree) is tree


def test_a_summary_whose_parts_are_a_list_is_refused(run: Path) -> None:
    tree = json.loads((run / "summary.json").read_text())
    with pytest.raises(ValueError, match="bytes"):
        checked_summary({**tree, "bytes": {**tree["bytes"], "parts": [1]}})


@pytest.mark.parametrize("name", ["experiment.toml", "records.jsonl"])
def test_one_flipped_bit_is_found_when_a_run_is_resumed(run: Path, name: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    whole = bytearray((copy / name).read_bytes())
    at = whole.index(b"0.")
    whole[at] ^= 1  # 0 becomes 1: a number that is as good as any other
    (copy / name).write_bytes(whole)
    with pytest.raises(InputError, match="not as it was written"):
        sparsona.run(**read(copy / "experiment.toml"), out=copy, resume=True)


def test_transposed_and_infinite_weights_are_refused(run: Path, tmp_path: Path) -> None:
    from sparsona.export.files import read_model, safetensors_bytes

    found = read_model(RunDirectory(run).model_file("east"))
    name = next(name for name, array in found.tensors.items() if array.ndim == 2 and array.shape[0] != array.shape[1])
    bad = {
        "has shape": np.ascontiguousarray(found.tensors[name].T),
        "not a finite number": np.full_like(found.tensors[name], np.nan),
    }
    for why, array in bad.items():
        file = tmp_path / "model.safetensors"
        file.write_bytes(safetensors_bytes({**found.tensors, name: array}, found.card))
        with pytest.raises(InputError, match=why):
            load_model(file)


@pytest.mark.parametrize("name", ["model.safetensors", "model.npz", "rows.csv", "rows.npz", "rows.parquet", "a.toml"])
def test_no_reader_waits_for_a_pipe(name: str, tmp_path: Path) -> None:
    pipe = tmp_path / name
    os.mkfifo(pipe)
    act: Callable[[], Any]
    if name.startswith("model"):
        act = lambda: load_model(pipe)  # noqa: E731
    elif name.startswith("rows"):
        act = lambda: read_table(pipe, "a").read(Format())  # noqa: E731
    else:
        act = lambda: read(pipe)  # noqa: E731
    with pytest.raises(InputError, match="regular file"):
        act()


@pytest.mark.parametrize(
    "text",
    [
        'method = "fedavg"\noptions = [1, 2]',
        'method = ["fedavg"]',
        f'method = "fedavg"\nrounds = {"9" * 5000}',
        'method = "fedavg"\n' + "\n".join(f"[{'.'.join(f'a{k}' for _ in range(9))}]" for k in range(50)),
        "x" * 2**19,
    ],
    ids=["list", "names", "digits", "deep", "long"],
)
def test_a_hostile_experiment_is_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        build(parsed(text, "a.toml"), "a.toml")
    assert len(str(caught.value)) < 1000


def test_a_model_of_a_terabyte_is_refused_with_its_size() -> None:
    with pytest.raises(InputError, match="GB are free"):
        sparsona.run("fedavg", data="digits", model="mlp:100000000000", rounds=1)


def test_a_table_of_a_million_columns_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wide.csv"
    file.write_text(",".join(f"c{k}" for k in range(1_000_000)) + "\n")
    with pytest.raises(InputError, match="1000000 columns"):
        read_table(file, "a").read(Format())
    np.savez_compressed(tmp_path / "wide.npz", x=np.zeros((1, 10**7), np.uint8), y=np.zeros(1))
    with pytest.raises(InputError, match="10000000 columns"):
        read_table(tmp_path / "wide.npz", "a")


def test_an_npz_that_claims_terabytes_is_refused_by_its_header(tmp_path: Path) -> None:
    file = tmp_path / "claims.npz"
    np.savez(file, x=np.zeros((3, 4)), y=np.zeros(3))
    file.write_bytes(file.read_bytes().replace(b"(3, 4), }          ", b"(3000000000, 400), }"[:19]))
    with pytest.raises(InputError):
        read_table(file, "a")


def test_a_parquet_of_equal_rows_is_counted_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"a": np.zeros(2_000_000), "y": np.zeros(2_000_000)}), file)
    assert file.stat().st_size < 100_000
    monkeypatch.setattr("sparsona.files.free_memory", lambda: 10**7)
    with pytest.raises(InputError, match="2000000 rows of 2 columns"):
        read_table(file, "a")


def test_a_csv_of_one_feature_can_be_predicted(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    rng = np.random.default_rng(2)
    for ward in ("east", "west"):
        rows = [f"{x:.3f},{'yes' if x > 0 else 'no'}" for x in rng.normal(size=40)]
        (tmp_path / "one" / f"{ward}.csv").write_text("age,ill\n" + "\n".join(rows) + "\n")
    given: dict[str, Any] = {
        "data": f"folder:{tmp_path / 'one'}",
        "columns": {"target": "ill"},
        "rounds": 1,
        "clients": 0,
    }
    sparsona.run("local", partition="groups", out=tmp_path / "run", **given)
    (tmp_path / "new.csv").write_text("age\n1.5\n-1.5\n")
    model = load_model(RunDirectory(tmp_path / "run").model_file("east"))
    assert len(model.predict(read_table(tmp_path / "new.csv", ""))) == 2


def test_a_hard_linked_file_of_clients_is_not_written_through(run: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy", tmp_path / "mine.csv"
    shutil.copytree(run, copy)
    other.write_text("mine\n")
    (copy / "clients.csv").unlink()
    os.link(other, copy / "clients.csv")
    with pytest.raises(InputError, match="second name"):
        sparsona.run(**{**read(copy / "experiment.toml"), "rounds": 3}, out=copy, resume=True)
    assert other.read_text() == "mine\n"
