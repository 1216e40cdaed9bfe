"""Heads between server and nodes: whatever one client says of itself costs that client, and no other."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from flower_helpers import Federation, ward_tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lies import OF_TABLES
from mutations import mutated

from sparsona.engines.network import engine as engine_module
from sparsona.engines.network import heads
from sparsona.engines.network.carrier import Parcel, Returned
from sparsona.engines.network.consent import Rules
from sparsona.engines.network.flower.started.sparsona_records import BadParcel, Head, from_text
from sparsona.errors import RunError, WireError
from sparsona.federation.gate import heaviest
from sparsona.runs.directory import RunDirectory
from sparsona.version import __version__
from sparsona.wire import Ledger

HASH, RUN = "ab" * 32, "0f" * 16
ANSWERS: dict[str, Head] = {
    "hello": heads.Greeting(
        name="c0", sparsona=__version__, scores=True, model="mlp", sizes=(9, 1, 2), published=None
    ).head,
    "ready": heads.ModelReady(fingerprint=HASH).head,
    "turn": heads.TurnReply(
        ledger=(4, 0, 8, 1.5, 0, 0), paper=3, scores={"pre": (0.5, None)}, loss=0.7, seconds=1.0, flops=5, samples=9.0
    ).head,
    "whole": heads.NeedsReference().head,
    "done": heads.Finished(memory=HASH).head,
}
KINDS: dict[str, Any] = {
    "hello": heads.Greeting,
    "ready": heads.ModelReady,
    "turn": heads.TurnReply,
    "whole": heads.NeedsReference,
    "done": heads.Finished,
}
QUESTIONS: list[Head] = [
    heads.Ping().head,
    heads.Proposal(run=RUN, experiment='method = "fedavg"').head,
    heads.Agreed(run=RUN, experiment='method = "fedavg"', clients=("a", "b")).head,
    heads.TurnOrder(run=RUN, job="fit", round=1, phase=0, score=True).head,
    heads.Finish(run=RUN, round=3, phase=0).head,
]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "SOON", 0.01)
    monkeypatch.setattr(engine_module, "RETRY", 0.02)


@pytest.mark.parametrize("kind", ANSWERS)
def test_what_a_node_writes_the_server_reads(kind: str) -> None:
    head = json.loads(json.dumps(ANSWERS[kind]))
    assert heads.answer(head, KINDS[kind]).head == ANSWERS[kind]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(ANSWERS)).flatmap(lambda kind: st.tuples(st.just(kind), mutated(ANSWERS[kind]))))
def test_a_mutated_answer_is_read_within_its_ranges_or_refused(case: tuple[str, Any]) -> None:
    kind, tree = case
    try:
        head = from_text(json.dumps(tree))
        read = heads.greeting(head) if kind == "hello" else heads.answer(head, KINDS[kind])
        if isinstance(read, heads.TurnReply):
            heads.scores_of(read, ("accuracy",))
            heads.ledger_of(read.ledger, bytes(12))
    except (BadParcel, WireError) as error:
        why = str(error)
        assert why.isprintable() and len(why) < 400  # noqa: PT018
        return
    assert math.isfinite(sum(_numbers(read.head)))


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(QUESTIONS).flatmap(mutated))
def test_a_mutated_question_is_understood_or_refused(tree: Any) -> None:
    try:
        heads.question(from_text(json.dumps(tree)))
    except (BadParcel, WireError) as error:
        why = str(error)
        assert why.isprintable()


def _numbers(tree: Any) -> list[float]:
    if isinstance(tree, dict):
        return [n for value in tree.values() for n in _numbers(value)]
    if isinstance(tree, list):
        return [n for value in tree for n in _numbers(value)]
    return [float(tree)] if isinstance(tree, int | float) else []


def test_an_account_of_a_frame_adds_up() -> None:
    assert heads.ledger_of((1, 2, 3, 0.5, 0, 0), bytes(6)) == Ledger(1, 2, 3, 0.5)
    for told in ((1, 2, 4, 0.5, 0, 0), (1, 2, 3, 0.5, 7, 0)):
        with pytest.raises(WireError, match="its account"):
            heads.ledger_of(told, bytes(6))


BAD_HELLOS: dict[str, dict[str, Any]] = {
    "2^62 rows": {"sizes": [2**62, 5, 5]},
    "rows without end": {"sizes": [1e400, 5, 5]},
    "no rows": {"sizes": [0, 5, 5]},
    "a fraction": {"sizes": [7.5, 5, 5]},
    "nested": {"published": {"classes": [[["a"]]]}},
    "another name": {"name": "c0\nc1 is here"},
    "an account": {"ledger": [0, 0, 0, 1e308, 0, 0]},
    "another version": {"sparsona": "9\x1b[2J"},
}


@pytest.mark.parametrize("change", BAD_HELLOS.values(), ids=BAD_HELLOS)
def test_a_bad_greeting_names_its_client_and_nothing_else(
    change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = Federation(tmp_path, method="fedavg", rounds=1)

    def lie(parcel: Parcel, answer: Returned) -> Returned:
        if parcel.head["kind"] != "hello" or parcel.client != "c1":
            return answer
        return dataclasses.replace(answer, head={**(answer.head or {}), **change})

    federation.carrier.change = lie
    with pytest.raises(RunError, match="c1 cannot take part: ") as caught:
        federation.run(patience=5.0)
    assert "c0" not in str(caught.value).replace("calls itself", "").partition(":")[0]
    assert "\x1b" not in capsys.readouterr().out


BAD_TURNS: dict[str, dict[str, Any]] = {
    "score of 999": {"scores": {"post": [999, None]}},
    "endless score": {"scores": {"post": [1e308, 0.5]}},
    "huge integer": {"seconds": 10**400},
    "huge work": {"flops": 2**70},
    "bound": {"ledger": [0, 0, 0, 1e308, 0, 0]},
    "nested": {"scores": [[[]]]},
    "surprise": {"and": "more"},
    "another kind": {"kind": "done"},
}


@pytest.mark.parametrize("change", BAD_TURNS.values(), ids=BAD_TURNS)
def test_a_bad_turn_costs_its_client_alone(change: dict[str, Any], tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedavg", rounds=2)

    def lie(parcel: Parcel, answer: Returned) -> Returned:
        if parcel.head["kind"] not in ("turn", "finish") or parcel.client != "c1" or answer.head is None:
            return answer
        return dataclasses.replace(answer, head={**answer.head, **change})

    federation.carrier.change = lie
    federation.run()
    lines = {(line.round, line.client): line for line in RunDirectory(federation.home / "runs" / "run").lines()}
    assert lines[1, "c1"].refused
    assert lines[2, "c0"].arrived
    assert not lines[2, "c0"].refused


def test_a_declared_size_takes_no_federation_over(tmp_path: Path) -> None:
    """A client says that it has a thousand million rows: its weight is that of all the others together at most."""
    federation = Federation(tmp_path, method="fedavg", rounds=1, clients=4, partition="iid")

    def lie(parcel: Parcel, answer: Returned) -> Returned:
        if parcel.head["kind"] == "hello" and parcel.client == "c1":
            assert answer.head is not None
            return dataclasses.replace(answer, head={**answer.head, "sizes": [heads.MOST_ROWS, 5, 5]})
        return answer

    federation.carrier.change = lie
    found = federation.run()
    assert found["clients"] == 4
    weights = heaviest({"a": 100, "b": 100, "c": 100, "d": heads.MOST_ROWS}, 10.0)
    assert weights["d"] == 300


def test_without_scores_no_loss_is_sent(tmp_path: Path) -> None:
    federation = Federation(tmp_path, Rules(scores=False, least_rows=1), method="fedavg", rounds=1)
    seen: list[Head] = []

    def note(parcel: Parcel, answer: Returned) -> Returned:
        if answer.head is not None and answer.head["kind"] == "turn":
            seen.append(answer.head)
        return answer

    federation.carrier.change = note
    federation.run()
    assert seen
    assert all(head["loss"] is None and not head["scores"] for head in seen)


def test_the_owners_log_has_a_line_for_every_evaluation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    federation = Federation(tmp_path, method="fedavg", rounds=2)
    with caplog.at_level(logging.INFO, "sparsona.node"):
        federation.run()
    asked = [one for one in federation.carrier.sent if one.head.get("job") in ("personal", "trial")]
    said = [one for one in caplog.records if "evaluates a model for the server" in one.getMessage()]
    assert asked
    assert len(said) == len(asked)


@pytest.mark.parametrize("kind", ["hello", "agreed", "turn", "finish"])
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_an_evil_owner_costs_the_others_nothing(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One of four mutates all its answers to one kind of message: the run begins without it, or goes on."""
    federation = Federation(tmp_path_factory.mktemp("evil"), method="fedavg", rounds=2, clients=4, partition="iid")

    def lie(parcel: Parcel, answer: Returned) -> Returned:
        if parcel.head["kind"] != kind or parcel.client != "c1" or answer.head is None:
            return answer
        try:
            head = from_text(json.dumps(data.draw(mutated(answer.head))))
        except BadParcel as error:
            return Returned(answer.name, why=str(error))
        return dataclasses.replace(answer, head=head)

    federation.carrier.change = lie
    federation.run(fewest=3)
    lines = RunDirectory(federation.home / "runs" / "run").lines()
    honest = [line for line in lines if line.client != "c1"]
    assert len(honest) == 6
    assert all(line.arrived and not line.refused for line in honest)


class Stopped(BaseException):
    """The end of the server's process."""


@pytest.mark.parametrize("kind", ["hello", "agreed"])
def test_a_run_that_goes_on_does_without_an_evil_owner(kind: str, tmp_path: Path) -> None:
    """The server stops after round 1. One of four then greets it wrongly: the others go on, and it, if it answers."""
    federation = Federation(tmp_path, method="fedavg", rounds=3, clients=4, partition="iid")
    stopped = list[str]()

    def stop(parcel: Parcel, answer: Returned) -> Returned:
        if parcel.head["kind"] == "turn" and parcel.head["round"] == 1 and not stopped:
            stopped.append(parcel.client)
            raise Stopped
        return answer

    def lie(parcel: Parcel, answer: Returned) -> Returned:
        bad = parcel.head["kind"] == kind and parcel.client == "c1"
        return dataclasses.replace(answer, head={"kind": kind, "sizes": [2**62]}) if bad else answer

    federation.carrier.change = stop
    with pytest.raises(Stopped):
        federation.run()
    federation.carrier.change = lie
    found = federation.run(patience=5.0)
    assert found["digest"] == federation.simulated()["digest"], "it has answered all its orders"


@pytest.mark.parametrize("silent", [False, True])
def test_statistics_at_a_resume_change_nothing(silent: bool, tmp_path: Path) -> None:
    """What was agreed on stays, whatever an owner says of its columns later, or if it says nothing."""
    federation = ward_tables(tmp_path)
    simulated, greeted = federation.simulated(), list[str]()

    def stop(parcel: Parcel, answer: Returned) -> Returned:
        if parcel.head["kind"] == "turn" and parcel.head["round"] == 1:
            raise Stopped
        return answer

    def lie(parcel: Parcel, answer: Returned) -> Returned | None:
        if parcel.head["kind"] != "hello" or parcel.client != "west":
            return answer
        greeted.append(parcel.client)
        return None if silent else dataclasses.replace(answer, body=bytes(reversed(answer.body)))

    federation.carrier.change = stop
    with pytest.raises(Stopped):
        federation.run()
    federation.carrier.change = lie
    assert federation.run(patience=0.5)["digest"] == simulated["digest"]
    assert greeted


@pytest.mark.parametrize("owner", ["east", "west"])
@pytest.mark.parametrize("name", OF_TABLES)
def test_false_statistics_cost_their_owner_alone(name: str, owner: str, tmp_path: Path) -> None:
    """The run says whom it lacks, or begins without it, whether the lie comes first or last."""
    federation, lie = ward_tables(tmp_path), OF_TABLES[name].change
    assert lie is not None

    def change(parcel: Parcel, answer: Returned) -> Returned:
        if parcel.head["kind"] != "hello" or parcel.client != owner:
            return answer
        assert answer.head is not None
        head, body = lie(parcel.head, answer.head, answer.body)
        return dataclasses.replace(answer, head=head, body=body)

    federation.carrier.change = change
    with pytest.raises(RunError, match=f"{owner} cannot take part: ") as caught:
        federation.run(patience=5.0)
    assert not any(f"{ward} cannot" in str(caught.value) for ward in {"east", "north", "west"} - {owner})
    assert federation.run(patience=5.0, fewest=2)["clients"] == 2
    lines = RunDirectory(federation.home / "runs" / "run").lines()
    assert {line.client for line in lines if line.arrived} == {"east", "north", "west"} - {owner}
