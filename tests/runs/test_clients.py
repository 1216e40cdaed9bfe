"""Small data honestly: intervals, who has too few test rows, repeated splits."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

import sparsona
from sparsona.errors import RunError
from sparsona.runs.answers import read_answers
from sparsona.runs.clients import ClientScores, ExpertScore, Score, pooled, read_clients, scored, wilson, write_clients


@pytest.mark.parametrize(("right", "rows"), [(0, 5), (5, 5), (3, 8), (50, 100), (999, 1000)])
def test_the_interval_is_wilsons(right: int, rows: int) -> None:
    expected = binomtest(right, rows).proportion_ci(method="wilson")
    assert wilson(right / rows, rows) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_clients_csv_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = [
        ClientScores("a,\n", 9, 1, 5, {"pre": scored(0.8, 5, True), "post": Score(1.5)}),
        ClientScores("b", 3, 0, 1),
        ClientScores("c", 3, 0, 9, experts=(ExpertScore("trees", 0.25, 0.8), ExpertScore("shared", 0.75, 0.7))),
    ]
    write_clients(tmp_path / "clients.csv", written)
    read = read_clients(tmp_path / "clients.csv")
    assert [(one.client, one.train, one.test, set(one.scores)) for one in read] == [
        ("a,\n", 9, 5, {"pre", "post"}),
        ("b", 3, 1, set()),
        ("c", 3, 9, set()),
    ]
    assert [one.experts for one in read] == [one.experts for one in written]
    assert read[0].scores["pre"] == written[0].scores["pre"]
    assert math.isnan(read[0].scores["post"].low)
    (tmp_path / "clients.csv").write_text("client\nx\n")
    with pytest.raises(RunError, match="is damaged"):
        read_clients(tmp_path / "clients.csv")


def test_repeats_are_pooled_over_rows() -> None:
    first = [ClientScores("a", 6, 0, 2, {"pre": Score(1.0)})]
    second = [ClientScores("a", 6, 0, 2, {"pre": Score(0.5)})]
    (one,) = pooled([first, second], True, fewest=4)
    assert (one.test, one.scores["pre"].value) == (4, 0.75)
    assert (one.scores["pre"].low, one.scores["pre"].high) == wilson(0.75, 4)
    (many,) = pooled([first, second] * 10, True, fewest=4)
    assert (many.scores["pre"].low, many.scores["pre"].high) == wilson(0.75, 8), "no more rows than there are"
    assert pooled([first, second], True, fewest=9)[0].scores == {}


def test_a_client_of_few_test_rows_has_no_score_and_is_in_no_mean(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = {"large": 100, "middle": 25, "tiny": 2}
    wards = {w: (rng.normal(size=(n, 3)), np.arange(n) % 2) for w, n in sizes.items()}
    result = sparsona.run("fedavg", data=wards, rounds=2, out=tmp_path / "run")
    scores = {one.client: one for one in result.clients}
    assert scores["tiny"].test == 1
    assert scores["tiny"].scores == {}
    kept = [scores[w].scores["pre"].value for w in ("large", "middle")]
    assert result.summary["accuracy"]["pre"]["mean"] == pytest.approx(np.mean(kept))
    assert result.summary["too_few_test_rows"] == {"fewest": 5, "clients": ["tiny"]}
    assert sparsona.load(tmp_path / "run").clients == result.clients
    all_of_them = sparsona.run("fedavg", data=wards, rounds=2, split={"fewest": 1})
    assert "too_few_test_rows" not in all_of_them.summary
    assert {one.client for one in all_of_them.clients if one.scores} == set(wards)


def test_nobody_has_enough_test_rows() -> None:
    wards = {w: (np.random.default_rng(0).normal(size=(10, 3)), np.arange(10) % 2) for w in "ab"}
    summary = sparsona.run("local", data=wards, rounds=1).summary
    assert summary["accuracy"]["pre"]["mean"] is None
    assert summary["too_few_test_rows"]["clients"] == ["a", "b"]


def test_the_share_of_found_cases_has_wilsons_interval_over_the_cases(tmp_path: Path) -> None:
    """A bootstrap of three cases that were all found would be sure of it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3)).astype(np.float32)
    data = {"east": (x, (x[:, 0] > 1.2).astype(np.int64)), "west": (x[::-1], (x[::-1, 0] > 1.2).astype(np.int64))}
    result = sparsona.run("alone-linear", data=data, rounds=1, metrics=["sensitivity"], out=tmp_path / "run")
    for one in result.clients:
        answers = read_answers(tmp_path / "run")[one.client]
        score = one.scores["pre"]
        assert (score.low, score.high) == wilson(score.value, int(answers.targets.sum()))
        assert score.low < score.value <= score.high
