"""FedPSE's runs: which there are, with which settings, and what the paper has for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sparsona.reproduce import Case, Grid, Size

METHODS = ("local", "fedavg", "fedstc", "fedscr", "fedpse")
SAMPLES = {"fashion-mnist": 60_000, "mnist": 60_000, "imdb": 25_000}
BATCH = 128
ROUNDS = {"fashion-mnist": 10, "mnist": 10, "imdb": 30}
"""How many `quick` runs."""
RATE = {"fashion-mnist": 1e-3, "mnist": 1e-3, "imdb": 1e-2}
"""The ends of the paper's range: at 1e-3 the embedding hardly moves in 20 steps."""

TABLE_1 = {
    # (data, clients, lambda): FedAVG, FedSTC, FedSCR, FedPSE
    ("mnist", 2, 1.0): (0.9785, 0.9927, 0.9904, 0.9967),
    ("mnist", 2, 0.5): (0.9901, 0.9913, 0.9851, 0.9910),
    ("mnist", 2, 0.0): (0.9905, 0.9915, 0.9867, 0.9910),
    ("mnist", 5, 1.0): (0.9694, 0.9907, 0.9741, 0.9939),
    ("mnist", 5, 0.5): (0.9899, 0.9902, 0.9816, 0.9909),
    ("mnist", 5, 0.0): (0.9904, 0.9910, 0.9851, 0.9908),
    ("mnist", 10, 1.0): (0.9530, 0.9876, 0.9791, 0.9940),
    ("mnist", 10, 0.5): (0.9725, 0.9899, 0.9801, 0.9901),
    ("mnist", 10, 0.0): (0.9904, 0.9905, 0.9819, 0.9865),
    ("fashion-mnist", 2, 1.0): (0.8781, 0.8844, 0.9031, 0.9466),
    ("fashion-mnist", 2, 0.5): (0.8804, 0.8926, 0.8624, 0.8953),
    ("fashion-mnist", 2, 0.0): (0.9003, 0.8906, 0.8523, 0.8911),
    ("fashion-mnist", 5, 1.0): (0.8068, 0.8388, 0.8403, 0.9243),
    ("fashion-mnist", 5, 0.5): (0.8835, 0.8952, 0.8512, 0.8967),
    ("fashion-mnist", 5, 0.0): (0.8995, 0.8839, 0.8641, 0.8760),
    ("fashion-mnist", 10, 1.0): (0.7909, 0.8040, 0.8305, 0.9334),
    ("fashion-mnist", 10, 0.5): (0.8697, 0.8850, 0.8655, 0.8910),
    ("fashion-mnist", 10, 0.0): (0.8993, 0.8960, 0.8644, 0.8725),
    ("imdb", 2, 1.0): (0.8406, 0.8522, 0.8961, 0.9999),
    ("imdb", 2, 0.5): (0.8804, 0.9010, 0.8811, 0.9013),
    ("imdb", 2, 0.0): (0.8810, 0.8815, 0.8815, 0.8869),
    ("imdb", 5, 1.0): (0.8494, 0.9099, 0.9375, 0.9989),
    ("imdb", 5, 0.5): (0.8864, 0.8941, 0.8862, 0.8977),
    ("imdb", 5, 0.0): (0.8827, 0.8862, 0.8841, 0.8792),
    ("imdb", 10, 1.0): (0.9080, 0.9591, 0.9633, 0.9991),
    ("imdb", 10, 0.5): (0.8900, 0.8922, 0.8901, 0.8951),
    ("imdb", 10, 0.0): (0.8908, 0.8846, 0.8770, 0.8602),
}
QUICK = [setting for setting in TABLE_1 if setting[1] == 10 or setting[2] == 1.0]
"""The settings of Table 1 that the claims are about: ten clients, or lambda = 1."""
STUDIED: dict[str, dict[str, Any]] = {"no-ewa": {"ewa": False}, "no-dps": {"dps": False}}
"""FedPSE without one of its parts, by lambda."""
LAMBDAS = (0.0, 0.5, 1.0)
SPARSITIES = (0.1, 0.4, 0.7)
"""The paper's p beside its usual 0.9, for C8."""
SAMPLED = (0.2, 0.5)
"""The shares of the clients that are asked in a round, for C9."""
PARTS: dict[Size, float] = {"quick": 0.25, "day": 0.5, "whole": 1.0}
"""How much of an epoch a client trains in a round, on images."""
SEEDS = {True: (1, 2, 3), False: (1, 2)}
"""Of Fashion-MNIST with ten clients, by `quick`."""


def cases(size: Size) -> Iterator[Case]:
    """All runs: 27 of the 36 settings of Table 1 by 5 methods (CIFAR-10 is left out), or 15 by 5 and the headline again
    with whole epochs."""
    if size == "paper":
        return
    found = (case if size == "quick" else replace(case, grid=_rates(case)) for case in _all(size))
    yield from (case for case in found if size != "day" or case.of in DAY)


def name_of(data: str, clients: int, ratio: float, method: str) -> str:
    """The run of a method in a setting.

    >>> name_of("mnist", 10, 0.5, "fedpse")
    'mnist-10-0.5-fedpse'
    """
    return f"{data}-{clients}-{ratio:g}-{method}"


def _all(size: Size) -> Iterator[Case]:
    quick, part = size == "quick", PARTS[size]
    rounds = ROUNDS if quick else dict.fromkeys(SAMPLES, 100)
    for data, clients, ratio in QUICK if quick else TABLE_1:
        for method in METHODS:
            for seed in _seeds(quick, data, clients):
                yield _case(data, clients, ratio, method, {}, part, rounds[data], seed=seed)
    studied = [(ratio, study, options) for ratio in LAMBDAS for study, options in STUDIED.items()]
    usual = rounds["fashion-mnist"]
    for ratio, study, options in [*studied, (1.0, "persist", {"opt_state": "persist"})]:
        for seed in SEEDS[quick]:
            yield _case("fashion-mnist", 10, ratio, "fedpse", options, part, usual, study, seed)
    for study, options in (("", {}), ("no-dps", {"dps": False})):
        yield _case("fashion-mnist", 10, 0.2, "fedpse", options, part, usual, study)
    for p in SPARSITIES:
        yield _case("fashion-mnist", 10, 1.0, "fedpse", {"sparsity": p}, part, usual, f"p-{p:g}")
    for share in SAMPLED:
        for method in METHODS[1:]:
            for seed in SEEDS[quick]:  # who is asked last decides much
                yield _case("fashion-mnist", 10, 1.0, method, {}, part, usual, f"sample-{share:g}", seed, share)
    if quick:
        for ratio in LAMBDAS:
            for seed in SEEDS[quick]:  # C7: a variance of two clients needs several seeds
                if (ratio, seed) != (1.0, 1):  # which is in Table 1
                    yield _case("fashion-mnist", 2, ratio, "fedpse", {}, part, usual, seed=seed)
        for method in METHODS:
            yield _case("fashion-mnist", 10, 1.0, method, {}, 1.0, 8, "epochs")


DAY = {
    name_of("fashion-mnist", 10, ratio, method)
    for ratio in LAMBDAS
    for method in (METHODS if ratio > 0 else ("fedpse",))  # C7 wants FedPSE's distances at lambda = 0, too
}
"""The rows of the whole that a day of two cores can run."""


def _rates(case: Case) -> Grid:
    """The rates that a row of the whole chooses from: its usual one, and one between the ends of the paper's range."""
    return Grid("training.lr", (RATE[case.settings["data"]], 3e-3), rounds=5)


def _seeds(quick: bool, data: str, clients: int) -> tuple[int, ...]:
    return SEEDS[quick] if (data, clients) == ("fashion-mnist", 10) else (1,)


def _case(
    data: str,
    clients: int,
    ratio: float,
    method: str,
    options: dict[str, Any],
    part: float,
    rounds: int,
    variant: str = "",
    seed: int = 1,
    sample: float = 1.0,
) -> Case:
    whole = -(-SAMPLES[data] // clients // BATCH)
    steps = None if part == 1 or data == "imdb" else max(1, round(whole * part))
    every = 10 if rounds == 100 else 0 if method == "fedavg" else rounds // 2
    passes = f"{steps} of {whole} batches" if steps else "one epoch"
    printed = dict(zip(METHODS[1:], TABLE_1.get((data, clients, ratio), ()), strict=False)).get(method)
    length = {"epochs": 1} if steps is None else {"steps": steps}
    row = name_of(data, clients, ratio, method) + (f"-{variant}" if variant else "")
    settings: dict[str, Any] = {
        "method": method,
        "data": data,
        "clients": clients,
        "partition": f"shift:{ratio}",
        "rounds": rounds,
        "seed": seed,
        "options": options,
        "training": {"optimizer": "adam", "lr": RATE[data], "batch": BATCH, **length},
        "split": {"validation": 0.0},
        "evaluation": {"every": every, "ft": method == "fedavg"},
    }
    if sample < 1:
        settings["schedule"] = {"sample": sample}
    return Case(
        name=row if seed == 1 else f"{row}-{seed}",
        table=f"{data}, N = {clients}, lambda = {ratio:g}, {passes} a round",
        settings=settings,
        paper=printed if variant in ("", "epochs", "persist") else None,
        cost=sample * rounds * (clients * steps * BATCH if steps else SAMPLES[data]) * (0.2 if data == "imdb" else 1),
        row=row,
    )


def row_of(ratio: float, method: str, clients: int = 10, data: str = "fashion-mnist") -> str:
    """The row of a method: ten clients of Fashion-MNIST, unless said otherwise."""
    return name_of(data, clients, ratio, method)
