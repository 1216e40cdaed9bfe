"""A check of FedPSE's claims: correlation distances rise with lambda."""

from __future__ import annotations

from itertools import pairwise

from sparsona_papers._differences import RowAt, Runs, difference, extra, values
from sparsona_papers._verdicts import Check, Verdict, missing, word_above, worst
from sparsona_papers.fedpse.plan import LAMBDAS, row_of


def rising(clients: int, name: str, data: str = "fashion-mnist") -> Check:
    """Check whether the mean (`distance`) or the variance (`distance_variance`) over the clients rises with lambda.

    Seeds are paired, as everywhere. It rises if every step does, and does not if one step falls.
    """
    rows = [row_of(ratio, "fedpse", clients, data) for ratio in LAMBDAS]
    of = extra(name)

    def check(runs: Runs) -> Verdict:
        gaps = [difference(runs, RowAt(after, of=of), RowAt(before, of=of)) for before, after in pairwise(rows)]
        steps = [gap for gap in gaps if gap is not None]
        if len(steps) < len(gaps):
            return missing(runs, *rows)
        means = [values(runs, row, "pre", of).values() for row in rows]
        told = ", ".join(f"{ratio:g}: {sum(own) / len(own):.3g}" for ratio, own in zip(LAMBDAS, means, strict=True))
        words = [word_above(gap) for gap in steps]
        seeds = min(gap.seeds for gap in steps)
        each = ", then ".join(
            f"{gap.value:+.2g} ± {gap.high - gap.value:.2g}" if seeds > 1 else f"{gap.value:+.2g}" for gap in steps
        )
        return Verdict(worst(words), f"{told}; steps of {each}, {f'{seeds} seeds' if seeds > 1 else 'one seed'}")

    return check
