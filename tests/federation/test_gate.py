"""Hostile replies are left out, the sender is named, the round goes on; honest clients are not blamed."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsona.engines.inprocess import InProcess
from sparsona.errors import SparsonaError
from sparsona.experiment import make_method
from sparsona.federation.delivery import PendingReply
from sparsona.federation.evaluation import LAST_ROUND, Evaluation
from sparsona.federation.gate import Refused, ReplyGate, Screening, Size, heaviest, norm_of, norm_of_update
from sparsona.federation.rounds import assemble
from sparsona.message import Blocks, Message, Positions, Sparse, Stamp, Ternary, numbers_of
from sparsona.method import Arrival
from sparsona.methods import METHODS
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedstc import FedSTC
from sparsona.prepare import prepare
from sparsona.runs.records import AGAIN, read_records
from sparsona.runs.state import digest
from sparsona.testing import tiny_setup

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from attacks import ATTACKS, BAD, MESSAGES, Attacker, each, largest, run, scaled, verdict

GATE = ReplyGate({"a": 10, **{str(k): 10 for k in range(9)}}, initial=1.0)


def arrival(message: Message, sent: Message | None = None, order: tuple[int, int] = (2, 0)) -> Arrival:
    return Arrival("a", message.stamped(Stamp(*order)), order[0], lambda: sent or Message())


def vector(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (Message(weights=vector(1, math.nan)), "weights holds a number that is not finite"),
        (Message(weights=vector(1, -math.inf)), "weights holds a number that is not finite"),
        (Message(update=Sparse(9, np.array([3]), vector(math.inf))), "update holds a number that is not finite"),
        (Message(update=Ternary((3,), np.array([0]), np.array([True]), vector(math.nan))), "not finite"),
        (Message(update=Blocks(4, np.array([0]), vector(1e30))), "update holds a number beyond 1e+15"),
        (Message(weights=vector(-1e30)), "weights holds a number beyond 1e+15"),
        (Message(steps=np.array([2**62])), "steps holds a number beyond 1e+15"),
        (Message(tau=math.nan), "tau holds a number that is not finite"),
        (Message(halves=np.array([np.inf], np.float16)), "not finite"),
        (Message(examples=11), "it claims 11 examples, and the client has declared at most 10"),
        (Message(examples=2**62), "it claims 4611686018427387904 examples, and the client has declared at most 10"),
        (Message(examples=0), "it claims 0 examples"),
        (Message(examples=-5), "it claims -5 examples"),
    ],
)
def test_what_is_refused_by_itself(message: Message, line: str) -> None:
    with pytest.raises(Refused, match=line.replace("+", r"\+")):
        GATE.check(arrival(message), (2, 0))


def test_what_passes() -> None:
    sound = Message(weights=vector(3, 4), examples=10, kept=Positions(9, np.array([1])), empty=vector(), seed=2**62)
    assert GATE.check(arrival(sound), (2, 0)) == Size(5.0, 0.0, 0.0)
    assert GATE.check(arrival(Message(weights=vector(3, 4), buffers=vector(12))), (2, 0)) == Size(5.0, 12.0, 0.0)


def test_an_old_reply_is_no_answer() -> None:
    with pytest.raises(Refused, match="it answers round 2, phase 0, not what was asked"):
        GATE.check(arrival(Message(examples=1), order=(1, 0)), (2, 0))


def test_norms() -> None:
    message = Message(weights=vector(3, 4), extra=12.0, count=1000, kept=Positions(9, np.array([8])))
    assert norm_of(message.parts.values()) == 13.0
    assert norm_of_update(message, lambda: Message(weights=vector(3, 1))) == math.sqrt(9 + 144)
    assert norm_of_update(message, lambda: Message(weights=vector(3))) == 13.0, (
        "another length: nothing to compare with"
    )
    assert [len(n) for n in numbers_of(5)] == []


def reply(client: str) -> PendingReply:
    return PendingReply(0, client, 0, 0, np.zeros(1, np.uint8))


def left_out(gate: ReplyGate, *sizes: Size) -> list[int]:
    replies = [reply(str(k)) for k in range(len(sizes))]
    found = gate.out_of_proportion(dict(zip(replies, sizes, strict=True)))
    return [int(one.client) for one in found]


def test_what_is_out_of_proportion() -> None:
    honest, huge = Size(3.0, 0, 0.1), Size(1e5, 0, 1e5)
    assert left_out(GATE, honest, honest, huge) == [2]
    assert left_out(GATE, honest, huge) == [1], "of two, the one that is larger than the initial model and the other"
    assert left_out(GATE, huge) == [0]
    assert left_out(GATE, Size(0, 0, 0), Size(0, 0, 0), Size(900, 0, 0)) == [], (
        "who sends something where others send nothing"
    )
    assert left_out(GATE, Size(1e5, 0, 0), Size(2e5, 0, 0), Size(3e5, 0, 0)) == [], "large models are no attack"


def test_a_reply_that_nothing_can_be_compared_with_is_in_proportion() -> None:
    zeros = replace(GATE, initial=0.0)
    assert left_out(zeros, Size(4.0, 0, 0)) == [], "the only reply to a model of zeros"
    assert left_out(zeros, Size(0, 0, 0), Size(4.0, 0, 0)) == []
    assert left_out(zeros, Size(1, 0, 0), Size(2, 0, 0), Size(1e5, 0, 0)) == [2]


def test_buffers_are_judged_by_themselves() -> None:
    unscaled = Size(3.0, 5e7, 0)
    assert left_out(GATE, unscaled) == [], "one reply alone: its inputs may be large"
    assert left_out(GATE, unscaled, unscaled, Size(3.0, 1e12, 0)) == [2]


def test_the_bound_of_the_user_goes_by_the_median_of_the_others() -> None:
    bounded = replace(GATE, max_update_norm=3.0)
    sizes = [Size(1, 0, norm) for norm in (1.0, 1.1, 0.9, 3.5)]
    assert left_out(bounded, *sizes) == [3]
    assert left_out(replace(GATE, max_update_norm=4.0), *sizes) == []
    assert left_out(bounded, Size(1, 0, 1.0), Size(1, 0, 0.0), Size(1, 0, 0.0)) == [], (
        "nobody else has moved: no measure"
    )
    assert left_out(bounded, Size(1, 0, 50.0)) == []
    assert left_out(bounded, Size(1, 0, 50.0), Size(1, 0, 1.0)) == [], "of two, either may be the honest one"


def test_a_client_with_more_rows_may_move_further_but_not_without_end() -> None:
    sizes = [Size(1, 0, norm) for norm in (1.0, 1.0, 1.0, 8.0)]
    for rows, refused in ((10, [3]), (40, [3]), (80, []), (10**9, [])):
        gate = replace(GATE, max_update_norm=3.0, declared={**GATE.declared, "3": rows})
        assert left_out(gate, *sizes) == refused, f"{rows} rows"
        assert left_out(gate, *sizes[:3], Size(1, 0, 10.0)) == [3], "three times the root of ten, at most"


def test_a_late_reply_may_move_as_far_as_in_the_rounds_that_it_missed() -> None:
    gate = replace(GATE, max_update_norm=3.0)
    for missed, refused in ((0, True), (1, True), (2, False)):
        replies = {PendingReply(5, str(k), 5, 0, np.zeros(1, np.uint8)): Size(1, 0, 1.0) for k in range(3)}
        late = PendingReply(5, "3", 5 - missed, 0, np.zeros(1, np.uint8))
        assert bool(gate.out_of_proportion({**replies, late: Size(1, 0, 8.0)})) == refused


def test_nobody_is_locked_out_for_good_and_nobody_wins_by_waiting() -> None:
    sizes = [Size(1, 0, norm) for norm in (1.0, 1.0, 1.0, 8.0)]
    for refused, found in ((0, [3]), (AGAIN - 1, [3]), (AGAIN, [])):
        assert left_out(replace(GATE, max_update_norm=3.0, before={"3": refused}), *sizes) == found
    waited = replace(GATE, max_update_norm=3.0, before={"3": 1000})
    assert left_out(waited, *sizes[:3], Size(1, 0, 3.0 * (AGAIN + 1) + 0.1)) == [3]


BOUNDED = {"method": "fedavg", "clients": 5, "engine": "inprocess", "max_update_norm": 3.0}


def test_a_client_that_is_always_too_large_counts_every_sixth_time_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setup = prepare({**BOUNDED, "rounds": 2 * AGAIN + 2}).setup
    larger = replace(setup, method=Attacker(setup.method, each(scaled(1.6))))  # type: ignore[arg-type]
    rounds = assemble(larger, InProcess(larger), evaluation=Evaluation(every=0, post="participants"))
    rounds.run()
    assert [round for round, _, _ in rounds.refused] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    said = [one.getMessage() for one in caplog.records if f"{AGAIN} replies of {BAD} in a row" in one.getMessage()]
    assert len(said) == 2
    assert all("the norm of its update is" in line for line in said)
    assert rounds.run_log.refused == {BAD: 2 * AGAIN}


def test_the_bound_refuses_a_large_update_and_leaves_honest_clients_alone() -> None:
    setup = prepare({**BOUNDED, "rounds": 3}).setup
    assert run(setup, InProcess(setup))[1:] == (set(), 0)
    turned = replace(setup, method=Attacker(setup.method, each(scaled(30.0))))  # type: ignore[arg-type]
    assert run(turned, InProcess(turned))[1:] == ({BAD}, 3)


def screening() -> Screening[list[str]]:
    return Screening(GATE, lambda one: arrival(Message(examples=1), order=(0, 0)))


def failing(*bad: str) -> Callable[[Any], list[str]]:
    def aggregate(replies: list[PendingReply]) -> list[str]:
        names = [one.client for one in replies]
        if any(name in bad for name in names):
            raise KeyError("what a method raises")
        return names

    return aggregate


def test_who_makes_a_method_fail_alone_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    through = screening()
    with caplog.at_level(logging.WARNING):
        assert through.aggregated([reply(k) for k in "abcd"], failing("b", "d")) == ["a", "c"]
    assert {one.client: why for one, why in through.refused.items()} == {
        "b": "KeyError: 'what a method raises'",
        "d": "KeyError: 'what a method raises'",
    }
    assert "round 1: the reply of b is left out" in caplog.text


def test_a_method_that_fails_for_everyone_is_no_clients_fault() -> None:
    with pytest.raises(KeyError):
        screening().aggregated([reply(k) for k in "ab"], failing("a", "b"))


def test_the_round_goes_on_and_the_record_says_why(tmp_path: Path) -> None:
    setup = tiny_setup(FedAvg(), clients=4, rounds=3)
    bad = replace(setup, method=Attacker(FedAvg(), MESSAGES["one NaN"]))  # type: ignore[arg-type]
    rounds = assemble(bad, InProcess(bad), evaluation=LAST_ROUND, records=tmp_path / "records.jsonl")
    rounds.run()
    records = read_records(tmp_path / "records.jsonl")
    assert {(r.round, r.client): r.refused for r in records if r.refused} == {
        (round, BAD): "weights holds a number that is not finite" for round in (1, 2, 3)
    }
    without = tiny_setup(FedAvg(), clients=4, rounds=3)
    three = replace(without, task=replace(without.task, clients=tuple(k for k in without.task.clients if k != BAD)))
    honest = assemble(three, InProcess(three), evaluation=LAST_ROUND)
    honest.run()
    assert digest(rounds.server) == digest(honest.server), "as if the bad one had never been asked"


def test_a_refused_reply_counts_as_lost() -> None:
    """Error feedback: what was refused is still in the residual, so a client that recovers has lost nothing."""
    setup = tiny_setup(FedSTC(), clients=3, rounds=2)
    once = iter([MESSAGES["one NaN"]])
    bad = Attacker(FedSTC(), lambda message: next(once, lambda same: same)(message))
    wrong = replace(setup, method=bad)  # type: ignore[arg-type]
    rounds = assemble(wrong, InProcess(wrong), evaluation=LAST_ROUND)
    assert rounds._round(0)[BAD].refused
    stamp = rounds.delivery.stamp(BAD, (1, 0))
    assert stamp.acked is None
    memory = rounds.engine.store.get(BAD)
    assert memory.if_lost is not None
    assert memory.resolved(stamp) is memory.if_lost[0]
    assert not rounds._round(1)[BAD].refused
    assert rounds.delivery.stamp(BAD, (2, 0)).acked == (1, 0)


QUICK = ("fedavg", "fedmask", "fedmd", "fedpse", "ifca")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in METHODS.names()]
)
def test_no_attack_poisons_or_stops_the_server(name: str) -> None:
    if METHODS.get(name).alone:
        pytest.skip("nothing travels")
    setup = tiny_setup(make_method(name, {}), clients=4, rounds=3)
    server, refused, _ = run(setup, InProcess(setup))
    assert not refused, "honest clients are not blamed"
    for attack in ATTACKS:
        found = verdict(name, attack, largest(server))
        assert found.startswith("refused") or found == "harmless", f"{attack}: {found}"


def test_masks_and_logits_of_another_size_are_refused() -> None:
    assert verdict("fedmask", "too short", 1.0) == "refused 3 x"
    assert verdict("fedmd", "too long", 1.0) == "refused 3 x"


def test_the_norm_bound_is_an_option_of_the_experiment() -> None:
    import sparsona

    with pytest.raises(SparsonaError, match="max_update_norm"):
        sparsona.run("fedavg", clients=2, rounds=1, max_update_norm=-1.0)
    free = sparsona.run("fedavg", clients=4, rounds=2, max_update_norm=0).summary
    assert free["digest"] == sparsona.run("fedavg", clients=4, rounds=2).summary["digest"], "honest clients"
    tight = sparsona.run("fedavg", clients=4, rounds=2, max_update_norm=0.5).summary
    assert free["digest"] != tight["digest"]
    assert "refused" not in free
    assert set(tight["refused"].values()) <= {1, 2}


def test_a_client_counts_by_no_more_than_all_the_others() -> None:
    gate = replace(GATE, declared={"a": 2**30}, heaviest=heaviest({"a": 2**30, "b": 40, "c": 50}, 10.0))
    huge = gate.weighed(arrival(Message(weights=vector(1), examples=2**30)))
    assert huge.message.integer("examples") == 90
    assert huge.message.stamp == Stamp(2, 0)
    honest = arrival(Message(weights=vector(1), examples=60))
    assert gate.weighed(honest) is honest
    assert GATE.weighed(honest) is honest
    assert heaviest({"a": 2**30}, 10.0) == {}
