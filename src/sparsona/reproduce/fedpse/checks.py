"""Whether correlation distances rise with lambda, which FedPSE's claims need beside the common checks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from sparsona.reproduce import Runs
from sparsona.reproduce._differences import extra, values
from sparsona.reproduce._verdicts import Check, Verdict, Word, missing, worst
from sparsona.reproduce.fedpse.plan import LAMBDAS, row_of


def rising(clients: int, name: str, data: str = "fashion-mnist") -> Check:
    """Whether the mean (`distance`) or the variance (`distance_variance`) over the clients rises with lambda.

    Both ends of each step are samples of so many clients, of all seeds: a mean has their standard error, a variance the
    quantiles of F. It rises if every step does, and does not if one step falls.
    """
    from scipy.stats import f, t

    def steps(runs: Runs) -> Iterator[tuple[float, float, float, int]]:
        """Lambda, the mean and the variance of d, and the variance's degrees of freedom."""
        for ratio in LAMBDAS:
            row = row_of(ratio, "fedpse", clients, data)
            mean, variance = (values(runs, row, "pre", extra(key)) for key in ("distance", "distance_variance"))
            if mean:
                count = len(mean)
                yield ratio, sum(mean.values()) / count, sum(variance.values()) / count, count * (clients - 1)

    def check(runs: Runs) -> Verdict:
        found = list(steps(runs))
        if len(found) < len(LAMBDAS):
            return missing(runs, *(row_of(ratio, "fedpse", clients, data) for ratio in LAMBDAS))
        words: list[Word] = []
        for (_, m0, v0, n0), (_, m1, v1, n1) in pairwise(found):
            if name == "distance":
                half = float(t.ppf(0.975, n0 + n1)) * math.sqrt(v0 / n0 + v1 / n1)
                low, high = m1 - m0 - half, m1 - m0 + half
            elif not v0 or not v1:
                low, high = -math.inf, math.inf
            else:
                low, high = math.log(v1 / v0 / f.ppf(0.975, n1, n0)), math.log(v1 / v0 * f.ppf(0.975, n0, n1))
            words.append("yes" if low > 0 else "no" if high < 0 else "within noise")
        shown = [(ratio, mean if name == "distance" else variance) for ratio, mean, variance, _ in found]
        told = ", ".join(f"{ratio:g}: {value:.3g}" for ratio, value in shown)
        return Verdict(worst(words), f"{told}; from step to step: {', then '.join(words)}")

    return check
