"""Many runs: the same numbers here, side by side, and after a process has died."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparsona.errors import InputError, RunError, SparsonaError
from sparsona.many import Loader, Planned, RunEnded, RunPlace, RunPlan, StopCondition, Watcher, advance, run_many
from sparsona.many.processes import Processes, Sequential
from sparsona.runs.budget import Budget
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import RoundReport

SMALL = {"method": "fedavg", "clients": 3, "rounds": 3, "engine": "inprocess"}


def planned(folder: Path, **more: Any) -> Planned:
    return Planned(folder.name, lambda: RunPlan(folder, {**SMALL, **more}))


class Told:
    """All that a watcher is told, in its order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []
        self.watcher = Watcher(
            lambda name: self.events.append((name, "started")),
            lambda name, report: self.events.append((name, report.round)),
            lambda ended: self.events.append((ended.name, ended.error or "ended")),
        )

    def of(self, name: str) -> list[object]:
        return [what for who, what in self.events if who == name]


def digest(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["digest"])


class Instant(RunPlace):
    """A place in which runs end in the order that is asked for."""

    def __init__(self, size: int, end: Callable[[list[str]], str]) -> None:
        super().__init__(size)
        self.end = end
        self.started: list[str] = []

    def start(self, name: str, plan: RunPlan) -> None:
        self.at_work[name] = plan
        self.started.append(name)

    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        name = self.end(list(self.at_work))
        del self.at_work[name]
        return [RunEnded(name)]

    def close(self) -> None:
        self.at_work.clear()


def test_a_run_waits_for_what_it_needs_and_others_go_first() -> None:
    plan = RunPlan(Path("x"), SMALL)
    needs = {"a": (), "b": ("a", "d"), "c": (), "d": ()}
    place = Instant(2, lambda running: running[-1])
    run_many([Planned(n, lambda: plan, frozenset(needs[n])) for n in needs], place, Watcher())
    assert place.started == ["a", "c", "d", "b"]


def test_a_run_that_is_not_wanted_any_more_is_left_out_and_missing_needs_are_a_mistake() -> None:
    place = Instant(1, lambda running: running[0])
    run_many(
        [Planned("a", lambda: None), Planned("b", lambda: RunPlan(Path("x"), SMALL), frozenset("a"))], place, Watcher()
    )
    assert place.started == ["b"]
    with pytest.raises(AssertionError, match="b needs runs that are not planned"):
        run_many([Planned("b", lambda: None, frozenset({"z"}))], place, Watcher())


def test_side_by_side_gives_the_same_digests_as_one_by_one(tmp_path: Path) -> None:
    seeds = (0, 1, 2)
    one, several = Told(), Told()
    run_many([planned(tmp_path / f"here{seed}", seed=seed) for seed in seeds], Sequential(), one.watcher)
    with closing(Processes(2)) as place:
        run_many([planned(tmp_path / f"side{seed}", seed=seed) for seed in seeds], place, several.watcher)
    assert [digest(tmp_path / f"here{s}") for s in seeds] == [digest(tmp_path / f"side{s}") for s in seeds]
    assert one.of("here1") == several.of("side1") == ["started", 1, 2, 3, "ended"]
    assert [who for who, what in several.events if what == "started"] == ["side0", "side1", "side2"]
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    run_many([planned(tmp_path / "here0", seed=0)], Sequential(), one.watcher)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before, "a finished run is left alone"


def test_a_process_that_dies_is_replaced_and_its_run_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_many([planned(tmp_path / "whole")], Sequential(), Watcher())
    plan = RunPlan(tmp_path / "broken", SMALL, after_round=partial(die_once, tmp_path / "died"))
    told = Told()
    with closing(Processes(1)) as place:
        run_many([Planned("broken", lambda: plan)], place, told.watcher)
    assert "the process of broken died (signal 9)" in caplog.text
    assert told.of("broken") == ["started", 1, 3, "ended"], "the second round was done before it could be told"
    assert digest(tmp_path / "broken") == digest(tmp_path / "whole")


def die_once(flag: Path, run: RunDirectory, report: RoundReport) -> None:
    if report.round == 2 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def die(run: RunDirectory, report: RoundReport) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_errors_end_a_run_and_not_the_others(tmp_path: Path) -> None:
    places: tuple[Sequential | Processes, ...] = (Sequential(), Processes(2))
    for number, place in enumerate(places):
        told = Told()
        wrong: dict[str, dict[str, Any]] = {
            "bad": {"method": "nothing"},
            "far": {"training": {"lr": 1e30}, "rounds": 9},
            "good": {},
        }
        with closing(place):
            run_many(
                [planned(tmp_path / f"{name}{number}", **more) for name, more in wrong.items()], place, told.watcher
            )
        bad, far, good = (told.of(f"{name}{number}")[-1] for name in wrong)
        assert isinstance(bad, InputError)
        assert "unknown method 'nothing'" in str(bad)
        assert isinstance(far, SparsonaError)
        assert good == "ended"


def test_a_run_that_kills_every_process_is_given_up(tmp_path: Path) -> None:
    told = Told()
    plan = RunPlan(tmp_path / "x", {**SMALL, "rounds": 30}, after_round=die)
    with closing(Processes(1)) as place:
        run_many([Planned("x", lambda: plan)], place, told.watcher)
    assert "3 processes died (signal 9)" in str(told.of("x")[-1])


def test_a_run_is_taken_as_far_as_it_shall_go(tmp_path: Path) -> None:
    loader = Loader()
    advance(RunPlan(tmp_path / "a", SMALL, until=StopCondition(rounds=2)), loader)
    assert not (tmp_path / "a" / "summary.json").exists()
    rounds: list[int] = []
    advance(
        RunPlan(tmp_path / "a", SMALL, until=StopCondition(budget=Budget(mb=0.001))),
        loader,
        lambda r: rounds.append(r.round),
    )
    assert rounds == [], "its budget was spent before"
    advance(RunPlan(tmp_path / "a", SMALL), loader, lambda report: rounds.append(report.round))
    assert rounds == [3]
    with pytest.raises(RunError, match="clients differs"):
        advance(RunPlan(tmp_path / "a", {**SMALL, "clients": 4, "rounds": 4}), loader)
    with pytest.raises(RunError, match="seed differs"):
        advance(RunPlan(tmp_path / "a", {**SMALL, "seed": 7}), loader)
    with pytest.raises(RunError, match="3 rounds, 2 are asked for"):
        advance(RunPlan(tmp_path / "a", {**SMALL, "rounds": 2}), loader)
    advance(RunPlan(tmp_path / "b", SMALL, until=StopCondition(rounds=1)), loader)
    with pytest.raises(RunError, match="seed differs"):
        advance(RunPlan(tmp_path / "b", {**SMALL, "seed": 7}, until=StopCondition(rounds=1)), loader)


def test_data_are_loaded_once_for_runs_that_name_the_same(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("x,label\n" + "".join(f"{n * n % 17},{n % 2}\n" for n in range(90)))
    loader = Loader()
    first = loader.prepare(SMALL, "a test").loaded
    assert loader.prepare({**SMALL, "method": "local", "seed": 4}, "a test").loaded is first
    own = {**SMALL, "data": f"csv:{tmp_path / 'own.csv'}", "partition": "iid"}
    assert loader.prepare(own, "a test").loaded is not first
