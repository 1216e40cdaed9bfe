"""Comparisons of runs whose numbers are known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsona.errors import InputError
from sparsona.report.comparison import compare, gains, group_runs
from sparsona.report.measured import MeasuredRun, Measurement
from sparsona.report.statistics import interval
from sparsona.report.words import answer
from sparsona.runs.about import About, ClientData
from sparsona.runs.budget import Budget
from sparsona.wire import Ledger

BASE = {"data": "digits", "partition": "iid", "clients": 2, "split": {}, "new_clients": 0.0, "rounds": 2}


def run(
    method: str,
    scores: list[tuple[float, float]],
    seed: int = 0,
    mb: float = 1.0,
    higher: bool = True,
    rows: int = 1000,
    **more: object,
) -> MeasuredRun:
    """A run of two clients, measured after each round; a round sends `mb` up and `mb` down and takes 5 s."""
    measured = tuple(
        Measurement(
            number,
            round(number * mb * 1e6),
            round(number * mb * 1e6),
            5.0 * number,
            1000 * number,
            {"pre": {"a": a, "b": b}, "post": {"a": a, "b": b}},
            {"pre": {"a": a - 0.01, "b": b - 0.01}},
        )
        for number, (a, b) in enumerate(scores, 1)
    )
    data = ClientData(10 * rows, rows, 5)
    about = About("accuracy" if higher else "mae", higher, 10, {"a": data, "b": data})
    settings = {**BASE, "method": method, "seed": seed, **more}
    total = Ledger(values=round(len(scores) * mb * 1e6))
    path = Path(f"{method}-{seed}")
    return MeasuredRun(
        path, settings, about, measured, len(scores), total, total, {"a": (1, 1), "b": (1, 1)}, 1.0, True, {}
    )


LOCAL = [run("local", [(0.5, 0.6), (0.6, 0.7)], seed, mb=0.0) for seed in (0, 1)]
DENSE = [run("fedavg", [(0.4, 0.4), (0.8, 0.6 + 0.1 * seed)], seed, mb=10.0) for seed in (0, 1)]
THIN = [run("fedpse", [(0.7, 0.7), (0.7, 0.7)], seed, mb=1.0) for seed in (0, 1)]
GROUPS = {"local": LOCAL, "fedavg": DENSE, "fedpse": THIN}


def test_scores_gains_and_costs() -> None:
    found = compare(GROUPS, Budget())
    local, dense, thin = found.rows
    assert local.gain is not None
    assert (local.gain.mean, local.worse_off) == (0.0, 0.0)
    assert dense.pre is not None
    assert dense.pre.mean == pytest.approx(0.725)
    assert dense.gain is not None
    assert dense.gain.mean == pytest.approx(0.075)
    assert dense.worse_off == 0.25, "client b of seed 0"
    assert dense.decile == pytest.approx(0.65), "the lower of two, the mean over seeds"
    assert (dense.up, dense.down, dense.simulated, dense.flops) == (20e6, 20e6, 10.0, 2000)
    assert found.equal_bytes == 4e6, "what the thriftiest sends"
    assert dense.at_equal is None, "its first round sends more"
    assert thin.at_equal == thin.pre
    assert local.at_equal == local.pre
    assert found.best.label == "fedavg"


def test_a_budget_counts_the_last_evaluation_within_it() -> None:
    found = compare(GROUPS, Budget(mb=25))
    dense = found.rows[1]
    assert dense.pre is not None
    assert dense.pre.mean == pytest.approx(0.4), "after one round"
    assert dense.bytes == 20e6
    assert found.best.label == "fedpse"
    assert compare(GROUPS, Budget(seconds=5)).rows[2].simulated == 5.0
    assert math.isnan(dense.seconds), "of a part of a run, real seconds are not known"
    assert found.rows[2].seconds == 1.0, "all of it is within the budget"


def test_where_less_is_better_a_gain_is_a_smaller_error() -> None:
    local = [run("local", [(0.5, 0.5)], mb=0.0, higher=False)]
    other = [run("fedavg", [(0.3, 0.6)], higher=False)]
    found = compare({"local": local, "fedavg": other}, Budget())
    assert found.rows[1].gain is not None
    assert found.rows[1].gain.mean == pytest.approx(0.05)
    assert found.rows[1].worse_off == 0.5
    assert found.best.label == "fedavg"
    assert found.rows[1].decile == 0.6


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20))
def test_an_interval_holds_its_mean_and_grows_with_the_spread(values: list[float]) -> None:
    found = interval(values)
    assert found is not None
    assert found.half is not None
    assert found.low <= found.mean <= found.high
    wider = interval([3 * value for value in values])
    assert wider is not None
    assert wider.half == pytest.approx(3 * found.half, rel=1e-4, abs=1e-9)


def test_an_interval_of_one_value_has_no_width_and_of_none_there_is_none() -> None:
    one = interval([0.5, math.nan])
    assert one is not None
    assert (one.mean, one.half, one.count) == (0.5, None, 1)
    assert interval([math.nan]) is None


def test_clients_without_a_score_do_not_gain() -> None:
    assert gains({"a": math.nan, "b": 1.0}, {"a": 0.5, "b": 0.5}, True) == {"b": 0.5}


def words(groups: dict[str, list[MeasuredRun]]) -> tuple[str, str, str, str]:
    found = compare(groups, Budget())
    measured = [0.2, -0.1, 0.2, 0.0]
    told = answer(found, measured, 2, 2, ("sparsona run x",), "sparsona compare x")
    return told.which, told.gain, told.cost, told.now


def test_the_sentences_say_which_method_what_it_gains_and_what_it_costs() -> None:
    which, gain, cost, now = words(GROUPS)
    assert which.startswith("Use fedavg: on validation data it is the best of 3 methods, and the clients' own models")
    assert "72.5 %" in which
    for fact in ("(local)", "gains 7.5 points", "-24.3 to +39.3", "may be chance", "1 of 4 clients", "10.0 points"):
        assert fact in gain
    assert cost == "It costs each client 10.00 MB up and 10.00 MB down in 2 rounds, and 10 seconds of simulated time."
    assert now.startswith("Train it")


def test_a_thriftier_method_that_is_nearly_as_good_is_named() -> None:
    near = [run("fedpse", [(0.8, 0.595 + 0.1 * seed)] * 2, seed, mb=1.0) for seed in (0, 1)]
    cost = words({**GROUPS, "fedpse": near})[2]
    assert cost.endswith("; fedpse sends 10 times less and scores 72.2 %.")


def test_alone_may_be_best_and_without_it_nothing_is_said_about_gains() -> None:
    poor = [run("fedavg", [(0.2, 0.3)] * 2, seed) for seed in (0, 1)]
    which, gain, cost, _ = words({"local": LOCAL, "fedavg": poor})
    assert which.startswith(
        "Train alone with local: the one federated method does no better on validation data; alone, "
    )
    assert "fedavg, is 40.0 points worse than training alone" in gain
    assert cost == "It costs no traffic at all."
    which, gain, _, now = words({"fedavg": DENSE})
    assert which.startswith("There is one method here, fedavg")
    assert "no run of local or alone-trees is here" in gain
    assert now.startswith("Compare it")


def test_joining_is_measured_against_the_best_way_alone_on_validation_data() -> None:
    trees = [run("alone-trees", [(0.7, 0.75)] * 2, seed, mb=0.0) for seed in (0, 1)]
    naive = [run("naive", [(0.3, 0.3)] * 2, seed, mb=0.0) for seed in (0, 1)]
    groups = {"naive": naive, **GROUPS, "alone-trees": trees}
    found = compare(groups, Budget())
    assert found.alone == "alone-trees"
    assert [row.label for row in found.rows if row.alone] == ["naive", "local", "alone-trees"]
    by_label = {row.label: row for row in found.rows}
    assert by_label["fedavg"].gain is not None
    assert by_label["fedavg"].gain.mean == pytest.approx(0.0)
    assert by_label["fedavg"].worse_off == 0.5
    assert by_label["local"].gain is not None
    assert by_label["local"].gain.mean == pytest.approx(-0.075)
    which, gain, _, _ = words({"alone-trees": trees, "fedpse": THIN})
    assert which.startswith("Train alone with alone-trees")
    assert "alone-trees" in gain


def test_a_lead_that_few_rows_or_seeds_cannot_tell_from_chance_is_no_advice() -> None:
    def groups(rows: int, *leads: float) -> dict[str, list[MeasuredRun]]:
        local = [run("local", [(0.6, 0.7)], seed, mb=0.0, rows=rows) for seed in range(len(leads))]
        joined = [run("fedavg", [(0.6 + d, 0.7 + d)], seed, rows=rows) for seed, d in enumerate(leads)]
        return {"local": local, "fedavg": joined}

    which, _, _, now = words(groups(20, 0.1))
    assert which.startswith(
        "Not clear: on validation data fedavg is the best of 2 methods, but its lead of 10.0 points over training "
        "alone (local) may be chance with 40 rows and one seed; the clients' own models score 75.0 % "
    )
    assert now == "Compare with more seeds before you decide:"
    found = compare(groups(20, 0.1), Budget())
    told = answer(found, [0.1], 2, 2, ("sparsona run x",), "sparsona compare x")
    assert told.commands == ("sparsona compare x --seeds 5",)
    assert words(groups(2000, 0.1))[0].startswith("Use fedavg"), "many rows"
    assert words(groups(20, 0.1, 0.1, 0.11, 0.1))[0].startswith("Use fedavg"), "seeds that agree"
    assert words(groups(2000, 0.1, -0.08, 0.02))[0].startswith("Not clear: "), "seeds that do not"
    python = answer(found, [0.1], 2, 2, ("sparsona.run('x')",), "sparsona.run('local')")
    assert python.commands == ("sparsona.run('x')",)
    assert python.now.startswith("Run it and local with other seeds")


def test_of_the_federated_methods_validation_rows_name_the_one_that_is_compared_with_alone() -> None:
    good, lucky = run("fedavg", [(0.62, 0.65)]), run("ditto", [(0.55, 0.6)])
    (end,) = lucky.measurements
    lucky = replace(lucky, measurements=(replace(end, test={"pre": {"a": 0.9, "b": 0.9}, "post": {}}),))
    local = run("local", [(0.6, 0.7)], mb=0.0)
    gain = words({"local": [local], "fedavg": [good], "ditto": [lucky]})[1]
    assert "fedavg, is 1.5 points worse than training alone (local)" in gain
    slow = [run("fedavg", [(0.3 + 0.01 * k, 0.3) for k in range(20)], rounds=20)]
    assert words({"local": [local], "fedavg": slow})[1].endswith("; fedavg still improved at its last round.")
    errors = {"local": [run("local", [(2.0, 2.0)], mb=0.0, higher=False)]}
    assert "1 worse than" in words({**errors, "fedavg": [run("fedavg", [(3.0, 3.0)], higher=False)]})[1]


def test_seeds_that_draw_no_rows_anew_do_not_make_a_lead_sure() -> None:
    def groups(rows: int, by: str) -> dict[str, list[MeasuredRun]]:
        split = {"by": by}
        local = [run("local", [(0.6, 0.7)], seed, mb=0.0, rows=rows, split=split) for seed in range(4)]
        joined = [run("fedavg", [(0.7, 0.8)], seed, rows=rows, split=split) for seed in range(4)]
        return {"local": local, "fedavg": joined}

    assert words(groups(20, "random"))[0].startswith("Use fedavg")
    which, gain, _, now = words(groups(20, "time:day"))
    assert which.startswith("Not clear: ")
    assert "(the same with each of 4 seeds, for one split by time)" in which
    assert "(the same with each of 4 seeds, for one split by time)" in gain
    assert now.startswith("Collect more rows")
    assert words(groups(2000, "time:day"))[0].startswith("Use fedavg"), "many rows"


def test_errors_are_told_from_chance_by_what_clients_differ_by() -> None:
    def groups(a: float, b: float) -> dict[str, list[MeasuredRun]]:
        local = [run("local", [(3.0, 3.0)], higher=False, mb=0.0)]
        return {"local": local, "fedavg": [run("fedavg", [(3.0 - a, 3.0 - b)], higher=False)]}

    assert words(groups(1.0, 1.01))[0].startswith("Use fedavg")
    assert "its lead of 0.55 over training alone (local) may be chance" in words(groups(1.0, 0.1))[0]


def test_who_raced_is_counted_also_if_they_left() -> None:
    found = compare(GROUPS, Budget())
    told = answer(found, [0.2], 2, 2, ("sparsona run x",), "sparsona compare x", raced=7)
    assert "the best of 7 methods" in told.which


def test_runs_are_grouped_by_what_they_do() -> None:
    some = [run("fedprox", [(0.5, 0.5)], seed, options={"mu": mu}) for mu in (0.1, 0.5) for seed in (1, 0)]
    groups = group_runs([*LOCAL, *some])
    assert list(groups) == ["local", "fedprox:mu=0.1", "fedprox:mu=0.5"]
    assert [one.seed for one in groups["fedprox:mu=0.5"]] == [0, 1]
    with pytest.raises(InputError, match="differ in their data set: report them apart"):
        group_runs([*LOCAL, run("local", [(0.5, 0.5)], data="mnist")])


def test_nothing_is_computed_from_a_method_of_which_a_run_diverged() -> None:
    wild = [run("ditto", [(0.9, 0.9), (1e4, 0.99)], seed, mb=0.1) for seed in (0, 1)]
    wild[1] = replace(wild[1], diverged="the loss is inf")
    with_it, without = compare({**GROUPS, "ditto": wild}, Budget()), compare(GROUPS, Budget())
    assert with_it.rows[:3] == without.rows
    assert (with_it.best.label, with_it.equal_bytes, with_it.alone) == ("fedavg", without.equal_bytes, "local")
    row = with_it.rows[3]
    assert row.state == "diverged"
    assert (row.pre, row.post, row.validation, row.gain, row.lead, row.at_equal, row.worse_off) == (None,) * 7
    assert all(math.isnan(value) for value in (row.decile, row.up, row.down, row.flops, row.simulated, row.seconds))
    assert words({**GROUPS, "ditto": wild})[1:] == words(GROUPS)[1:]


def test_a_way_alone_that_diverged_is_no_measure_of_joining() -> None:
    wild = [replace(one, diverged="the loss is inf") for one in LOCAL]
    found = compare({"local": wild, "alone-linear": [replace_method(one) for one in LOCAL], "fedavg": DENSE}, Budget())
    assert found.alone == "alone-linear"
    assert compare({"local": wild, "fedavg": DENSE}, Budget()).alone == ""
    assert "cannot be told" in words({"local": wild, "fedavg": DENSE})[1]
    nothing = words({"local": wild, "fedavg": [replace(one, diverged="the loss is inf") for one in DENSE]})
    assert not any(character.isdigit() for sentence in nothing[:3] for character in sentence)


def test_where_all_others_diverged_the_command_lowers_their_rate() -> None:
    wild = [replace(one, diverged="the loss is inf") for one in DENSE]
    found = compare({"local": LOCAL, "fedavg": wild}, Budget())
    assert found.best_joined is None
    _, gain, _, now = words({"local": LOCAL, "fedavg": wild})
    assert "no run of a federated method is here that has not diverged" in gain
    assert now == "Lower the learning rate of the others:"


def replace_method(one: MeasuredRun) -> MeasuredRun:
    return replace(one, settings={**one.settings, "method": "alone-linear"})


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5 + 0.02 * k for k in range(20)], True),
        ([0.9 - 0.4 * 0.5**k for k in range(20)], False),
        ([0.8 + 0.02 * (-1) ** k + 0.0005 * k for k in range(20)], False),
        ([0.5, 0.6, 0.7], False),
    ],
)
def test_a_run_whose_validation_score_rose_to_the_end_is_still_improving(scores: list[float], expected: bool) -> None:
    risen = run("local", [(score, score) for score in scores], rounds=len(scores))
    assert risen.improving == expected
    fallen = run("local", [(1 - score, 1 - score) for score in scores], higher=False, rounds=len(scores))
    assert fallen.improving == expected
    assert not run("local", [(score, score) for score in scores], rounds=99).improving, "it stopped because it stalled"
    assert compare({"local": [risen]}, Budget()).rows[0].state == ("still improving" if expected else "")


SCORES = st.lists(st.tuples(*[st.floats(0.3, 0.9)] * 2), min_size=2, max_size=5)


@given(st.booleans(), SCORES, SCORES, SCORES, st.floats(0.2, 0.95))
def test_what_the_sentences_say_is_so(
    higher: bool, a: list[tuple[float, float]], b: list[tuple[float, float]], c: list[tuple[float, float]], said: float
) -> None:
    """The method, the numbers, the signs and the doubts of the three sentences, computed here once more."""
    seeds, sign = range(min(len(a), len(b), len(c))), 1 if higher else -1
    named = {"local": a, "fedavg": b, "ditto": c}
    groups = {
        name: [
            replace(run(name, [found[seed]] * 2, seed, higher=higher), summary={"constant": {"mean": said}})
            for seed in seeds
        ]
        for name, found in named.items()
    }
    means = {name: float(np.mean([np.mean(found[seed]) for seed in seeds])) for name, found in named.items()}
    order = sorted(named, key=lambda name: sign * means[name])
    best, margin = order[-1], 0.01 if higher else 0.01 * said
    above = sign * (means[best] - said)
    if abs(means[best] - means[order[-2]]) < 1e-6 or abs(above - margin) < 1e-6:
        return
    which, gain, _, _ = words(groups)
    assert best in which
    assert (f"{100 * means[best]:.1f} %" if higher else f"{means[best]:.4g} (mae)") in which
    assert which.startswith("No method") == (above <= margin)
    if best == "local":
        assert which.startswith(("Train alone", "No method"))
        return
    each = [sign * float(np.mean(named[best][seed]) - np.mean(a[seed])) for seed in seeds]
    spread, checked = interval(each, 5 / 10_000), interval(each, 0.1)  # test and validation rows to training rows
    assert spread is not None
    assert spread.half is not None
    assert checked is not None
    assert checked.half is not None
    assert ("gains" in gain) == (spread.mean >= 0)
    assert (f"{100 * abs(spread.mean):.1f} point" if higher else f"{abs(spread.mean):.3g}") in gain
    if abs(abs(spread.mean) - spread.half) > 1e-6:
        assert ("may be chance" in gain) == (abs(spread.mean) <= spread.half)
        if which.startswith("Use") and len(seeds) > 2:
            assert checked.mean > checked.half - 1e-6, "advice needs a lead that seeds do not explain"
