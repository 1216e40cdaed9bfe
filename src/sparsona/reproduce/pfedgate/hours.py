"""How long pFedGate's cases take on one core: for the commands that stand beside a claim.

They are counted from what one core took on 17 November 2026 for a client's turn with 12 and with 768 images, by net,
and for each method beside FedAvg. Other work ran on both cores, which makes it up to twice too long.
"""

from __future__ import annotations

from sparsona.reproduce import Case
from sparsona.reproduce._price import Price
from sparsona.reproduce.pfedgate.plan import cases
from sparsona.reproduce.pfedgate.settings import DATA

SHORT = {4: 0.05 / 80, 10: 0.02 / 60, 20: 0.1 / 100}
"""CPU hours of a round of `quick` and `day`, by the number of clients: what kept runs took, rounded up."""
SAMPLE = {"leaf-cnn": 0.48e-3, "lenet-cifar": 0.49e-3, "cnn-cifar100": 0.72e-3}
"""Seconds for which FedAvg trains on an image. A test takes a third of it."""
TURN = {"leaf-cnn": (0.10, 0.018), "lenet-cifar": (0.015, 0.009), "cnn-cifar100": (0.15, 0.04)}
"""Seconds of a client's turn beside the training, with the wire tight and plain; the tight of the last is guessed."""
TIMES = {"fedem": 4.4, "pfedme": 5.5, "pfedme-fedem": 1.1, "per-fedavg": 2.3, "ditto": 2.2, "fedrep": 2.0,
         "heterofl": 1.5, "fedmask": 2.2, "pfedgate": 1.2}  # fmt: skip
"""The time of a method's training in units of FedAvg's."""


def hours(case: Case) -> float:
    """The CPU hours of a run."""
    settings, epochs = case.settings, int(case.settings["training"]["epochs"])
    if settings["model"] == "lenet5" or case.of.startswith("leaf-"):
        return float(SHORT[settings["clients"]] * settings["rounds"] * epochs)
    name, data = next((name, data) for name, data in DATA.items() if case.of.startswith(f"{name}-"))
    row, method = case.of.removeprefix(f"{name}-"), settings["method"]
    a_sample, turn = SAMPLE[data.model], TURN[data.model][settings.get("packing") == "plain"]
    images = data.trained * epochs * TIMES.get(row, TIMES.get(method, 1.0))
    if method == "fedmd":
        images += data.clients * 5000 * 4 / 3
    share = float(settings.get("schedule", {}).get("sample", 1.0))
    a_round = share * (images * a_sample + data.clients * turn)
    tested = 2 * (2 / 3) * data.trained / 3 * (3 if method == "fedem" else 1)  # at two points, test and validation
    measured = a_sample * (tested + (data.trained if row == "fedavg" else 0))  # `ft` trains, too
    every = settings["evaluation"]["every"] or settings["rounds"]
    return float(settings["rounds"] * (a_round + measured / every) / 3600)


PRICE = Price("pfedgate", cases, hours)
