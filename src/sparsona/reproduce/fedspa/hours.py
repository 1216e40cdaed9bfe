"""How long FedSpa's cases take on one core: for the commands that stand beside a claim."""

from __future__ import annotations

from sparsona.reproduce import Case
from sparsona.reproduce._paper import TUNING
from sparsona.reproduce._price import Price
from sparsona.reproduce.fedspa.plan import ORIGINAL, cases

HOURS = {("fashion-mnist", 30): 0.05, ("fashion-mnist", 150): 0.7, ("cifar-10", 20): 0.05, ("cifar-10", 200): 1.2}
"""CPU hours of a run on the data that a CPU can train, by its rounds, the choice of its rate included: measured for
Fashion-MNIST, for CIFAR-10 from the time of a training step on one core, 0.06 s."""


def hours(case: Case) -> float:
    """The CPU hours of a run; those of its trials are in it. On the paper's own data they are the case's cost."""
    if case.table == TUNING:
        return 0.0
    return case.cost if case.of.startswith(ORIGINAL) else HOURS[case.settings["data"], case.settings["rounds"]]


PRICE = Price("fedspa", cases, hours)
