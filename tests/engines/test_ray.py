"""The cluster: the same bits as in one process, on any number of nodes, whatever happens to them."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import ButOne, Half, Stateful, run
from metric_helpers import check_scores, settings
from ray_nodes import Nodes

from sparsona.api import execute
from sparsona.chance import Chance
from sparsona.engines.inprocess import InProcess
from sparsona.errors import InputError, SparsonaError
from sparsona.federation.resources import Cluster, Resources
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import Plan
from sparsona.method import ClientId
from sparsona.methods import METHODS
from sparsona.prepare import prepare
from sparsona.runs.directory import RunDirectory
from sparsona.testing import tiny_setup

pytest.importorskip("ray", reason="needs Ray: pip install 'sparsona[ray]', or make test-cluster")
pytestmark = pytest.mark.network


def engine(setup: Any, workers: int = 0) -> Any:
    from sparsona.engines.ray import RayEngine

    return RayEngine(setup, Resources(workers))


def same(found: Any, reference: Any) -> bool:
    return (found.server, found.clients, found.rounds) == (reference.server, reference.clients, reference.rounds)


@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_scores_are_scikit_learns(task: str, nodes: Nodes, tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    prepared = prepare({**settings(tmp_path, task), "engine": "ray", "workers": 2})
    out, federation = tmp_path / "run", prepared.setup.federation
    execute(prepared, RunDirectory(out))
    check_scores(out, dict.fromkeys(federation.clients, out), federation, task, tmp_path / "tables")


def test_states_are_handed_over(nodes: Nodes) -> None:
    """Nodes share no files. What is compiled is compiled here first, and once."""
    setup = tiny_setup(METHODS.get("fedpse")(), clients=4, rounds=3)
    reference = run(InProcess(setup), setup, ButOne())
    assert same(run(engine(setup, workers=2), setup, ButOne()), reference)


def test_a_node_that_is_killed_in_a_round_changes_nothing_and_one_that_joins_gets_a_worker(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Turns are held until all three workers have one and a node is gone, however slowly the workers start. The method
    is a class of this script, of which the nodes have no module."""
    plain = tiny_setup(Stateful(), 6, rounds=3)
    reference = run(InProcess(plain), plain)
    flag = tmp_path / "killed"
    setup = tiny_setup(Stateful("held", str(flag)), 6, rounds=3)
    ours = engine(setup)
    assert len(ours.workers) == 3
    over, counted = threading.Event(), list[int]()

    def kill() -> None:
        while not over.wait(0.01):
            if all(worker.starting is None and worker.groups for worker in ours.workers):
                try:
                    nodes.kill_one()
                finally:
                    flag.touch()
                return

    class HalfWithANewNode:
        def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
            counted.append(len(ours.workers))
            if round == 1:
                nodes.add()
            return Half().plan(round, idle, chance)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with caplog.at_level(logging.WARNING):
            found = run(ours, setup, HalfWithANewNode())
    finally:
        over.set()
        killer.join()
    assert re.search(r"a worker on .* died \(.*\) in the turn of c", caplog.text)
    assert counted == [3, 2, 3]
    assert same(found, reference)


def test_a_run_that_was_stopped_goes_on_in_one_process(nodes: Nodes, tmp_path: Path) -> None:
    setup = tiny_setup(METHODS.get("fedpse")(), 3, rounds=4)
    reference = run(InProcess(setup), setup)
    short = replace(setup, task=replace(setup.task, rounds=2))

    def loop(setup: Any, made: Any) -> Rounds:
        return assemble(setup, made, Half(), checkpoint=tmp_path)

    ours = engine(short, workers=1)
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
        run(engine(setup, workers=1), setup)


def test_a_turn_that_kills_every_worker_is_given_up(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsona.engines.ray.MAX_DEATHS", 2)
    setup = tiny_setup(Stateful("die"), 2)
    with pytest.raises(SparsonaError, match=r"in the turn of c1: .*--engine inprocess") as caught:
        run(engine(setup, workers=1), setup)
    assert "\n" not in str(caught.value)


def test_a_gpu_must_be_there_and_be_shared_out(nodes: Nodes) -> None:
    from sparsona.engines.ray import RayEngine

    setup = tiny_setup(Stateful(), 2)
    with pytest.raises(InputError, match="--gpus-per-worker"):
        RayEngine(replace(setup, device="cuda"))
    with pytest.raises(InputError, match=r"no node with a core and 0\.5 GPU"):
        RayEngine(setup, Resources(cluster=Cluster(gpus_per_worker=0.5)))
