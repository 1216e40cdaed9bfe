"""FedPSE's runs: their settings, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sparsona_papers._command import Command
from sparsona_papers._paper import Case, Grid, Size

METHODS = ("local", "fedavg", "fedstc", "fedscr", "fedpse")
CIFAR = "cifar-10"
SAMPLES = {"fashion-mnist": 60_000, "mnist": 60_000, "imdb": 25_000, CIFAR: 50_000}
WORK = {"imdb": 0.2, CIFAR: 150.0}
"""The work per sample, in units of a 28x28 image in ConvNet2."""
BATCH = 128
ROUNDS = {"fashion-mnist": 10, "mnist": 10, "imdb": 30}
"""Sizes of the runs of `quick`."""
RATE = {"fashion-mnist": 1e-3, "mnist": 1e-3, "imdb": 1e-2, CIFAR: 1e-3}
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
    (CIFAR, 2, 1.0): (0.7508, 0.7611, 0.7723, 0.8576),
    (CIFAR, 2, 0.5): (0.7712, 0.7732, 0.7731, 0.7743),
    (CIFAR, 2, 0.0): (0.7736, 0.7711, 0.7724, 0.7721),
    (CIFAR, 5, 1.0): (0.7654, 0.7786, 0.7841, 0.8602),
    (CIFAR, 5, 0.5): (0.7760, 0.7801, 0.7822, 0.7843),
    (CIFAR, 5, 0.0): (0.7805, 0.7805, 0.7804, 0.7780),
    (CIFAR, 10, 1.0): (0.7630, 0.7721, 0.7734, 0.8741),
    (CIFAR, 10, 0.5): (0.7800, 0.7811, 0.7832, 0.7856),
    (CIFAR, 10, 0.0): (0.7815, 0.7822, 0.7788, 0.7770),
}
TABLE_2 = {
    # the same, where Table 1 has no such number of clients
    ("fashion-mnist", 25, 1.0): (0.8045, 0.8553, 0.8612, 0.9021),
    ("fashion-mnist", 50, 1.0): (0.8071, 0.8343, 0.8531, 0.8939),
    ("fashion-mnist", 100, 1.0): (0.7921, 0.8211, 0.8344, 0.8772),
    ("imdb", 25, 1.0): (0.8570, 0.9104, 0.9112, 0.9923),
    ("imdb", 50, 1.0): (0.8356, 0.9003, 0.9085, 0.9986),
    ("imdb", 100, 1.0): (0.8401, 0.9036, 0.9101, 0.9975),
}
WHOLE = [setting for setting in TABLE_1 if setting[0] != CIFAR]
QUICK = [setting for setting in WHOLE if setting[1] == 10 or setting[2] == 1.0]
"""The settings of Table 1 that the claims are about: ten clients, or lambda = 1."""
STUDIED: dict[str, dict[str, Any]] = {"no-ewa": {"ewa": False}, "no-dps": {"dps": False}}
"""FedPSE without one of its parts, by lambda."""
LAMBDAS = (0.0, 0.5, 1.0)
BETWEEN = (0.2, 0.4, 0.6, 0.8)
"""The other lambdas of figures 5 and 8, taken to be in steps of 0.2: the paper prints none."""
USUAL = 0.9
"""The paper's p, except in figure 4."""
SPARSITIES = (0.1, 0.4, 0.7)
"""Some of the other p of figure 4, for C8."""
EVERY_P = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, USUAL)
"""All p of figure 4, for C5."""
FEW, MANY = (2, 5, 10), (25, 50, 100)
"""Numbers of clients in Table 1, and further ones in Table 2."""
ALONE = ((CIFAR, 10, 1.0), ("fashion-mnist", 100, 1.0))
"""Settings with `local` in the size `paper`: the largest net, and the least data per client."""
SAMPLED = (0.2, 0.5)
"""The sampled shares of clients for C9. Figure 7 prints none."""
TUNED = "tuned"
RATES = (1e-3, 3e-3, 1e-2)
"""Learning rates to choose from: both ends of the paper's range, and one between."""
PARTS: dict[Size, float] = {"quick": 0.25, "day": 0.5, "whole": 1.0}
"""Share of an epoch per client and round, on images."""
SEEDS: dict[Size, tuple[int, ...]] = {"quick": (1, 2, 3), "day": (1, 2, 3), "whole": (1, 2)}
"""Seeds of Fashion-MNIST with ten clients."""
THREE = (1, 2, 3)
"""Of figures 2, 4, 5, 7 and 8 in `paper`: gains of a point need an interval. The paper has seed 1 alone."""
LENGTH = 100
"""The rounds of the paper's listing."""
LONG_GRID = Grid("training.lr", RATES, rounds=LENGTH // 5)
"""Learning rates of long rows, chosen in a fifth of the rounds: five rounds prefer rates that lose later."""


def cases(size: Size) -> Iterator[Case]:
    """Return all runs. The whole has 27 of the 36 settings of Table 1 by 5 methods; `paper` has the 9 of CIFAR-10 and
    further studies. `quick` has 15 by 5, and the headline again with whole epochs and with rates from validation
    samples.
    """
    if size == "quick":
        yield from _all(size)
        yield from _tuned()
    elif size == "paper":
        yield from {case.name: replace(case, grid=LONG_GRID) for case in _paper()}.values()
    else:
        found = (replace(case, grid=LONG_GRID) for case in _all(size))
        yield from (case for case in found if size != "day" or case.seed in DAY.get(case.of, ()))


def name_of(data: str, clients: int, ratio: float, method: str) -> str:
    """Return the name of the run of a method in a setting.

    >>> name_of("mnist", 10, 0.5, "fedpse")
    'mnist-10-0.5-fedpse'
    """
    return f"{data}-{clients}-{ratio:g}-{method}"


def _all(size: Size) -> Iterator[Case]:
    quick, part = size == "quick", PARTS[size]
    rounds = ROUNDS if quick else dict.fromkeys(SAMPLES, LENGTH)
    for data, clients, ratio in QUICK if quick else WHOLE:
        for method in METHODS:
            for seed in _seeds(size, data, clients):
                yield _case(data, clients, ratio, method, {}, part, rounds[data], seed=seed)
    studied = [(ratio, study, options) for ratio in LAMBDAS for study, options in STUDIED.items()]
    usual = rounds["fashion-mnist"]
    for ratio, study, options in [*studied, (1.0, "persist", {"opt_state": "persist"})]:
        for seed in SEEDS[size]:
            yield _case("fashion-mnist", 10, ratio, "fedpse", options, part, usual, study, seed)
    for study, options in (("", {}), ("no-dps", {"dps": False})):
        yield _case("fashion-mnist", 10, 0.2, "fedpse", options, part, usual, study)
    for p in SPARSITIES:
        yield _case("fashion-mnist", 10, 1.0, "fedpse", {"sparsity": p}, part, usual, f"p-{p:g}")
    for share in SAMPLED:
        for method in METHODS[1:]:
            for seed in SEEDS[size]:  # who is asked last decides much
                yield _case("fashion-mnist", 10, 1.0, method, {}, part, usual, f"sample-{share:g}", seed, share)
    if quick:
        for clients in (2, 5):
            for ratio in LAMBDAS:
                for seed in SEEDS[size]:  # C7: a variance of two clients needs several seeds
                    if (ratio, seed) != (1.0, 1):  # which is in Table 1
                        yield _case("fashion-mnist", clients, ratio, "fedpse", {}, part, usual, seed=seed)
        for method in METHODS:
            yield _case("fashion-mnist", 10, 1.0, method, {}, 1.0, 8, "epochs")


def _tuned() -> Iterator[Case]:
    """The headline of `quick` again: each row chooses its rate on validation samples, in half as many rounds."""
    part, rounds = PARTS["quick"], ROUNDS["fashion-mnist"]
    for ratio in (1.0, 0.5):
        for method in METHODS:
            for seed in SEEDS["quick"]:
                case = _case("fashion-mnist", 10, ratio, method, {}, part, rounds, TUNED, seed)
                table = f"{case.table}, rates chosen on validation samples"
                yield replace(case, table=table, grid=Grid("training.lr", RATES, rounds // 2))


def _paper() -> Iterator[Case]:
    """Return the rows of the paper's tables and figures that the whole lacks, at the same length. Rows of the whole
    that a mean or a curve needs are here, too; kept runs are not made again.
    """
    fashion = "fashion-mnist"
    settings = [setting for setting in TABLE_1 if setting[0] == CIFAR]
    settings += [(data, clients, 1.0) for data in (fashion, "imdb") for clients in (*FEW, *MANY)]  # Table 2
    for data, clients, ratio in settings:
        for method in METHODS if (data, clients, ratio) in ALONE else METHODS[1:]:
            yield _case(data, clients, ratio, method, {}, 1.0, LENGTH)
    for seed in THREE:
        for method in METHODS[1:]:
            yield _every_round(_case(fashion, 5, 1.0, method, {}, 1.0, LENGTH, "curve", seed))  # figure 2
            for share in SAMPLED:  # figure 7
                yield _case("imdb", 10, 1.0, method, {}, 1.0, LENGTH, f"sample-{share:g}", seed, share)
        for clients in FEW:  # figure 4
            for p in EVERY_P:
                for ewa in (True, False):
                    options = ({} if p == USUAL else {"sparsity": p}) | ({} if ewa else STUDIED["no-ewa"])
                    yield _case(fashion, clients, 1.0, "fedpse", options, 1.0, LENGTH, _variant(p, ewa), seed)
        for ratio in BETWEEN:  # figures 5 and 8
            for study, options in ({"": {}} | STUDIED).items():
                yield _case(fashion, 10, ratio, "fedpse", options, 1.0, LENGTH, study, seed)


def _every_round(case: Case) -> Case:
    return replace(case, settings={**case.settings, "evaluation": {**case.settings["evaluation"], "every": 1}})


def _variant(p: float, ewa: bool) -> str:
    return "-".join(filter(None, ("" if p == USUAL else f"p-{p:g}", "" if ewa else "no-ewa")))


HEADLINE = ("fedpse", "fedavg")
DAY = {
    name_of("fashion-mnist", 10, ratio, method): SEEDS["day"] if ratio > 0 and method in HEADLINE else (1,)
    for ratio in LAMBDAS
    for method in (METHODS if ratio > 0 else ("fedpse",))  # C7 wants FedPSE's distances at lambda = 0, too
}
"""The rows of the whole that a day of two cores can run, and their seeds: three for the headline, one for all else. Two
seeds of all rows would take longer and decide less."""


def _seeds(size: Size, data: str, clients: int) -> tuple[int, ...]:
    return SEEDS[size] if (data, clients) == ("fashion-mnist", 10) else (1,)


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
    every = 10 if rounds == LENGTH else 0 if method == "fedavg" else rounds // 2
    passes = f"{steps} of {whole} batches" if steps else "one epoch"
    numbers = (TABLE_1 | TABLE_2).get((data, clients, ratio), ())
    printed = dict(zip(METHODS[1:], numbers, strict=False)).get(method)
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
    if data == CIFAR:
        settings["model"] = "resnet18-gn"
    if sample < 1:
        settings["schedule"] = {"sample": sample}
    return Case(
        name=row if seed == 1 else f"{row}-{seed}",
        table=f"{data}, N = {clients}, lambda = {ratio:g}, {passes} a round",
        settings=settings,
        paper=printed if variant in ("", "epochs", "persist", TUNED, "curve") else None,
        cost=work_of(settings),
        row=row,
    )


def work_of(settings: Mapping[str, Any]) -> float:
    """The samples that a run trains on, in units of a 28x28 image."""
    data, steps = settings["data"], settings["training"].get("steps")
    a_round = settings["clients"] * steps * BATCH if steps else SAMPLES[data]
    share = settings.get("schedule", {}).get("sample", 1.0) * (1 - settings["split"]["validation"])
    return float(share * settings["rounds"] * a_round * WORK.get(data, 1))


def row_of(ratio: float, method: str, clients: int = 10, data: str = "fashion-mnist") -> str:
    """The row of a method: ten clients of Fashion-MNIST, unless said otherwise."""
    return name_of(data, clients, ratio, method)


def row_with(p: float, ewa: bool = True, clients: int = 10) -> str:
    """The row of FedPSE with a sparsity, with or without EWA, at lambda = 1 on Fashion-MNIST.

    >>> row_with(0.9), row_with(0.2, ewa=False, clients=2)
    ('fashion-mnist-10-1-fedpse', 'fashion-mnist-2-1-fedpse-p-0.2-no-ewa')
    """
    return "-".join(filter(None, (row_of(1.0, "fedpse", clients), _variant(p, ewa))))


COMMAND = Command("fedpse", cases)
