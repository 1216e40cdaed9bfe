"""Delivery: whatever becomes of orders and replies, both sides agree, and nothing is counted twice or lost for good."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsona.errors import WireError
from sparsona.experiment import make_method
from sparsona.federation.delivery import ClientMemory, Delivery, PendingReply
from sparsona.layout import Layout
from sparsona.message import Message, Stamp, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedpse import FedPSE
from sparsona.methods.fedscr import FedSCR, _update
from sparsona.methods.fedspa import FedSpa
from sparsona.methods.fedstc import FedSTC
from sparsona.methods.sub_fedavg import SubFedAvg
from sparsona.ops.masks import unpack
from sparsona.personal.layer import METHOD_ALONE
from sparsona.testing import Event, Observed, check_delivery, play, tiny_setup

Script = Sequence[Mapping[ClientId, Event]]

CLIENTS = ("c0", "c1", "c2")
SCRIPTS: st.SearchStrategy[Script] = st.lists(
    st.fixed_dictionaries({client: st.sampled_from(get_args(Event)) for client in CLIENTS}), min_size=1, max_size=6
)

few = settings(max_examples=8, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize(
    "name",
    ["fedavg", "fedpse", "fedstc", "fedscr", "fedspa", "sub-fedavg", "plga", "pfednet", "spfl", "ditto"],
)
@few
@given(script=SCRIPTS)
def test_both_sides_agree(name: str, script: Script) -> None:
    check_delivery(make_method(name, {}), script)


def expected(script: Script) -> list[tuple[int, ClientId, int]]:
    """What should be aggregated: (in which round, whose reply, to the order of which round), by the script alone."""
    found: list[tuple[int, ClientId, int]] = []
    busy: dict[ClientId, int] = {}
    for round in range(len(script) + 1):
        events = script[round] if round < len(script) else {}
        for client in CLIENTS:
            if busy.get(client, -1) >= round:
                continue  # its reply of an earlier round is on its way until the end of that one
            event = events.get(client, "ok")
            due = round + {"late": 1, "later": 2}.get(event, 0)
            if event in ("ok", "twice", "late", "later"):
                found.append((due, client, round))
                busy[client] = due if due > round else -1
    return sorted(reply for reply in found if reply[0] <= len(script))


class Log(Observed):
    """Also writes down in which round each reply was aggregated, and what the server was at each order."""

    def __init__(self, method: Method[Any, Any]) -> None:
        super().__init__(method)
        self.counted: list[tuple[int, ClientId, int]] = []
        self.servers: dict[tuple[ClientId, int], Any] = {}

    def send(self, server: Any, to: ClientId, context: ServerContext) -> Message:
        self.servers[to, context.round] = server
        return self._method.send(server, to, context)

    def aggregate(self, server: Any, arrivals: Sequence[Arrival], context: ServerContext) -> Any:
        self.counted += [(context.round, a.client, a.round) for a in arrivals]
        return super().aggregate(server, arrivals, context)

    def turns_of(self, client: ClientId) -> list[tuple[int, Any, Message, Fit[Any]]]:
        """The client's turns in order: the round, its state before, the downlink, and what it made of them."""
        return [(round, *turn) for (who, round, _), turn in self.turns.fits.items() if who == client]


@settings(few, max_examples=25)
@given(script=SCRIPTS)
def test_each_reply_counts_once_in_the_round_in_which_it_arrives(script: Script) -> None:
    log = Log(FedAvg())
    play(log, script)
    assert sorted(log.counted) == expected(script)


@few
@given(script=SCRIPTS)
def test_fedstc_clients_have_the_servers_weights_to_the_bit(script: Script) -> None:
    log = Log(FedSTC(sparsity=0.8, history=2))
    loop = play(log, script, personal=METHOD_ALONE)
    turns = [(client, *turn) for client in CLIENTS for turn in log.turns_of(client)]
    assert turns
    for client, round, _, _, fit in turns:
        assert np.array_equal(fit.state.weights, log.servers[client, round].weights)
    for outcome in loop.finish("personal", CLIENTS):
        assert isinstance(outcome.model, np.ndarray)
        assert np.array_equal(outcome.model, loop.server.weights)


@pytest.mark.parametrize(
    "method", [FedSpa(), SubFedAvg(rate=0.2, distance=0.0, accuracy=0.0)], ids=["fedspa", "sub-fedavg"]
)
@few
@given(script=SCRIPTS)
def test_both_sides_have_the_same_mask(method: FedSpa | SubFedAvg, script: Script) -> None:
    log = Log(method)
    task = play(log, script).setup.task
    for client in CLIENTS:
        first = method.first_mask(task, client)
        for round, state, _, _ in log.turns_of(client):
            assert np.array_equal(unpack(state.mask, len(first)), log.servers[client, round].mask(client, first))


def _pse(message: Message, layout: Layout) -> Vector:
    return message.sparse("update", layout.size).dense()


def _stc(message: Message, layout: Layout) -> Vector:
    return message.ternary("update").dense()


def _scr(message: Message, layout: Layout) -> Vector:
    return _update(message, layout).dense()


@pytest.mark.parametrize(
    ("method", "read"), [(FedPSE(), _pse), (FedSTC(), _stc), (FedSCR(), _scr)], ids=["fedpse", "fedstc", "fedscr"]
)
@few
@given(script=SCRIPTS)
def test_nothing_that_was_learnt_is_lost(
    method: Method[Any, Any], read: Callable[[Message, Layout], Vector], script: Script
) -> None:
    """What was aggregated of a client and what it still keeps make up all its updates."""
    log = Log(method)
    loop = play(log, script)
    layout = loop.setup.task.layout
    for client in CLIENTS:
        learnt, turns = np.zeros(layout.size), 0
        for _, _, down, fit in log.turns_of(client):
            start = down.vector("weights") if isinstance(method, FedSCR) else fit.state.weights
            assert isinstance(fit.model, np.ndarray)
            learnt += fit.model - start
            turns += 1
        merged = sum((read(a.message, layout) for a in log.turns.arrivals if a.client == client), np.zeros(layout.size))
        memory: ClientMemory = loop.engine.store.get(client)
        kept = memory.resolved(loop.delivery.stamp(client, (loop.done, 0))).residual
        assert turns
        assert np.allclose(merged + kept, learnt, atol=1e-5)


def test_two_orders_at_once_leave_one_open() -> None:
    delivery = Delivery()
    delivery.send("a", (0, 0))
    delivery.send("a", (1, 0))
    old, new = (PendingReply(1, "a", round, 0, np.zeros(1, np.uint8)) for round in (0, 1))
    assert [delivery.take_in(old), delivery.take_in(new), delivery.take_in(new)] == [False, True, False]
    assert [reply.order for reply in delivery.arrived(1)] == [(1, 0)]
    assert delivery.stamp("a", (2, 0)).acked is None, "it has arrived, and nobody has said that it counts"


def test_a_memory_knows_which_of_its_two_states_counts() -> None:
    memory = ClientMemory("old").after(Fit("arrived", Message(x=1), None, if_lost="lost"), Stamp(3, 1))
    for acked, state in (((3, 1), "arrived"), ((4, 0), "arrived"), ((3, 0), "lost"), (None, "lost")):
        assert memory.resolved(Stamp(5, acked=acked)) == state
    for repeated in (Stamp(3, 1), Stamp(3, 0), Stamp(0)):
        with pytest.raises(WireError, match="carried out before"):
            memory.refuse_repeats(repeated)
    memory.refuse_repeats(Stamp(3, 2))


def test_a_memory_that_holds_nothing_is_not_written_unless_it_replaces_one() -> None:
    setup = tiny_setup(FedAvg(), clients=2)
    fresh = ClientMemory.fresh(setup, "c0")
    after = fresh.after(Fit(fresh.state, Message(), None), Stamp(3))
    assert not after.worth_writing(fresh)
    something = ClientMemory(np.ones(2, np.float32))
    assert something.worth_writing(fresh)
    assert after.worth_writing(something)
    assert ClientMemory(None, if_lost=(None,)).worth_writing(fresh)
