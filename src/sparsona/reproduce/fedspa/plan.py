"""FedSpa's runs: which there are, with which settings, and what the paper has for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparsona.reproduce import Case, Grid, Size

MODELS = {"fashion-mnist": "lenet5", "cifar-10": "lenet-cifar"}
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
SWEEP = (0.2, 0.4, 0.6, 0.8)
STUDIES: dict[str, dict[str, Any]] = {
    **{f"sparsity-{s:g}": {"density": round(1 - s, 3)} for s in SWEEP},
    "uniform": {"init": "uniform"},
    "rsm-different": {"search": "rsm", "same_init": False},
    "different": {"same_init": False},
    "random": {"regrow": "random"},
    "count": {"agg": "count"},
}
TABLE_1 = {
    # IID, setting A, setting B: CIFAR-10 with VGG11 has gamma 0.5 and 0.3, EMNIST-L with LeNet5 0.2 and 0.1
    "cifar-10": {
        "fedspa-dst": (83.4, 86.6, 88.2),
        "fedspa-rsm": (84.5, 82.1, 80.9),
        "ditto": (83.5, 86.4, 87.8),
        "fedavg": (84.8, 82.0, 81.4),
        "sub-fedavg": (71.8, 78.3, 79.6),
        "local": (42.5, 63.6, 69.4),
        "subsampling": (83.0, 78.9, 76.7),
    },
    "fashion-mnist": {
        "fedspa-dst": (92.2, 95.3, 96.5),
        "fedspa-rsm": (92.9, 91.9, 90.6),
        "ditto": (92.9, 95.9, 97.0),
        "fedavg": (93.5, 92.3, 90.9),
        "sub-fedavg": (90.7, 94.9, 96.4),
        "local": (77.6, 87.8, 91.6),
        "subsampling": (93.3, 92.0, 91.3),
    },
}
SEEDS = (1, 2, 3)
DAY = {
    **dict.fromkeys(("fedspa-dst", "fedavg"), SEEDS),
    **dict.fromkeys(("fedspa-rsm", "ditto", "sub-fedavg", "local", "uniform", "random", "count"), (1,)),
}
"""The rows of the whole that a day of two cores can run, on Fashion-MNIST under the most skewed labels, and their
seeds: three for the headline, one for all else."""
ROUNDS = {True: {"fashion-mnist": 30, "cifar-10": 20}, False: {"fashion-mnist": 150, "cifar-10": 200}}
RATES = (0.1, 0.05)
"""Of the whole; the first is the paper's. All rates fall by 0.998 a round."""


def cases(size: Size) -> Iterator[Case]:
    """Two data sets by three settings by seven methods, and the studies of FedSpa under the most skewed labels."""
    if size == "paper":
        return
    day = {name_of("fashion-mnist", "0.3", row): seeds for row, seeds in DAY.items()}
    yield from (case for case in _all(size == "quick") if size != "day" or case.seed in day.get(case.of, ()))


def name_of(data: str, setting: str, method: str) -> str:
    """The run of a method, or of a study of FedSpa, in a setting.

    >>> name_of("cifar-10", "0.3", "fedspa-dst")
    'cifar-10-0.3-fedspa-dst'
    """
    return f"{data}-{setting}-{method}"


def _all(quick: bool) -> Iterator[Case]:
    for data in MODELS:
        for setting in SETTINGS:
            for label, (method, options) in METHODS.items():
                if not quick or data == "fashion-mnist" or setting == "0.3":
                    for seed in SEEDS if (data, setting) == ("fashion-mnist", "0.3") else (1,):
                        yield _case(data, setting, label, method, options, quick, seed)
        for setting in ("iid", "0.3"):
            for study, options in STUDIES.items():
                if not quick or (data == "fashion-mnist" and (setting == "0.3" or study == "rsm-different")):
                    yield _case(data, setting, study, "fedspa", options, quick)


def _case(
    data: str, setting: str, label: str, method: str, options: dict[str, Any], quick: bool, seed: int = 1
) -> Case:
    rounds, epochs = ROUNDS[quick][data], 1 if quick else 5
    length: dict[str, Any] = {"epochs": epochs}
    if method == "ditto":
        options = {**options, "global_epochs": 1 if quick else 2, "personal_epochs": 1 if quick else 3}
    if method == "sub-fedavg" and quick:  # one epoch, counted in steps: it compares two moments of a training
        length = {"steps": -(-SAMPLES[data] // 128)}
    printed = TABLE_1[data].get(label)
    source = "CIFAR-10, VGG11" if data == "cifar-10" else "EMNIST-L, LeNet5, gamma 0.2 and 0.1 for 0.5 and 0.3"
    row = name_of(data, setting, label)
    return Case(
        name=row if seed == 1 else f"{row}-{seed}",
        table=f"{data}, {MODELS[data]}, {SETTINGS[setting]}, {epochs} local epochs (paper: {source})",
        settings={
            "method": method,
            "data": data,
            "model": MODELS[data],
            "clients": 100,
            "partition": SETTINGS[setting],
            "rounds": rounds,
            "seed": seed,
            "options": options,
            "training": {"batch": 128, "lr": 0.1, "decay": 0.998, "weight_decay": 5e-4, "clip": 10.0, **length}
            | ({"augment": True} if data == "cifar-10" else {}),
            "schedule": {"sample": 0.1},
            "split": {"validation": 0.0},
            "evaluation": {"every": rounds // 5 if quick else 5, "post": "participants", "ft": label == "fedavg"},
        },
        paper=printed[list(SETTINGS).index(setting)] / 100 if printed else None,
        cost=rounds * epochs * (2 if method == "ditto" and quick else 1) * (2 if data == "cifar-10" else 1),
        row=row,
        grid=None if quick else Grid("training.lr", RATES, rounds // 10),
    )
