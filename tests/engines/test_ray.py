"""The cluster: the same bits as in one process, on any number of nodes, whatever happens to them."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import ButOne, Half, Stateful, run
from ray_nodes import Nodes

from sparsona.engines.inprocess import InProcess
from sparsona.errors import InputError, SparsonaError
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.resources import Cluster, Resources
from sparsona.federation.rounds import Rounds
from sparsona.methods import METHODS
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.records import RunLog
from sparsona.testing import tiny_setup

pytest.importorskip("ray", reason="needs Ray: pip install 'sparsona[ray]', or make test-cluster")
pytestmark = pytest.mark.network


def engine(setup: Any, workers: int = 0) -> Any:
    from sparsona.engines.ray import RayEngine

    return RayEngine(setup, Resources(workers))


def same(found: Any, reference: Any) -> bool:
    return (found.server, found.clients, found.rounds) == (reference.server, reference.clients, reference.rounds)


@pytest.mark.parametrize("name", ["fedavg", "fedpse", "fedspa", "pfednet", "local"])
def test_methods_give_the_same_bits_on_three_nodes(nodes: Nodes, name: str) -> None:
    setup = tiny_setup(METHODS.get(name)(), clients=4, rounds=3)
    assert same(run(engine(setup), setup, ButOne()), run(InProcess(setup), setup, ButOne()))


def test_a_class_of_the_users_script_needs_no_module_on_the_nodes(nodes: Nodes) -> None:
    setup = tiny_setup(Stateful(), 3)
    found = engine(setup)
    hosts = {worker.host for worker in found.workers}
    assert len(found.workers) == 3
    assert hosts
    assert same(run(found, setup), run(InProcess(setup), setup))


def test_states_are_handed_over_where_nodes_do_not_share_files(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The mark is on this machine, so the nodes are told another place for it."""
    setup = tiny_setup(METHODS.get("fedpse")(), clients=4, rounds=3)
    ours = engine(setup)
    monkeypatch.setattr(ours, "_marked", lambda ticket: tmp_path / "not there")
    found = run(ours, setup, ButOne())
    assert same(found, run(InProcess(setup), setup, ButOne()))


def test_a_node_that_is_killed_in_a_round_changes_nothing(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    plain = tiny_setup(Stateful(), 6, rounds=4)
    reference = run(InProcess(plain), plain)
    setup = tiny_setup(Stateful("slow"), 6, rounds=4)
    ours = engine(setup)
    over = threading.Event()
    killed: list[Any] = []

    def kill() -> None:
        while not killed and not over.wait(0.01):
            if all(worker.starting is None and worker.groups for worker in ours.workers) and len(ours.workers) == 3:
                killed.append(nodes.kill_one())

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with caplog.at_level(logging.WARNING):
            found = run(ours, setup)
    finally:
        over.set()
        killer.join()
        if killed:
            nodes.add()
    assert len(killed) == 1
    assert "is lost in the turn of c" in caplog.text
    assert same(found, reference)


def test_a_node_that_joins_gets_a_worker(nodes: Nodes) -> None:
    setup = tiny_setup(Stateful(), 6, rounds=2)
    ours = engine(setup)
    assert len(ours.workers) == 3
    nodes.add()
    try:
        Rounds(setup, ours, Half(), Evaluation(every=0), RunLog(dict.fromkeys(setup.task.clients, 1), True)).run()
        assert len(ours.workers) == 4
    finally:
        ours.close()
        nodes.kill_one()


def test_a_run_that_was_stopped_goes_on_in_one_process(nodes: Nodes, tmp_path: Path) -> None:
    setup = tiny_setup(METHODS.get("fedpse")(), 3, rounds=4)
    reference = run(InProcess(setup), setup)
    short = replace(setup, task=replace(setup.task, rounds=2))

    def loop(setup: Any, made: Any) -> Rounds:
        sizes = {name: len(share.test) for name, share in setup.federation.splits.items()}
        return Rounds(setup, made, Half(), Evaluation(), RunLog(sizes, True), Checkpointer(tmp_path))

    ours = engine(short)
    loop(short, ours).run()
    ours.close()
    assert [path.name for path in (tmp_path / "clients").iterdir() if path.name.startswith(".")] == []
    again = loop(setup, InProcess(setup))
    again.resume()
    assert again.done == 2
    again.run()
    assert again.engine.store.digests(setup.task.clients) == reference.clients


def test_an_error_in_a_turn_is_raised_here(nodes: Nodes) -> None:
    setup = tiny_setup(Stateful("input"), 2)
    with pytest.raises(InputError, match="this is not possible"):
        run(engine(setup), setup)


def test_a_turn_that_kills_every_worker_is_given_up(nodes: Nodes) -> None:
    setup = tiny_setup(Stateful("die"), 2)
    began = time.monotonic()
    with pytest.raises(SparsonaError, match=r"in the turn of c1: .*--engine inprocess") as caught:
        run(engine(setup), setup)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 120


def test_a_gpu_must_be_there_and_be_shared_out(nodes: Nodes) -> None:
    from sparsona.engines.ray import RayEngine

    setup = tiny_setup(Stateful(), 2)
    with pytest.raises(InputError, match="--gpus-per-worker"):
        RayEngine(replace(setup, device="cuda"))
    with pytest.raises(InputError, match=r"no node with a core and 0\.5 GPU"):
        RayEngine(setup, Resources(cluster=Cluster(gpus_per_worker=0.5)))
