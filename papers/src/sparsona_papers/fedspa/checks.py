"""Checks of FedSpa's claims: rounds, orders, leads and counts of a net.

With sampled clients, one seed does not show which row is sooner; nor does a lead below the rounds between two
evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch

from sparsona.layout import Layout
from sparsona.methods._masked import ServerState
from sparsona.methods.fedspa import active_counts
from sparsona.models._build import build_model
from sparsona.prepare import Prepared
from sparsona.report.curves import curve
from sparsona.runs.directory import RunDirectory
from sparsona.training.flops import costs, forward_flops
from sparsona_papers._checks import flops, numbers_sent, share
from sparsona_papers._differences import ENOUGH, Runs, Summary, extra, first_seeds, interval
from sparsona_papers._runs import server_scores
from sparsona_papers._verdicts import (
    Check,
    Verdict,
    Word,
    above,
    all_of,
    any_of,
    fact,
    missing,
    word_above,
    word_within,
)
from sparsona_papers.fedspa.plan import EVERY, ORIGINALS

LADDER = tuple(percent / 100 for percent in range(40, 98))
"""The accuracies at `pre` whose rounds are counted."""
BEST = "best"
FEW = ", one seed of sampled clients"


def read_extra(folder: RunDirectory, prepared: Prepared) -> dict[str, float]:
    """The best accuracy at `pre`, the first measured round with each one that was reached, and what the server's own
    vector scores under FedSpa."""
    rounds, scores = curve(folder.path, "pre")
    reached = {goal: [r for r, score in zip(rounds, scores, strict=True) if score >= goal] for goal in LADDER}
    own = server_scores(folder, prepared, ServerState) if prepared.experiment.method == "fedspa" else {}
    counted = {_goal(goal): float(found[0]) for goal, found in reached.items() if found}
    return own | {BEST: max(scores, default=0.0)} | counted


def _goal(goal: float) -> str:
    return f"rounds to {goal:.2f}"


def rounds_to(summary: Summary, goal: float) -> float | None:
    """Return the first measured round with an accuracy at `pre`; 0 for never, None if not counted."""
    found = extra(_goal(goal))(summary, "pre")
    return 0.0 if found is None and extra(BEST)(summary, "pre") is not None else found


def inside(rows: Sequence[str], point: str = "pre") -> Check:
    """Check whether some row is above both ends."""
    return any_of(*(above(row, rows[0], rows[-1], point=point) for row in rows[1:-1]))


def falling(rows: Mapping[float, str]) -> Check:
    """Check whether every row is above the next at `pre`; keys are the rows' labels."""
    return all_of({f"{one:g} above {other:g}": above(rows[one], rows[other]) for one, other in pairwise(rows)})


def fewer_numbers(one: str, other: str, most: float) -> Check:
    """Check whether a row sends less than a share of another row's numbers, up and down."""
    return all_of({way: share(one, other, numbers_sent(way), most) for way in ("up", "down")})


def fewer_operations(one: str, other: str, most: float) -> Check:
    """Check whether a row takes less than a share of another row's operations."""
    return share(one, other, flops, most)


def fewer_and_above(one: str, *others: str, point: str = "pre") -> Check:
    """Check whether a row sends fewer numbers in all than each of the others and is above all of them."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        found = first_seeds(runs, one, *others)
        if found is None:
            return None
        mine, *theirs = map(numbers_sent("up", "down"), found)
        return mine < min(theirs), f"{mine / min(theirs):.2f} of the next"

    return all_of({"numbers": fact(test, one, *others), "accuracy": above(one, *others, point=point)})


Pairs = Sequence[tuple[float, float]]
"""The rounds of two rows by seed; 0 for never."""


def sooner(one: str, other: str, goal: float) -> Check:
    """Check whether a row reaches an accuracy at `pre` in fewer rounds than another, with three seeds or more. A row
    that never reaches it is later; if neither does with any seed, the runs were too short.
    """
    return _by_seed(one, other, lambda a, b: (rounds_to(a, goal), rounds_to(b, goal)), _first)


def sooner_to_best(one: str, other: str) -> Check:
    """Check whether a row reaches the best accuracy of another, cut to a whole per cent, in fewer rounds."""

    def pair(mine: Summary, theirs: Summary) -> tuple[float | None, float | None]:
        if extra(BEST)(theirs, "pre") is None:
            return None, None
        goal = max((goal for goal in LADDER if rounds_to(theirs, goal)), default=LADDER[0])
        return rounds_to(mine, goal), rounds_to(theirs, goal)

    return _by_seed(one, other, pair, _first)


def as_fast(one: str, other: str, goal: float, most: float = 0.1) -> Check:
    """Check whether two rows reach an accuracy at `pre` in rounds that differ by at most a share of the second's
    rounds.
    """

    def judge(pairs: Pairs) -> Verdict:
        if len(pairs) == 1:
            return Verdict("within noise", _told(pairs))
        if not all(map(all, pairs)):
            apart = all(bool(a) != bool(b) for a, b in pairs)
            return Verdict("no" if apart else "within noise", _told(pairs))
        gap = interval(a / b - 1 for a, b in pairs)
        return Verdict(word_within(gap, most), f"{_told(pairs)}: apart by {gap}")

    return _by_seed(one, other, lambda a, b: (rounds_to(a, goal), rounds_to(b, goal)), judge)


def never_reaches(row: str, goal: float) -> Check:
    """Check whether a row never reaches an accuracy at `pre`, with two seeds or more."""

    def check(runs: Runs) -> Verdict:
        counted = [rounds_to(run, goal) for _, run in sorted(runs.get(row, {}).items())]
        found = [rounds for rounds in counted if rounds is not None]
        if not found:
            return missing(runs, row)
        told = "rounds: " + ", ".join(f"{rounds:g}" if rounds else "never" for rounds in found)
        if len(found) == 1:
            return Verdict("within noise", told + FEW)
        return Verdict("yes" if not any(found) else "no" if all(found) else "within noise", told)

    return check


def _by_seed(
    one: str,
    other: str,
    pair: Callable[[Summary, Summary], tuple[float | None, float | None]],
    judge: Callable[[Pairs], Verdict],
) -> Check:
    def check(runs: Runs) -> Verdict:
        mine, theirs = runs.get(one, {}), runs.get(other, {})
        found = [pair(mine[seed], theirs[seed]) for seed in sorted(mine.keys() & theirs.keys())]
        pairs = [(a, b) for a, b in found if a is not None and b is not None]
        if not pairs:
            return missing(runs, one, other)
        if not any(map(any, pairs)):
            return Verdict("not run", "neither gets there in the rounds that were run")
        return judge(pairs)

    return check


def _first(pairs: Pairs) -> Verdict:
    """Return the verdict on two rows' rounds. A difference below the rounds between two evaluations does not count. One
    or two seeds decide nothing. With more the interval decides, or, if some run never reaches the accuracy, the
    agreement of all seeds.
    """
    gaps = [(two or math.inf) - (one or math.inf) if one or two else 0.0 for one, two in pairs]
    if len(pairs) < ENOUGH:
        return Verdict("within noise", _told(pairs))
    if any(map(math.isinf, gaps)):
        word: Word = "yes" if min(gaps) >= EVERY else "no" if max(gaps) <= -EVERY else "within noise"
        return Verdict(word, _told(pairs))
    lead = interval(gaps)
    word = word_above(lead) if abs(lead.value) >= EVERY else "within noise"
    return Verdict(word, f"{_told(pairs)}: {lead.value:+.0f} ± {lead.high - lead.value:.0f}")


def _told(pairs: Pairs) -> str:
    told = ", ".join(" and ".join(f"{rounds:g}" if rounds else "never" for rounds in pair) for pair in pairs)
    return f"rounds: {told}" + (FEW if len(pairs) == 1 else "")


@dataclass(frozen=True)
class Work:
    """The cost of a client's turn, in forward passes of one sample with the dense net: training, and the search."""

    training: float
    search: float


@cache
def operations(data: str, density: float = 1.0, *, uniform: bool = False) -> Work:
    """Return the operations of five epochs with `active` weights on a task of the paper; a sparse net adds the gradient
    of a dense batch.

    >>> operations("cifar-10")
    Work(training=2500.0, search=0.0)
    """
    task = ORIGINALS[data]
    with torch.device("meta"):  # shapes are enough
        module = build_model(task.model, task.shape, task.classes)
        layout, by_tensor = Layout.of(module), costs(module, torch.zeros(1, *task.shape))
    active = zip(layout.tensors, active_counts(layout, density, uniform=uniform), strict=True)
    kept = sum(by_tensor.get(tensor.name, 0) * count for tensor, count in active)
    return Work(5 * task.samples * kept / forward_flops(layout, by_tensor), 128.0 if density < 1 else 0.0)


def saves(least: float, usual: Work, other: Work) -> Check:
    """Check whether the other way saves at least this share of operations, in tenths of a per cent as printed. It is a
    count and needs no run.
    """
    saved = round(1 - (other.training + other.search) / (usual.training + usual.search), 3)
    return fact(lambda _: (saved >= least, f"{saved:.1%} fewer"))


def searches(most: float, work: Work) -> Check:
    """Check whether the search takes at most this share of the training. It is a count and needs no run."""
    return fact(lambda _: (work.search <= most * work.training, f"{work.search / work.training:.1%}"))
