"""The preregistered study: its statistics, its plan, and the whole way of a tiny one."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparsona.experiment import build
from sparsona_papers import fedthin
from sparsona_papers._paper import Kept
from sparsona_papers._results import Results, results_file
from sparsona_papers.fedthin import plan, ready
from sparsona_papers.fedthin.analysis import Curve, area, bootstrap, bytes_to, not_inferior
from sparsona_papers.fedthin.cells import CELLS, READING, correct_of, curve_of, read_cells, work
from sparsona_papers.fedthin.plan import ROWS, SMALL, WHOLE, Cell, chosen, longest, trials, tuning
from sparsona_papers.fedthin.tables import differences, report, runs, scores
from sparsona_papers.fedthin.tasks import TASKS, rows_to_test, synthetic
from sparsona_papers.reproduce import left, reproduce

CURVE = Curve([0.5, 4.0, 100.0], np.array([[0.2, 0.4], [0.6, 0.8], [1.0, 1.0]]), 0.1)


def test_the_area_counts_what_was_paid_for() -> None:
    # from 1 to 4 the first evaluation holds, from 4 to 32 the second; the third is beyond
    assert area(CURVE) == pytest.approx([(0.2 * 2 + 0.6 * 3) / 5, (0.4 * 2 + 0.8 * 3) / 5])
    late = Curve([64.0], np.array([[1.0]]), 0.25)
    assert area(late) == pytest.approx([0.25])
    early = Curve([0.1], np.array([[0.75]]), 0.25)
    assert area(early) == pytest.approx([0.75]), "the last score holds beyond the run's end"


def test_bytes_to_a_score() -> None:
    assert bytes_to(CURVE, 0.3) == 0.5
    assert bytes_to(CURVE, 0.31) == 4
    assert math.isinf(bytes_to(CURVE, 1.01))


def test_the_bootstrap_covers_what_varies() -> None:
    rng = np.random.default_rng(0)
    clear = {name: rng.normal(0.05, 0.01, (5, 40)) for name in "abcdef"}
    effect = bootstrap(clear, repeats=500)
    assert effect.low < effect.value < effect.high
    assert effect.low > 0.04
    assert effect.p == pytest.approx(2 / 501)
    tasks_differ = {name: np.full((5, 40), 0.05 * (-1) ** at) for at, name in enumerate("abcdef")}
    unclear = bootstrap(tasks_differ, repeats=500)
    assert unclear.low < -0.02
    assert unclear.p > 0.3
    assert bootstrap(clear, repeats=50) == bootstrap(clear, repeats=50)
    assert not_inferior(effect.low)


def test_every_row_has_as_many_trials_and_the_first_is_its_defaults() -> None:
    for row in ROWS:
        drawn = trials(row, WHOLE)
        assert len(drawn) == WHOLE.trials
        assert drawn[0] == {"lr": 0.1}
        if math.prod(map(len, ROWS[row].space.values())) * 3 >= WHOLE.trials:
            assert len({tuple(sorted(d.items())) for d in drawn[1:]}) == WHOLE.trials - 1
    assert Counter(cell.row for cell in tuning(WHOLE)) == dict.fromkeys(ROWS, WHOLE.trials * 12)


def test_most_tasks_have_clients_that_nobody_made() -> None:
    assert len(TASKS) >= 5
    assert sum(task.natural for task in TASKS) >= 3


def test_a_third_of_no_client_is_tested_twice() -> None:
    client = np.repeat(np.array(["a", "b"]), [10, 35])
    rows = rows_to_test(client)
    assert (rows[:10].sum(), rows[10:].sum()) == (4, 14)
    assert np.array_equal(rows, rows_to_test(client))


def test_the_generator_is_the_papers() -> None:
    x, y, client = synthetic()
    sizes = Counter(client.tolist())
    assert len(sizes) == 40
    assert min(sizes.values()) >= 50
    assert set(y.tolist()) <= set(range(10))
    own = np.concatenate([x[client == name] - x[client == name].mean(axis=0) for name in sizes])
    assert own.var(axis=0)[[0, 9]] == pytest.approx([1, 10**-1.2], rel=0.1)


HERE = {"engine": "inprocess"}
TINY = replace(SMALL, shares=(0.2,), rows=("local", "fedavg", "fedthin"), trials=2, tuning=2, rounds=3, longest=12)


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARSONA_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, data: object) -> tuple[Path, Kept, list[str]]:
    """A tiny study: its folder, its runs and what was told. Tests may run in any order and in several processes."""
    folder, told = tmp_path_factory.mktemp("study"), list[str]()
    return folder, work(lambda known: ready(known, TINY, "*"), folder, HERE, told.append, {}, READING), told


@pytest.fixture(scope="module")
def folder(study: tuple[Path, Kept, list[str]]) -> Path:
    return study[0]


def test_every_cell_is_an_experiment() -> None:
    for cell in tuning(SMALL):
        experiment, _ = build(cell.settings())
        assert experiment.training.steps == 10 // ROWS[cell.row].models


def test_the_whole_way_of_a_tiny_study(study: tuple[Path, Kept, list[str]]) -> None:
    folder, found, told = study
    (task,) = TINY.tasks
    assert sum(name.endswith("r2") for name in found) == 3 * TINY.trials
    for row in TINY.rows:
        assert chosen(found, task, 0.2, row, TINY, "accuracy") is not None
    assert {cell.row for cell in longest(found, TINY)} == {"local", "fedavg", "fedthin"}
    assert len(told) == len(found)
    again: list[str] = []
    assert work(lambda known: ready(known, TINY, "*"), folder, HERE, again.append, {}, READING) == found
    assert again == [], "nothing is run twice"
    assert [file.name for file in folder.iterdir()] == [CELLS], "run directories are removed"
    gap = differences(found, TINY, 0.2, "fedavg", "accuracy", lambda curve: curve.scores[-1])
    assert gap["digits"].shape == (2, 20)
    text = report(found, TINY)
    assert "| fedavg |" in text
    assert "### digits, constructed clients, 20%" in text


def test_a_cell_is_the_same_whatever_else_is_run(folder: Path, tmp_path: Path) -> None:
    cell = tuning(TINY)[-1]
    kept, again = (
        read_cells(folder / CELLS)[cell.name],
        work(lambda known: [cell], tmp_path, HERE, [].append, {}, READING),
    )
    volatile = ("seconds", "date")
    assert {k: v for k, v in kept.items() if k not in volatile} == {
        k: v for k, v in again[cell.name].items() if k not in volatile
    }
    curve = curve_of(kept)
    assert curve.scores.shape == (2, 20)
    assert [own.mean() for own in correct_of(kept)] == pytest.approx(curve.scores[-1])


def test_runs_that_diverge_score_as_guessing_does_also_if_all_of_them_do(folder: Path) -> None:
    found = read_cells(folder / CELLS)
    (task,) = TINY.tasks
    trial = chosen(found, task, 0.2, "fedavg", TINY, "accuracy")
    broken = {
        name: {"diverged": "x"} if name.startswith(f"digits-0.2-fedavg-t{trial}-") and name.endswith("r3") else run
        for name, run in found.items()
    }
    theirs = runs(broken, TINY, task, 0.2, "fedavg", "accuracy", TINY.rounds)
    assert all("diverged" in run for run in theirs)
    assert scores(theirs, lambda c: c.scores[-1]).tolist() == [[0.1] * 20] * len(TINY.seeds)


def test_nothing_is_tested_before_all_runs_are_there(folder: Path) -> None:
    found = read_cells(folder / CELLS)
    gone = next(name for name in found if "fedavg" in name and name.endswith("r3"))
    assert "Holm p" in report(found, TINY)
    assert "Holm p" not in report({name: run for name, run in found.items() if name != gone}, TINY)


def test_the_command_keeps_results_reads_them_again_and_counts_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fedthin, "SMALL", replace(TINY, trials=1))
    only = "*-t0-s0-*"
    assert len(left("fedthin", "quick", only, tmp_path).names) == 3
    reproduce("fedthin", "quick", tmp_path, only, [].append, results=tmp_path, engine="inprocess")
    assert left("fedthin", "quick", only, tmp_path).lines() == ["nothing is left: all 3 runs are kept"]
    table = reproduce("fedthin", "quick", tmp_path / "other", run=False, results=tmp_path)
    assert table.read_text().startswith("# FedThin on a development set")
    kept = Results.read(results_file(tmp_path, "fedthin", "quick")).runs
    assert sorted(kept) == [f"digits-0.2-{row}-t0-s0-r2" for row in ("fedavg", "fedthin", "local")]
    assert all("right" not in run for run in kept.values()), "tests of trials are not kept"
    assert [cell.seed for cell in ready(kept, fedthin.fedthin("quick").with_seeds_from(7).plan, "*")[-2:]] == [7, 8]


def test_a_run_that_diverges_is_kept_as_such(tmp_path: Path) -> None:
    cell = tuning(TINY)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "trials", lambda row, of: [{"lr": 1e38}])
        found = work(lambda known: [cell], tmp_path, HERE, [].append, {}, READING)[cell.name]
    assert found["diverged"]
    assert found["validation"] == {"area": 0.0, "accuracy": 0.0}


def test_names_of_cells_tell_them_apart() -> None:
    cells = tuning(WHOLE)
    assert len({cell.name for cell in cells}) == len(cells)
    one = cells[0]
    assert Cell(one.task, one.share, one.row, 0, 1, 100, WHOLE).name != one.name
