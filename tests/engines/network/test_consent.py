"""What a node tells of its rows, and when: proposals of all kinds against the owner's decisions."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_helpers import Federation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparsona.engines.network.consent import Consent, Rules, Terms
from sparsona.engines.network.node import CONSENT, Node, accepted
from sparsona.errors import InputError
from sparsona.experiment import build, to_toml
from sparsona.partition._split import Split

AGREED: dict[str, Any] = {"method": "fedavg", "columns": {"target": ["ill"], "drop": ["name"], "categorical": ["ward"]}}


def hospital(folder: Path, rows: int = 120) -> Path:
    """A table of patients whose names nobody shall know."""
    rng = np.random.default_rng(1)
    lines = [
        f"Anna {k},{rng.normal(50, 9):.3f},{rng.normal(5, 1):.3f},{rng.choice(['a', 'b'])},{k % 2}" for k in range(rows)
    ]
    file = folder / "va.csv"
    file.write_text("\n".join(["name,age,dose,ward,ill", *lines]) + "\n")
    return file


def node_of(folder: Path, rules: Rules | None = None, agreed: dict[str, Any] | None = AGREED, **split: Any) -> Node:
    columns = None if agreed is None else build(agreed)[0].columns
    return Node(
        "va", folder / "va.csv", folder / "state" / "runs", rules or Rules(), terms=Terms(Split(**split), columns)
    )


def hello(node: Node, run: int = 0, **changes: Any) -> tuple[dict[str, Any], bytes]:
    text = to_toml(build({**AGREED, **changes})[0])
    return node.answer({"kind": "hello", "run": f"{run:032d}", "experiment": text}, lambda most: b"")


def waiting(folder: Path) -> list[str]:
    return [file.name for file in (folder / "state" / "runs" / CONSENT / "waiting").iterdir()]


SECTIONS = {
    "seed": st.integers(0, 5),
    "split": st.fixed_dictionaries(
        {}, optional={"test": st.sampled_from([0.1, 0.5, 0.98]), "validation": st.sampled_from([0.0, 0.6]),
                      "repeat": st.integers(0, 2), "by": st.sampled_from(["random", "time:age", "group:name"])}
    ),
    "columns": st.fixed_dictionaries(
        {},
        optional={
            "target": st.sampled_from([["ill"], ["name"], ["age"]]),
            "task": st.sampled_from(["auto", "classification", "regression"]),
            "drop": st.sampled_from([["name"], [], ["name", "dose"]]),
            "categorical": st.sampled_from([["ward"], ["ward", "ill"], ["ward", "name"]]),
            "client": st.sampled_from(["", "name"]),
            "scaling": st.sampled_from(["agreed", "own", "none"]),
            "missing": st.sampled_from([[], ["50"], ["a"]]),
            "spelling": st.sampled_from(["alike", "exact"]),
        },
    ),
    "least_rows": st.integers(1, 40),
    "model": st.sampled_from(["auto", "logistic"]),
    "rounds": st.integers(1, 10),
}  # fmt: skip
PROPOSALS = st.lists(st.fixed_dictionaries({}, optional=SECTIONS), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    folder = tmp_path_factory.mktemp("hospital")
    hospital(folder)
    return node_of(folder, Rules(most_proposals=10**6))


KNOWN: dict[int, set[tuple[str, bytes]]] = {}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROPOSALS)
def test_whatever_is_proposed_one_description_leaves(node: Node, proposals: list[dict[str, Any]]) -> None:
    """No question was accepted but the agreed one. No answer of any kind holds a name."""
    told = KNOWN.setdefault(id(node), set())
    for number, changes in enumerate(proposals):
        columns = {**AGREED["columns"], **changes.get("columns", {})}
        head, body = hello(node, number, **{**changes, "columns": columns})
        assert "Anna" not in f"{head}{body!r}"
        if head["kind"] == "hello":
            told.add((json.dumps({key: head[key] for key in ("sizes", "model", "published")}), body))
        else:
            assert body == b""
    assert len(told) <= 1


def test_another_question_waits_for_the_owner_and_each_consent_tells_one_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hospital(tmp_path)
    node = node_of(tmp_path)
    first = hello(node)[1]
    other = {"columns": {**AGREED["columns"], "drop": ["name", "dose"]}}
    assert hello(node, 1, **other) == ({"kind": "waits"}, b"")
    (name,) = waiting(tmp_path)
    assert f"--accept {name}" in caplog.text
    assert "drop=('name', 'dose')" in caplog.text
    with pytest.raises(InputError, match="no question 'abc' waits"):
        accepted(tmp_path / "state", "abc")
    assert "drop" in accepted(tmp_path / "state", name)
    second = hello(node, 1, **other)[1]
    assert second != first
    assert hello(node_of(tmp_path), 2, **other, seed=9, split={"test": 0.9})[1] == second
    assert hello(node, 3)[1] == first


def test_doubts_are_for_the_owners_log_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    hospital(one)
    honest = hello(node_of(one))[0]
    assert "dose" not in caplog.text
    file = hospital(other)
    lines = file.read_text().splitlines()
    file.write_text(
        "\n".join(line.replace(line.split(",")[2], "-999") if k % 4 == 1 else line for k, line in enumerate(lines))
    )
    head, body = hello(node_of(other))
    assert "'dose', 30 rows: -999" in caplog.text
    assert head.keys() == honest.keys()
    assert b"-999" not in body


def test_without_an_agreed_experiment_the_first_question_waits_too(tmp_path: Path) -> None:
    hospital(tmp_path)
    node = node_of(tmp_path, agreed=None)
    assert hello(node)[0] == {"kind": "waits"}
    accepted(tmp_path / "state", *waiting(tmp_path))
    assert hello(node)[0]["kind"] == "hello"


def test_changed_rows_need_consent_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = hospital(tmp_path)
    assert hello(node_of(tmp_path))[0]["kind"] == "hello"
    file.write_text(file.read_text() + "Bert,40,5,a,1\n")
    assert hello(node_of(tmp_path), 1)[0] == {"kind": "waits"}
    assert "the rows are not those of the statistics told before" in caplog.text


def test_the_split_is_the_secrets_and_stays(tmp_path: Path) -> None:
    """Two owners of the same rows split them differently; one owner always alike, also by its own settings."""
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
        hospital(folder)
    bodies = [hello(node_of(folder))[1] for folder in folders]
    assert bodies[0] != bodies[1]
    assert hello(node_of(folders[0]))[1] == bodies[0]
    assert hello(node_of(folders[0], test=0.5), 1)[0]["sizes"] != hello(node_of(folders[0]))[0]["sizes"]
    secret = folders[0] / "state" / "runs" / CONSENT / "secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert len(secret.read_bytes()) == 32


def test_proposals_are_counted_over_restarts(tmp_path: Path) -> None:
    hospital(tmp_path)
    rules = Rules(most_proposals=2)
    kinds = [hello(node_of(tmp_path, rules), run)[0]["kind"] for run in (0, 1, 1, 2, 0)]
    assert kinds == ["hello", "hello", "hello", "error", "hello"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"training": {"order": "stored"}}, "training.order=stored"),
        ({"training": {"batch": 19}}, "training.batch=19 is below least_rows=20"),
        ({"rounds": 1001}, "the owner allows 1000 rounds"),
        ({"columns": {**AGREED["columns"], "client": "ward"}}, "columns.client"),
    ],
)
def test_settings_that_would_isolate_rows_are_refused(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    hospital(tmp_path)
    head, body = hello(node_of(tmp_path), **changes)
    assert (head["kind"], body) == ("error", b"")
    assert why in head["why"]


def test_an_owner_with_few_rows_takes_no_part(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hospital(tmp_path, rows=24)
    head, _ = hello(node_of(tmp_path))
    assert head == {"kind": "error", "why": "the owner's data do not fit this experiment; its log says more"}


def test_a_question_that_the_owner_has_seen_is_not_forgotten(tmp_path: Path) -> None:
    """An accepted fingerprint is a file of its own: a node that runs sees it at the next question."""
    hospital(tmp_path)
    running = node_of(tmp_path, agreed=None)
    hello(running)
    Consent(tmp_path / "state" / "runs" / CONSENT).accept(*waiting(tmp_path))
    assert hello(running)[0]["kind"] == "hello"
    assert waiting(tmp_path) == []


@pytest.mark.parametrize("method", ["fedavg", "fedpse", "fedem"])
def test_with_the_same_rule_a_network_gives_the_simulators_digest(method: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tables = tmp_path / "tables"
    tables.mkdir()
    for ward in ("east", "west"):
        rows = [f"{rng.normal(50, 9):.2f},{rng.choice(['f', 'f', 'm', 'm', 'x'])},{k % 2}" for k in range(50)]
        (tables / f"{ward}.csv").write_text("\n".join(["age,sex,label", ",m,1", *rows]) + "\n")
    federation = Federation(
        tmp_path,
        Rules(least_rows=10),
        method=method,
        data=f"folder:{tables}",
        columns={"categorical": "sex"},
        rounds=2,
        least_rows=10,
        clients=0,
        partition="groups",
        training={"batch": 10, "lr": 0.1},
    )
    found, simulated = federation.run(), federation.simulated()
    assert found["digest"] == simulated["digest"]
    assert found["bytes"] == simulated["bytes"]
