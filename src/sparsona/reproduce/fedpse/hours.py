"""How long FedPSE's cases take on one core: for the commands that stand beside a claim."""

from __future__ import annotations

from sparsona.reproduce import Case
from sparsona.reproduce._price import Price
from sparsona.reproduce.fedpse.plan import cases, work_of

SECONDS = 2.8e-4
"""What a 28x28 image takes in ConvNet2, measured: 43 s for a run of `quick`, its evaluations included."""


def hours(case: Case) -> float:
    """The CPU hours of a run."""
    return work_of(case.settings) * SECONDS / 3600


PRICE = Price("fedpse", cases, hours)
