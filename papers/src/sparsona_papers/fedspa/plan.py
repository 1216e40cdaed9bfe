"""FedSpa's runs: their settings, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sparsona_papers._command import Command
from sparsona_papers._paper import Case, Grid, Size

MODELS = {"fashion-mnist": "lenet5", "cifar-10": "lenet-cifar"}
STANDS_FOR = {"fashion-mnist": "emnist-letters", "cifar-10": "cifar-10"}
"""The paper's data sets, by the data sets that replace them on a CPU."""
SAMPLES = {"fashion-mnist": 600, "cifar-10": 500}
SETTINGS = {"iid": "iid", "0.5": "dirichlet-clients:0.5", "0.3": "dirichlet-clients:0.3"}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "local": ("local", {}),
    "fedavg": ("fedavg", {}),
    "ditto": ("ditto", {"form": "shrink", "lam": 0.5}),
    "sub-fedavg": ("sub-fedavg", {}),
    "subsampling": ("subsampling", {}),
    "fedspa-rsm": ("fedspa", {"search": "rsm"}),
    "fedspa-dst": ("fedspa", {}),
}
PERSONAL = ("ditto", "sub-fedavg", "fedspa-dst")
DENSER = ("ditto", "fedavg", "sub-fedavg", "subsampling")
"""Methods that send more than FedSpa."""
SWEEP = (0.2, 0.4, 0.6, 0.8)
STUDIES: dict[str, dict[str, Any]] = {
    **{f"sparsity-{s:g}": {"density": round(1 - s, 3)} for s in SWEEP},
    "uniform": {"init": "uniform"},
    "rsm-different": {"search": "rsm", "same_init": False},
    "different": {"same_init": False},
    "random": {"regrow": "random"},
    "count": {"agg": "count"},
}
OURS = ("count",)
"""The studies that the paper does not have."""
STUDIED = {"iid": tuple(STUDIES), "0.5": ("different",), "0.3": tuple(STUDIES)}
SHORT_STUDIES = {"iid": ("rsm-different", "different"), "0.5": ("different",), "0.3": tuple(STUDIES)}
"""The studies of `quick`, on Fashion-MNIST."""


@dataclass(frozen=True)
class Original:
    """A task of the paper: data, net, training samples per client, rounds, gamma in its settings A and B, and the
    relative cost of a run.
    """

    data: str
    model: str
    shape: tuple[int, int, int]
    classes: int
    samples: int
    rounds: int
    gamma: tuple[float, float]
    cost: float

    def partition(self, setting: str) -> str:
        """
        >>> ORIGINALS["cifar-10"].partition("B")
        'dirichlet-clients:0.3'
        """
        return "iid" if setting == "iid" else f"dirichlet-clients:{dict(zip('AB', self.gamma, strict=True))[setting]:g}"


ORIGINALS = {
    "emnist-letters": Original("emnist:letters", "lenet5", (1, 28, 28), 26, 1248, 400, (0.2, 0.1), 2.5),
    "cifar-10": Original("cifar-10", "vgg11-gn", (3, 32, 32), 10, 500, 1000, (0.5, 0.3), 80),
    "cifar-100": Original("cifar-100", "resnet18-gn", (3, 32, 32), 100, 500, 1000, (0.2, 0.1), 260),
}
"""From the easiest to the hardest. The rounds of EMNIST-L follow from the GB in Table 1. Its test part has 208 samples
for a client, where the paper draws 100."""
ORIGINAL = "paper-"
"""Prefixes of the names of their rows."""
ORIGINAL_SETTINGS = ("iid", "A", "B")
PRINTED: dict[str, dict[str, tuple[float, float, float]]] = {
    # IID, setting A, setting B; tables 1, 3 and 4
    "cifar-10": {
        "fedspa-dst": (83.4, 86.6, 88.2),
        "fedspa-rsm": (84.5, 82.1, 80.9),
        "ditto": (83.5, 86.4, 87.8),
        "fedavg": (84.8, 82.0, 81.4),
        "sub-fedavg": (71.8, 78.3, 79.6),
        "local": (42.5, 63.6, 69.4),
        "subsampling": (83.0, 78.9, 76.7),
    },
    "emnist-letters": {
        "fedspa-dst": (92.2, 95.3, 96.5),
        "fedspa-rsm": (92.9, 91.9, 90.6),
        "ditto": (92.9, 95.9, 97.0),
        "fedavg": (93.5, 92.3, 90.9),
        "sub-fedavg": (90.7, 94.9, 96.4),
        "local": (77.6, 87.8, 91.6),
        "subsampling": (93.3, 92.0, 91.3),
    },
    "cifar-100": {
        "fedspa-dst": (41.5, 59.0, 66.9),
        "fedspa-rsm": (54.6, 48.7, 44.6),
        "ditto": (51.9, 56.8, 62.5),
        "fedavg": (55.7, 49.3, 45.0),
        "sub-fedavg": (38.3, 49.2, 55.0),
        "local": (10.3, 28.8, 40.5),
        "subsampling": (49.8, 42.3, 37.6),
        "sparsity-0.2": (51.5, 62.9, 65.5),
        "sparsity-0.4": (45.5, 61.4, 67.2),
        "sparsity-0.6": (38.4, 57.3, 65.2),
        "sparsity-0.8": (32.0, 49.2, 56.7),
        "uniform": (33.0, 49.3, 56.3),
    },
}
SEEDS = (1, 2, 3)
DAY = {
    **dict.fromkeys(("fedspa-dst", "fedavg", "ditto", "sub-fedavg"), SEEDS),
    **dict.fromkeys(("fedspa-rsm", "local", "uniform", "random", "count"), (1,)),
}
"""The rows of the whole that a day of two cores can run, on Fashion-MNIST under the most skewed labels, and their
seeds: three for the headline and its rivals, one for all else."""
ROUNDS = {True: {"fashion-mnist": 30, "cifar-10": 20}, False: {"fashion-mnist": 150, "cifar-10": 200}}
EVERY = 5
"""Rounds between two evaluations; `quick` has five evaluations in all."""
RATES = (0.1, 0.05)
"""Learning rates of the whole; the first is the paper's. All rates fall by a factor of 0.998 per round."""


def cases(size: Size) -> Iterator[Case]:
    """Two data sets by three settings by seven methods, and the studies of FedSpa under the most skewed labels; for a
    cluster the paper's three data sets by as many settings and methods, and its studies on CIFAR-100."""
    if size == "paper":
        yield from _originals()
        return
    day = {name_of("fashion-mnist", "0.3", row): seeds for row, seeds in DAY.items()}
    yield from (case for case in _all(size == "quick") if size != "day" or case.seed in day.get(case.of, ()))


def name_of(data: str, setting: str, method: str) -> str:
    """The run of a method, or of a study of FedSpa, in a setting.

    >>> name_of("cifar-10", "0.3", "fedspa-dst")
    'cifar-10-0.3-fedspa-dst'
    """
    return f"{data}-{setting}-{method}"


def original_of(data: str, setting: str, method: str) -> str:
    """The row with the paper's own data, net and length; the setting is iid, A or B.

    >>> original_of("cifar-10", "A", "fedspa-dst")
    'paper-cifar-10-A-fedspa-dst'
    """
    return f"{ORIGINAL}{name_of(data, setting, method)}"


def _all(quick: bool) -> Iterator[Case]:
    for data in MODELS:
        for setting in SETTINGS:
            for label, (method, options) in METHODS.items():
                if not quick or data == "fashion-mnist" or setting == "0.3":
                    for seed in SEEDS if (data, setting) == ("fashion-mnist", "0.3") else (1,):
                        yield _case(data, setting, label, method, options, quick, seed)
        for setting, studies in (SHORT_STUDIES if quick else STUDIED).items():
            for study in studies:
                if not quick or data == "fashion-mnist":
                    yield _case(data, setting, study, "fedspa", STUDIES[study], quick)


def _case(
    data: str, setting: str, label: str, method: str, options: dict[str, Any], quick: bool, seed: int = 1
) -> Case:
    rounds, epochs = ROUNDS[quick][data], 1 if quick else 5
    length: dict[str, Any] = {"epochs": epochs}
    if method == "ditto":
        options = {**options, "global_epochs": 1 if quick else 2, "personal_epochs": 1 if quick else 3}
    if method == "sub-fedavg" and quick:  # one epoch, counted in steps: it compares two moments of a training
        length = {"steps": -(-SAMPLES[data] // 128)}
    printed = PRINTED[STANDS_FOR[data]].get(label)
    source = "CIFAR-10, VGG11" if data == "cifar-10" else "EMNIST-L, LeNet5, gamma 0.2 and 0.1 for 0.5 and 0.3"
    row = name_of(data, setting, label)
    return Case(
        name=row if seed == 1 else f"{row}-{seed}",
        table=f"{data}, {MODELS[data]}, {SETTINGS[setting]}, {epochs} local epochs (paper: {source})",
        settings={
            **_settings(method, options, data, MODELS[data], SETTINGS[setting], rounds, seed, length),
            "evaluation": {"every": rounds // 5 if quick else EVERY, "post": "participants", "ft": label == "fedavg"},
        },
        paper=printed[list(SETTINGS).index(setting)] / 100 if printed else None,
        cost=rounds * epochs * (2 if method == "ditto" and quick else 1) * (2 if data == "cifar-10" else 1),
        row=row,
        grid=None if quick else Grid("training.lr", RATES, rounds // 10),
    )


def _originals() -> Iterator[Case]:
    """The rates are the paper's; nothing is chosen."""
    studies = {study: ("fedspa", options) for study, options in STUDIES.items() if study not in OURS}
    for data, task in ORIGINALS.items():
        for place, setting in enumerate(ORIGINAL_SETTINGS):
            for label, (method, options) in (METHODS | (studies if data == "cifar-100" else {})).items():
                both = {"global_epochs": 2, "personal_epochs": 3} if method == "ditto" else {}
                printed = PRINTED[data].get(label)
                row, partition = original_of(data, setting, label), task.partition(setting)
                for seed in SEEDS:
                    settings = _settings(
                        method, options | both, task.data, task.model, partition, task.rounds, seed, {"epochs": 5}
                    )
                    yield Case(
                        name=row if seed == 1 else f"{row}-{seed}",
                        table=f"{data}, {task.model}, {partition}, as in the paper",
                        settings={**settings, "evaluation": {"every": EVERY, "post": "participants"}},
                        paper=printed[place] / 100 if printed else None,
                        cost=task.cost,
                        row=row,
                    )


def _settings(
    method: str,
    options: dict[str, Any],
    data: str,
    model: str,
    partition: str,
    rounds: int,
    seed: int,
    length: dict[str, Any],
) -> dict[str, Any]:
    """What all runs have in common: 100 clients, ten of them in a round, the paper's training."""
    return {
        "method": method,
        "data": data,
        "model": model,
        "clients": 100,
        "partition": partition,
        "rounds": rounds,
        "seed": seed,
        "options": options,
        "training": {"batch": 128, "lr": 0.1, "decay": 0.998, "weight_decay": 5e-4, "clip": 10.0, **length}
        | ({"augment": True} if data.startswith("cifar") else {}),
        "schedule": {"sample": 0.1},
        "split": {"validation": 0.0},
    }


COMMAND = Command("fedspa", cases)
