"""Sweeps: which runs there are, and that every one is made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparsona.errors import InputError, RunError
from sparsona.report.progress import Bar
from sparsona.studies.declared import declare
from sparsona.studies.sweep import Sweep, parse_over, run_sweep, swept_runs

BASE = {"method": "fedavg", "clients": 3, "rounds": 2, "engine": "inprocess"}


def test_every_combination_in_its_order() -> None:
    sweep = Sweep(BASE, parse_over(["seed=0:2", "method=fedprox,fedpse"]), ("lr=0.05",))
    points = list(sweep.points())
    assert [p.name for p in points] == ["seed0-fedprox", "seed0-fedpse", "seed1-fedprox", "seed1-fedpse"]
    assert points[2].settings == {**BASE, "method": "fedprox", "seed": 1, "training": {"lr": 0.05}}
    assert points[2].chosen == {"seed": "1", "method": "fedprox"}


def test_the_method_comes_first_since_a_key_may_be_its_option() -> None:
    (point,) = Sweep(BASE, parse_over(["mu=0.5", "method=fedprox"])).points()
    assert point.settings["options"] == {"mu": 0.5}
    with pytest.raises(InputError, match="fedavg: --set: nothing is called 'mu'"):
        list(Sweep(BASE, parse_over(["mu=0.5"])).points())


def test_values_with_the_same_letters_have_folders_of_their_own() -> None:
    points = list(Sweep(BASE, {"partition": ("classes:6", "classes-6")}).points())
    assert len({point.name for point in points}) == 2


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["seed"], "--over takes KEY=A,B"),
        (["seed=1,,2"], "--over takes KEY=A,B"),
        (["seed=1", "seed=2"], "seed is given twice"),
        (["seed=3:3"], "no number"),
        (["seed=0:1000000000000"], "makes 1,000,000,000,000 runs, at most 10,000"),
    ],
)
def test_bad_values_are_named(texts: list[str], line: str) -> None:
    with pytest.raises(InputError, match=line):
        parse_over(texts)


def test_more_combinations_than_anybody_plans_are_refused(tmp_path: Path) -> None:
    sweep = Sweep(BASE, parse_over(["seed=0:200", "lr=" + ",".join(f"0.{n}" for n in range(1, 102))]))
    with pytest.raises(InputError, match="makes 20,200 runs, at most 10,000"):
        run_sweep(sweep, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_folder_is_declared_once_and_grows(tmp_path: Path) -> None:
    first = Sweep(BASE, parse_over(["seed=0:2"]))
    assert declare(tmp_path / "s", first, False) == first
    assert not (tmp_path / "s").exists(), "it is taken when the runs have been checked"
    assert run_sweep(first, tmp_path / "s") == {}
    with pytest.raises(RunError, match="add --resume"):
        declare(tmp_path / "s", first, False)
    more = declare(tmp_path / "s", Sweep({"workers": 1}, parse_over(["seed=4"])), True)
    assert more == Sweep({**BASE, "workers": 1}, {"seed": ("0", "1", "4")})
    assert run_sweep(more, tmp_path / "s") == {}
    assert declare(tmp_path / "s", Sweep({}, {}), True) == more
    with pytest.raises(InputError, match="not over method"):
        declare(tmp_path / "s", Sweep({}, parse_over(["method=local"])), True)
    with pytest.raises(RunError, match="not the folder of a sweep"):
        Sweep.read(tmp_path / "nowhere")


def test_runs_are_made_once_and_failures_do_not_stop_the_others(tmp_path: Path) -> None:
    sweep = Sweep(BASE, parse_over(["lr=0.1,1e30", "seed=0:2"]))
    ended: list[tuple[str, bool]] = []

    class Told(Bar):
        def say(self, line: str) -> None:
            _, name, *problem = line.split()
            ended.append((name.rstrip(":"), bool(problem)))

    failed = run_sweep(sweep, tmp_path, Told("", 4, False))
    assert sorted(failed) == ["lr1e30-seed0", "lr1e30-seed1"]
    assert sorted(ended) == [
        ("lr0.1-seed0", False),
        ("lr0.1-seed1", False),
        ("lr1e30-seed0", True),
        ("lr1e30-seed1", True),
    ]
    runs = swept_runs(sweep, tmp_path)
    assert [run.summary["seed"] for run in runs] == [0, 1]
    before = (tmp_path / "lr0.1-seed0" / "summary.json").stat().st_mtime_ns
    assert sorted(run_sweep(sweep, tmp_path)) == sorted(failed)
    assert (tmp_path / "lr0.1-seed0" / "summary.json").stat().st_mtime_ns == before


def test_what_cannot_be_run_is_named_before_anything_is(tmp_path: Path) -> None:
    sweep = Sweep(BASE, parse_over(["method=fedavg,fedprox", "partition=iid,unheard"]))
    with pytest.raises(InputError, match="unheard"):
        run_sweep(sweep, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_rate_that_each_run_chooses_is_swept_like_a_number(tmp_path: Path) -> None:
    sweep = declare(tmp_path / "s", Sweep(BASE, parse_over(["lr=0.1,auto"])), False)
    for _ in range(2):  # the second time the runs are there
        assert run_sweep(sweep, tmp_path / "s") == {}
    assert ["rate" in run.summary for run in swept_runs(sweep, tmp_path / "s")] == [False, True]


@pytest.mark.parametrize("finished", [True, False])
def test_runs_with_other_settings_are_no_runs_of_the_sweep(finished: bool, tmp_path: Path) -> None:
    """They would be shown under settings that they never had. What is refused changes nothing."""
    folder = tmp_path / "s"
    sweep = declare(folder, Sweep(BASE, parse_over(["seed=0:2"])), False)
    assert run_sweep(sweep, folder) == {}
    if not finished:
        (folder / "seed1" / "summary.json").unlink()
    before = (folder / "sweep.json").read_bytes()
    for given in (Sweep({"training": {"lr": 5.0}}, {}), Sweep({}, {}, ("lr=5",)), Sweep({"rounds": 1}, {})):
        with pytest.raises(RunError, match=r"training\.lr differs|holds a run of 2 rounds"):
            declare(folder, given, True)
        assert (folder / "sweep.json").read_bytes() == before
    longer = declare(folder, Sweep({"rounds": 3}, parse_over(["seed=2"])), True)
    assert run_sweep(longer, folder) == {}
    assert [run.summary["rounds"] for run in swept_runs(longer, folder)] == [3, 3, 3], "longer runs are the same work"
