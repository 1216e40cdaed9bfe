"""How long pFedNet's cases take on one core: for the commands that stand beside a claim."""

from __future__ import annotations

from sparsona.reproduce import Case
from sparsona.reproduce._price import Price
from sparsona.reproduce.pfednet.plan import ROUNDS, cases


def hours(case: Case) -> float:
    """The CPU hours of a run, by the seconds that one of `quick` takes."""
    usual = ROUNDS[case.settings["partition"].startswith("classes")]
    return float(case.cost * case.settings["rounds"] / usual / 3600)


PRICE = Price("pfednet", cases, hours)
