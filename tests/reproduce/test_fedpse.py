"""The cases of FedPSE's card, and what its correlation distances say."""

from __future__ import annotations

import pytest

from sparsona.experiment import build
from sparsona.reproduce import SIZES, Runs, Size
from sparsona.reproduce.fedpse import fedpse
from sparsona.reproduce.fedpse.plan import METHODS, TABLE_1, name_of


@pytest.mark.parametrize("size", SIZES)
def test_the_cases_of_fedpse(size: Size) -> None:
    paper = fedpse(size)
    names = [case.name for case in paper.cases]
    assert len(set(names)) == len(names)
    for case in paper.cases:
        experiment, _ = build(case.settings)
        assert experiment.training.optimizer == "adam"
        assert experiment.training.batch == 128
    some = {"quick": (0.0, 0.5, 1.0), "day": (0.5, 1.0)}
    wanted = list(TABLE_1) if size == "whole" else [("fashion-mnist", 10, ratio) for ratio in some[size]]
    for setting in wanted:
        assert {name_of(*setting, method) for method in METHODS} <= set(names)
    headline = next(case for case in paper.cases if case.name == "fashion-mnist-10-1-fedpse")
    assert headline.paper == 0.9334
    assert {claim.check({}).word for claim in paper.claims} == {"not run"}


def _distances_of(means: list[float], variances: list[float]) -> Runs:
    pairs = zip((0, 0.5, 1), means, variances, strict=True)
    return {
        f"fashion-mnist-10-{ratio:g}-fedpse": {1: {"extra": {"distance": mean, "distance_variance": variance}}}
        for ratio, mean, variance in pairs
    }


def test_distances_rise_if_every_step_is_above_the_noise_of_the_clients() -> None:
    claims = {claim.text: claim for claim in fedpse("quick").claims if "N = 10, last round" in claim.text}
    mean, variance = claims.values()
    steep = _distances_of([0.3, 0.4, 0.5], [1e-5, 1e-4, 1e-3])
    assert mean.check(steep).word == variance.check(steep).word == "yes"
    flat = _distances_of([0.3, 0.4, 0.402], [1e-5, 1e-4, 1.1e-4])
    assert mean.check(flat).word == variance.check(flat).word == "within noise"
    falling = _distances_of([0.3, 0.5, 0.4], [1e-5, 1e-3, 1e-4])
    assert mean.check(falling).word == variance.check(falling).word == "no"
    assert mean.check({}).note == "missing: lambda = 0, 0.5, 1"
