"""Checks that several papers share: means over pairs, leads that grow, counts, what a benchmark has measured."""

from __future__ import annotations

from typing import Any

from sparsona_papers._checks import bytes_sent, flops, grows, mean_above, measured, numbers_sent, share
from sparsona_papers._differences import Runs
from sparsona_papers._verdicts import Verdict


def run(pre: float = 0.5, samples: int = 10_000, **more: Any) -> dict[str, Any]:
    return {"metric": "accuracy", "accuracy": {"pre": {"mean": pre}}, "test_samples": samples, **more}


def scored(samples: int = 10_000, **rows: list[float]) -> Runs:
    return {row: {seed: run(pre, samples) for seed, pre in enumerate(own)} for row, own in rows.items()}


def test_a_mean_over_pairs_has_the_interval_of_its_seeds_or_of_its_test_samples() -> None:
    pairs = [("a", "b"), ("c", "d")]
    sure = scored(a=[0.80, 0.81, 0.80], b=[0.7, 0.7, 0.7], c=[0.74, 0.73, 0.74], d=[0.7, 0.7, 0.7])
    assert mean_above(pairs)(sure) == Verdict("yes", "+0.0700 ± 0.0000, 3 seeds")
    one = mean_above(pairs)(scored(a=[0.702], b=[0.7], c=[0.7], d=[0.7]))
    assert one.word == "within noise"
    assert one.note == "+0.0010 ± 0.0090, test samples of one seed", "of two pairs, half the root of their sum"
    assert mean_above(pairs)(scored(a=[0.8], b=[0.7])).note == "missing: c, d"
    groups = [[("a", "b")], [("c", "d")]]
    assert grows(groups)(sure).word == "no"
    assert grows(groups[::-1])(sure).word == "yes"


def test_leads_grow_or_shrink_or_are_too_near() -> None:
    groups = [[("c", "d")], [("a", "b")]]

    def check(*scores: float, samples: int = 10**6) -> Verdict:
        return grows(groups)(scored(samples, **{row: [pre] for row, pre in zip("abcd", scores, strict=True)}))

    assert check(0.9, 0.8, 0.7, 0.69).word == "yes"
    assert check(0.7, 0.69, 0.9, 0.8).word == "no"
    assert check(0.9, 0.8, 0.8, 0.7005).word == "within noise"
    assert check(0.9, 0.8, 0.7, 0.69, samples=100).word == "within noise"
    assert check(0.9, 0.8, 0.7, 0.69).note.endswith("leads of +0.1000 and +0.0100")
    assert check(0.9, 0.8, 0.7, 0.69, samples=0).word == "within noise", "no interval is known"
    assert grows(groups)({"a": {1: run()}}).note == "missing: b, c, d"


def test_shares_of_counts() -> None:
    runs = {
        "a": {2: run(), 1: run(flops=3, bytes={"up": 2, "down": 4}, paper_bytes={"up": 1, "down": 4})},
        "b": {1: run(flops=4, bytes={"up": 4, "down": 4}, paper_bytes={"up": 4, "down": 8})},
    }
    assert share("a", "b", flops, 0.8)(runs) == Verdict("yes", "0.7500 of the other's")
    assert share("a", "b", flops, 0.75)(runs).word == "no", "less, not as much"
    assert share("a", "b", bytes_sent("up", "down"), 0.8)(runs).note.startswith("0.7500")
    assert share("a", "b", numbers_sent("up"), 0.5, least=0.3)(runs) == Verdict("no", "0.2500 of the other's")
    assert share("a", "c", flops, 1.0)(runs) == Verdict("not run", "missing: c")


def test_what_a_benchmark_has_measured() -> None:
    runs = {"measured-step": {0: {"extra": {"memory": 0.6, "time": [0.5, 0.6, 0.7], "once": [0.5]}}}}
    assert measured("measured-step", "memory", 0.6)(runs) == Verdict("yes", "0.600")
    assert measured("measured-step", "memory", 0.1, times=1 / 3)(runs) == Verdict("no", "0.200")
    assert measured("measured-step", "time", 0.9)(runs) == Verdict("yes", "0.600 ± 0.248, 3 measurements")
    assert measured("measured-step", "time", 0.7)(runs).word == "within noise"
    assert measured("measured-step", "time", 0.3)(runs).word == "no"
    assert measured("measured-step", "once", 0.9)(runs) == Verdict("within noise", "0.500, one measurement")
    assert measured("measured-step", "bytes", 0.6)(runs).word == "not run"
    assert measured("measured-other", "time", 0.6)(runs).note == "missing: measured-other"
