"""The pool: the same bits as in one process, whatever happens to the workers."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_helpers import ButOne, Half, Stateful, alive, run
from torch import nn

from sparsona.engines import pool
from sparsona.engines.inprocess import InProcess
from sparsona.engines.pool import Pool, WorkerPool
from sparsona.engines.pool.loop import Request, SharedBlock, WorkerLoop, mapped, share_setup
from sparsona.engines.shipping import SplitTable, picklable
from sparsona.engines.turns import JobGroup
from sparsona.errors import Diverged, InputError, SparsonaError, WireError
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.worker import Job, Outcome
from sparsona.methods import METHODS
from sparsona.methods.fedavg import FedAvg
from sparsona.system import cores
from sparsona.testing import tiny_setup
from sparsona.training.config import TrainConfig
from sparsona.wire import EncodeCache


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    """Processes take seconds to start: the tests here share them."""
    with WorkerPool(3) as started:
        yield started


def test_every_method_gives_the_same_bits_with_any_number_of_workers(workers: WorkerPool) -> None:
    for name, kind in METHODS:
        setup = tiny_setup(kind(), clients=3, rounds=3)
        reference = run(InProcess(setup), setup, ButOne())  # two turns each: the second starts from what was kept
        for number in (1, 2, 3):
            found = run(Pool(setup, number, workers), setup, ButOne())
            assert found.server == reference.server, f"{name}: the server, {number} workers"
            assert found.clients == reference.clients, f"{name}: the clients, {number} workers"
            assert found.rounds == reference.rounds, f"{name}: bytes and scores, {number} workers"


def test_a_run_without_a_folder_writes_no_file(workers: WorkerPool) -> None:
    held = {}
    for name in ("spfl", "fedpse"):
        setup = tiny_setup(METHODS.get(name)(), clients=3, rounds=3)
        engine = Pool(setup, 2, workers)
        assemble(setup, engine, evaluation=LAST_ROUND).run()
        held[name] = engine.references.files.held[0], engine.store.files.held[0]
        assert engine.references.files.scratch is engine.store.files.scratch is None
        engine.close()
    assert held["spfl"][0], "references are in memory"
    assert held["fedpse"][1] == 3, "and so are states"


def test_states_and_references_that_were_evicted_are_read_again(workers: WorkerPool) -> None:
    for name in ("spfl", "fedpse"):
        setup = tiny_setup(METHODS.get(name)(), clients=3, rounds=4)
        reference = run(InProcess(setup), setup, ButOne())
        engine = Pool(setup, 2, workers)
        engine.store.files.limit = engine.references.files.limit = 1
        found = run(engine, setup, ButOne())
        assert (found.server, found.clients, found.rounds) == (reference.server, reference.clients, reference.rounds)


def test_a_worker_forgets_what_a_request_brought() -> None:
    """The server alone knows what is needed again: the memory of a worker does not grow with the clients."""
    setup = tiny_setup(METHODS.get("spfl")(), clients=3, rounds=3)
    shared, block = share_setup(setup)
    loop = WorkerLoop()
    assert loop.configure(shared, os.dup(block.handle)) is None
    assert loop._worker is not None
    held = loop._worker.references
    engine = InProcess(setup)
    seen: list[int] = []

    def turns(jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            references = tuple(map(engine.references.held, JobGroup((job,)).references))
            response = loop.work(Request((job,), (engine.store.find(job.client),), references, ()))
            seen.append(len(references))
            assert held.files.held == (0, 0)
            if response.kept[0] is not None:
                engine.store.put(job.client, response.kept[0])
            yield response.outcomes[0]

    setattr(engine, "run", turns)  # noqa: B010 (the engine's loop, with a worker's)
    assemble(setup, engine, evaluation=LAST_ROUND).run()
    assert any(seen)
    assert held.files.scratch is None
    engine.close()
    block.close()


def test_a_worker_that_is_killed_is_replaced_and_nothing_else_changes(
    workers: WorkerPool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reference = run(InProcess(tiny_setup(Stateful(), 4)), tiny_setup(Stateful(), 4))
    setup = tiny_setup(Stateful("die once", str(tmp_path / "died")), 4)
    with caplog.at_level(logging.WARNING):
        found = run(Pool(setup, 2, workers), setup)
    assert "died (signal 9) in the turn of c1" in caplog.text
    assert (found.server, found.clients, found.rounds) == (reference.server, reference.clients, reference.rounds)


def test_kill_9_from_outside_while_all_work(workers: WorkerPool, caplog: pytest.LogCaptureFixture) -> None:
    plain = tiny_setup(Stateful(), 4, rounds=4)
    reference = run(InProcess(plain), plain)
    setup = tiny_setup(Stateful("slow"), 4, rounds=4)
    engine = Pool(setup, 2, workers)
    killed: list[int] = []
    over = threading.Event()

    def at_work() -> list[int]:
        ready = [process for process in list(workers.processes) if not process.configuring]
        return [p.pid for p in ready if any(job.kind == "fit" for group in list(p.groups) for job in group.jobs)]

    def kill_both() -> None:
        while not killed and not over.wait(0.005):
            busy = at_work()
            if len(busy) == 2:
                over.wait(0.05)  # into their turns, which take longer
                for pid in busy:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    killer = threading.Thread(target=kill_both)
    killer.start()
    try:
        with caplog.at_level(logging.WARNING):
            found = run(engine, setup)
    finally:
        over.set()
        killer.join()
    assert len(killed) == 2
    assert caplog.text.count("died (signal 9) in the turn of c") == 2
    assert (found.server, found.clients, found.rounds) == (reference.server, reference.clients, reference.rounds)


def test_a_turn_that_kills_every_worker_is_given_up(workers: WorkerPool) -> None:
    setup = tiny_setup(Stateful("die"), 4)
    with pytest.raises(SparsonaError, match=r"died \(exit code 3\) in the turn of c1: .*--engine inprocess") as caught:
        run(Pool(setup, 2, workers), setup)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("trouble", "kind", "line"),
    [
        ("input", InputError, "this is not possible"),
        ("wire", WireError, "these are no bytes of ours"),
        ("crash", ZeroDivisionError, "by nought"),
        ("odd", RuntimeError, "Odd: 1 and 2"),
    ],
)
def test_an_error_in_a_worker_is_raised_here(
    workers: WorkerPool, trouble: str, kind: type[Exception], line: str
) -> None:
    setup = tiny_setup(Stateful(trouble), 2)
    with pytest.raises(kind) as caught:
        run(Pool(setup, 1, workers), setup)
    assert type(caught.value) is kind
    assert str(caught.value) == line
    notes = getattr(caught.value, "__notes__", [])
    assert bool(notes) == (not issubclass(kind, SparsonaError)), "a trace where the error is not one of ours"


def test_divergence_reads_as_in_one_process(workers: WorkerPool) -> None:
    setup = replace(tiny_setup(FedAvg(), 1), config=TrainConfig(lr=1e30, epochs=4))
    lines = []
    for engine in (InProcess(setup), Pool(setup, 1, workers)):
        with pytest.raises(Diverged) as caught:
            run(engine, setup)
        lines.append(str(caught.value))
    assert lines[0] == lines[1]


def test_a_module_that_fails_in_the_worker_keeps_its_error(workers: WorkerPool) -> None:
    setup = tiny_setup(FedAvg(), 2)
    wrong = replace(setup, module=nn.Sequential(nn.Flatten(), nn.Linear(7, 4)))
    with pytest.raises((RuntimeError, InputError), match=r"shapes cannot be multiplied|does not fit a model"):
        run(Pool(wrong, 1, workers), wrong)


def test_what_cannot_be_pickled_is_named_with_the_way_out() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(36, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(x.flatten(1))
            return out

    setup = replace(tiny_setup(FedAvg()), module=Hidden())
    assert not picklable(setup)
    with pytest.raises(InputError, match=r"cannot be sent to worker processes .*--engine inprocess") as caught:
        Pool(setup, 1)
    assert "\n" not in str(caught.value)


def test_the_samples_are_not_in_what_is_sent() -> None:
    setup = tiny_setup(FedAvg(), 3)
    wide = nn.Sequential(nn.Flatten(), *(nn.Linear(36, 36) for _ in range(20)), nn.Linear(36, 4))
    InProcess(replace(setup, module=wide))  # makes its weights views of one buffer
    shared, block = share_setup(replace(setup, module=wide))
    try:
        weights = sum(p.numel() for p in wide.parameters()) * 4
        inputs, _, indices, bounds, payload = mapped(os.dup(block.handle), shared.places)
        assert len(payload) < 2 * weights, "every weight once, although all share one buffer"
        assert np.array_equal(inputs, setup.federation.data.inputs)
        shares = SplitTable(tuple(setup.federation.splits), bounds, indices)
        for name, share in setup.federation.splits.items():
            for part in ("train", "validation", "test"):
                assert np.array_equal(getattr(shares[name], part), getattr(share, part))
        assert list(shares) == list(setup.federation.splits)
        assert len(shares) == 3
    finally:
        block.close()


def test_writing_to_shared_samples_changes_nobody_elses() -> None:
    block = SharedBlock((np.arange(5), np.zeros(0, np.float32)))
    one, two = (mapped(os.dup(block.handle), block.places)[0] for _ in range(2))
    one[0] = 99
    assert two[0] == 0
    block.close()


def test_jobs_are_made_when_a_worker_is_free(workers: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downlinks of thousands of clients must not stand in memory together."""
    setup = tiny_setup(FedAvg(), 6, rounds=1)
    made, ahead = 0, []
    monkeypatch.setattr(pool, "MOST", 1)
    engine = Pool(setup, 2, workers)
    loop = assemble(setup, engine, Half())
    jobs = list(loop.setup.task.clients) * 5

    def lazily() -> Iterator[object]:
        nonlocal made
        for client in jobs:
            made += 1
            yield from loop._jobs("personal", (0, 0), [client], EncodeCache())

    for number, _ in enumerate(engine.run(lazily())):  # type: ignore[arg-type]
        ahead.append(made - number)
    engine.close()
    assert len(ahead) == 30
    assert max(ahead) <= 8


def thirty(pool: Pool) -> Iterator[Outcome]:
    """The outcomes of five evaluations of six clients, as they come."""
    setup = pool.setup
    loop = assemble(setup, pool, Half())
    return pool.run(loop._jobs("personal", (0, 0), setup.task.clients * 5, EncodeCache()))


def test_who_leaves_jobs_unfinished_does_not_disturb_who_comes_next(workers: WorkerPool) -> None:
    setup = tiny_setup(Stateful(), 6)
    one = Pool(setup, 2, workers)
    left = thirty(one)
    next(left)
    one.close()
    two = Pool(setup, 2, workers)
    again = thirty(two)
    got = [next(again)]
    assert isinstance(left, Generator)
    left.close()  # what the garbage collector does, whenever it likes
    pids = [process.pid for process in workers.processes]
    assert [process.pid for process in two.processes if process.groups], "there is work to be disturbed"
    got += again
    assert Counter(o.client for o in got) == dict.fromkeys(setup.task.clients, 5)
    assert [process.pid for process in workers.processes] == pids
    with pytest.raises(SparsonaError, match="make a new pool"):
        next(thirty(one))
    two.close()


def test_jobs_that_were_given_up_for_others_are_not_passed_over_in_silence(workers: WorkerPool) -> None:
    setup = tiny_setup(Stateful(), 6)
    pool = Pool(setup, 2, workers)
    first, second = thirty(pool), thirty(pool)
    next(first)
    assert len(list(second)) == 30
    with pytest.raises(SparsonaError, match="before these were done"):
        list(first)
    assert len(list(thirty(pool))) == 30
    pool.close()


def test_a_set_up_that_failed_is_not_the_next_ones_failure(workers: WorkerPool) -> None:
    setup = tiny_setup(FedAvg(), 2)
    Pool(replace(setup, module=Unfit(), trainer="fused"), 1, workers).close()
    assert run(Pool(setup, 1, workers), setup).clients == run(InProcess(setup), setup).clients


class Unfit(nn.Module):
    """A module that cannot be taken out of its bytes."""

    def __setstate__(self, state: object) -> None:
        raise ZeroDivisionError


def test_the_longest_turns_come_first() -> None:
    setup = tiny_setup(FedAvg(), 4)
    shares = setup.federation.splits
    loop = assemble(setup, InProcess(setup), Half())
    sizes = [len(shares[client].train) for client in loop._longest_first(setup.task.clients)]
    assert sizes == sorted(sizes, reverse=True)


def test_states_are_written_into_the_run_directory_and_a_stopped_run_goes_on(
    workers: WorkerPool, tmp_path: Path
) -> None:
    setup = tiny_setup(Stateful(), 4, rounds=4)
    reference = run(InProcess(setup), setup)

    def loop(engine: InProcess | Pool) -> Rounds:
        return assemble(setup, engine, Half(), checkpoint=tmp_path)

    first = loop(Pool(setup, 2, workers))
    with pytest.raises(KeyboardInterrupt):
        first.run(lambda report: (_ for _ in ()).throw(KeyboardInterrupt) if report.round == 2 else None)
    first.engine.close()
    assert sorted(path.name for path in (tmp_path / "clients").iterdir()) == ["c0.1", "c1.1", "c2.1", "c3.1"]
    (tmp_path / "clients" / "c0.2").write_bytes(b"left by a crash")
    second = loop(InProcess(setup))
    second.resume()
    assert second.done == 2
    second.run()
    assert second.engine.store.digests(setup.task.clients) == reference.clients


def test_no_more_workers_than_cores_or_clients() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
    setup = tiny_setup(FedAvg(), 1)
    engine = Pool(setup, 8)
    pids = [process.pid for process in engine.processes]
    engine.close()
    assert len(pids) == 1
    assert not any(alive(pid) for pid in pids)


SCRIPT = """
import sys, time
sys.path.insert(0, {here!r})
from engine_helpers import Stateful
from sparsona.engines.pool import Pool
from sparsona.federation.rounds import assemble
from sparsona.federation.evaluation import LAST_ROUND
from engine_helpers import Half
from sparsona.testing import tiny_setup

if __name__ == "__main__":
    setup = tiny_setup(Stateful(), 4, rounds=100000)
    engine = Pool(setup, 2)
    engine.store.files.limit = 1
    loop = assemble(setup, engine, Half(), LAST_ROUND)
    def told(report):
        if report.round == 2:
            print(engine.store.files.scratch, *(process.pid for process in engine.processes), flush=True)
    loop.run(told)
"""


def test_nothing_is_left_when_the_server_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(SCRIPT.format(here=str(Path(__file__).parent)))
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    scratch, *pids = process.stdout.readline().split()
    assert Path(scratch).is_dir()
    assert all(alive(int(pid)) for pid in pids)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (any(alive(int(pid)) for pid in pids) or Path(scratch).exists()):
        time.sleep(0.05)
    assert not any(alive(int(pid)) for pid in pids)
    assert not Path(scratch).exists()


UNGUARDED = """
import numpy as np, sparsona, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)
    def forward(self, x):
        return self.layer(x)

torch.manual_seed(0)
rng = np.random.default_rng(0)
data = {{w: (rng.normal(size=(40, 5)).astype("float32"), rng.integers(0, 2, 40)) for w in ("east", "west")}}
print(sparsona.run("fedavg", data=data, model=Net(), rounds=1, engine={engine!r}, workers=2).summary["digest"])
"""


def test_a_script_with_a_module_of_its_own_needs_a_guard_for_the_pool_only(tmp_path: Path) -> None:
    def finished(text: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(text)
        return subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    told = finished(UNGUARDED.format(engine="pool"))
    assert told.returncode == 1
    assert "put the run under `if __name__ == '__main__':`" in told.stderr.splitlines()[-1]
    by_default = finished(UNGUARDED.format(engine="auto"))
    assert by_default.returncode == 0, by_default.stderr
    head, last = UNGUARDED.format(engine="pool").rsplit("\nprint", 1)
    guarded = finished(f"{head}\nif __name__ == '__main__':\n    print{last}")
    assert guarded.returncode == 0, guarded.stderr
    assert guarded.stdout == by_default.stdout


DYING = """
import os, sys, time
from pathlib import Path
from sparsona.engines.pool import WorkerProcess
sys.path.insert(0, sys.argv[1])
worker = WorkerProcess()
print(worker.pid, flush=True)
began = Path(sys.argv[1]) / "began"
while sys.argv[2] == "importing" and not began.exists():
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""
SLOW = """
import ctypes, pathlib
pathlib.Path(__file__).with_name("began").touch()
ctypes.PyDLL(None).sleep(60)
"""


@pytest.mark.parametrize("moment", ["starting", "importing"])
def test_a_worker_that_still_imports_ends_within_a_second_of_its_server(tmp_path: Path, moment: str) -> None:
    """The import takes a minute here, and no other thread can run meanwhile."""
    (tmp_path / "torch.py").write_text(SLOW)
    words = [sys.executable, "-c", DYING, str(tmp_path), moment]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    pid = int(server.stdout.readline())  # not to the end of the output, which the worker holds open
    assert server.wait() == -signal.SIGKILL
    deadline = time.monotonic() + (1 if moment == "importing" else 10)  # the interpreter itself takes a while to start
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    ended = not alive(pid)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    assert ended
