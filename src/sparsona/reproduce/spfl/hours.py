"""How long cases take on one core: for the commands that stand beside a claim.

A step of SPFL's net takes 0.3 ms a sample of 28 x 28 pixels and 0.5 ms a sample of 32 x 32 x 3 on one thread (measured
in 2026 with batches of 32 to 128, on a machine busy with other runs), and a test a third of it. Digits take 0.05 ms,
most of it for the messages. Kept runs took up to twice as long, beside each other and with what they send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparsona.reproduce import Case
from sparsona.reproduce._excerpt import source_of
from sparsona.reproduce._price import Price, beginning_of
from sparsona.reproduce.spfl.plan import EXCERPT, cases

MILLISECONDS = {"digits": 0.05, "mnist": 0.3, "emnist": 0.3, "cifar-10": 0.5, "cifar-100": 0.5}
PER_CLASS = {"digits": 180, "mnist": 6_000, "emnist": 2_400, "cifar-10": 5_000, "cifar-100": 500}
"""Images of a class in the part that is used."""
STEPS = {"spfl": 2.0, "spfl-w": 2.0, "pfedme": 2.0, "per-fedavg": 2.1}
"""Steps that a method takes on every batch, where that is not one."""


def hours(case: Case) -> float:
    """The CPU hours of a run of SPFL or PLGA.

    >>> mnist = {"method": "fedavg", "data": "mnist", "rounds": 100, "partition": "classes:6:own"}
    >>> round(60 * hours(Case("a", "t", mnist)))
    17
    """
    settings, training = case.settings, case.settings.get("training", {})
    options: dict[str, Any] = settings.get("options", {})
    data, cut = source_of(settings["data"]), settings["data"].endswith(f"-{EXCERPT}.npz")
    held = int(settings["partition"].split(":")[1]) * (EXCERPT // 10 if cut else PER_CLASS[data])
    clients, late = settings.get("clients", 10), settings.get("schedule", {}).get("stragglers", 0)
    asked = clients - late + sum(1 / (m + 1) for m in range(1, late + 1))
    passes = training["steps"] * training["batch"] * asked if "steps" in training else 0.8 * held
    repeats = 1.0 if options.get("steps") == "one" else STEPS.get(settings["method"], training.get("repeats", 1))
    measured = 1 + 1 / options["gamma"] if "gamma" in options else 1.0
    every = settings.get("evaluation", {}).get("every", 1)
    tests = 0.2 * held * (1 + asked / clients) / (3 * every) if every else 0.0
    work = float(passes * training.get("epochs", 1) * repeats * measured + tests)
    return int(settings["rounds"]) * work * MILLISECONDS[data] / 3.6e6


def together(rows: Sequence[str]) -> str:
    """A pattern for the runs of some rows: of all that begin as they do."""
    return f"{rows[0]}-*" if len(set(rows)) == 1 else f"{beginning_of(rows)}*"


PRICE = Price("spfl", cases, hours)
