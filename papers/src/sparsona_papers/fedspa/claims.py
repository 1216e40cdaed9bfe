"""The claims of the FedSpa paper, and objections, on data and nets that a CPU can train. `originals.py` has those on
the paper's own data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparsona_papers._checks import measured
from sparsona_papers._tables import MEASURED
from sparsona_papers._verdicts import Claim, above, all_of, never
from sparsona_papers.fedspa import shared_claims as shared
from sparsona_papers.fedspa.checks import fewer_numbers, fewer_operations, operations, saves, searches, sooner
from sparsona_papers.fedspa.originals import original_claims
from sparsona_papers.fedspa.plan import COMMAND, MODELS, ORIGINALS, PRINTED, STANDS_FOR
from sparsona_papers.fedspa.shared_claims import Testbed, setting_name

GOALS = (0.80, 0.85)
"""The accuracies at `pre` whose rounds are compared (C3)."""
PAPERS_NET = {"fashion-mnist": "EMNIST-L, LeNet5", "cifar-10": "CIFAR-10, VGG11"}
TESTBEDS = [
    Testbed(
        data=data,
        told=data,
        prefix="",
        settings=("iid", "0.5", "0.3"),
        skewed="0.[35]",
        printed=PRINTED[STANDS_FOR[data]],
        source=f"paper, {PAPERS_NET[data]}",
        at=" at `pre`",
    )
    for data in MODELS
]
"""The data sets that a CPU can train on, the easier first."""


def _of(where: Testbed) -> Iterator[Claim]:
    """The claims that are tested on one data set."""
    for setting in ("0.3", "0.5"):
        for rival in ("ditto", "sub-fedavg", "fedavg", "fedspa-rsm", "subsampling", "local"):
            numbers = where.numbers(setting, "fedspa-dst", rival, between=" and ")
            order = where.best_first(setting, "fedspa-dst", rival)
            for point in ("pre", "post"):
                yield shared.ranked(where, "C2", setting, order, f" at `{point}` ({numbers})", point)
    for better in ("fedspa-rsm", "fedavg"):
        numbers = where.numbers("iid", "fedspa-dst", better, between=" and ")
        text = f"C2: {where.told}, IID: {better} above FedSpa (DST) at `pre` ({numbers})"
        yield where.above(text, "iid", better, "fedspa-dst")
    yield from shared.lead_grows_with_skew(where, "larger at 0.3 than at 0.5")
    yield from _sparsity(where)
    unsaid = "ours: DST is better with different masks (of its setting B the paper says nothing)"
    for said, setting in (
        (shared.ERK, "0.3"),
        (shared.ERK, "iid"),
        (shared.REGROWTH, "0.3"),
        (shared.RSM_GAINS, "0.3"),
        (shared.RSM_LOSES, "iid"),
        (shared.RSM_BELOW, "0.3"),
        (shared.DST_GAINS, "iid"),
        (shared.DST_GAINS, "0.5"),
        (replace(shared.DST_GAINS, text=unsaid), "0.3"),
    ):
        for point in ("pre", "post"):
            text = f"{said.text}, {where.told}, {setting_name(setting)}, at `{point}`"
            yield where.above(text, setting, said.one, said.other, point=point)
    yield from _rounds(where)
    for setting in ("0.3", "iid"):
        short = where.data == "fashion-mnist" or setting == "0.3"
        cost = COMMAND.of_rows(*where.rows(setting, "fedspa-dst", "fedavg"), again=short)
        yield from shared.global_model(where, setting, cost, cost)
    yield shared.rsm_as_fedavg(where, "iid", f"5.2: {where.told}, IID: RSM", where.at)
    yield shared.rsm_as_fedavg(where, "0.3", f"Figure 6: {where.told}, 0.3: RSM with one mask", where.at)
    yield from shared.personal_lose_on_iid(where, lambda rows: "")
    yield from _costs(where)
    for point in ("pre", "post"):
        text = (
            f"ours: {where.told}, 0.3: averaging a weight over those who hold it (`agg=count`) above the paper's mean"
        )
        yield where.above(f"{text}, `{point}`", "0.3", "count", "fedspa-dst", point=point)
    rows = where.rows("0.3", "fedavg", "fedspa-dst")
    yield Claim(
        f"against it: {where.told}, 0.3: FedAvg fine-tuned (`ft`) above FedSpa (DST) at `post`",
        above(*rows, point="ft", other_point="post"),
        COMMAND.of_rows(*rows),
    )


def _sparsity(where: Testbed) -> Iterator[Claim]:
    for point in ("pre", "post"):
        yield shared.sparsity_inside(where, "0.3", f" at `{point}`", point)
    contradicted = " at `pre` (Table 3 contradicts it: 0.4)"
    yield shared.best_sparsity(where, "4.3 and Figure 1", "0.3", 0.5, contradicted)
    yield shared.sparsity_gains(where, "iid", "0.3", "as the labels get skewed, from IID to 0.3")
    yield shared.fewer_numbers_and_above(where, "0.3")


def _rounds(where: Testbed) -> Iterator[Claim]:
    """Return claims about rounds, on Fashion-MNIST, for which the size `whole` is long enough."""
    if where.data != "fashion-mnist":
        return
    for rival in ("ditto", "fedavg"):
        mine, other = where.rows("0.3", "fedspa-dst", rival)
        for goal in GOALS:
            yield Claim(
                f"C3: {where.told}, 0.3: FedSpa (DST) has {goal:.0%} at `pre` in fewer rounds than {rival}"
                f" (paper: to 80 % on CIFAR-10 DST 270, Ditto 418, FedAvg 584)",
                sooner(mine, other, goal),
                COMMAND.of_rows(mine, other, seeds=2, at_least="day"),
            )
        yield shared.sooner_to_best_of(where, "0.3", rival)


def _costs(where: Testbed) -> Iterator[Claim]:
    """Numbers and operations, which do not depend on the seed."""
    yield from shared.beside_sub_fedavg(where, where.told, "0.3", 13, "13.0 to 28.2 %")
    saved, net = (0.246, "VGG11") if where.data == "cifar-10" else (0.4, "LeNet5, where it is 42.9 %")
    for text, one, other, check, most in (
        (f"C9: {where.told}: FedSpa sends half of FedAvg's numbers", "fedspa-dst", "fedavg", fewer_numbers, 0.5001),
        *((f"C9: {where.told}: at least {saved:.1%} fewer operations than FedAvg, {search.upper()}, its search included"
           f" (paper: {net}, five epochs; with one the search weighs five times as much)",
           f"fedspa-{search}", "fedavg", fewer_operations, 1 - saved) for search in ("rsm", "dst")),
        (f"Table 4: {where.told}: uniform takes fewer operations than ERK (paper: 34.3 % on ResNet18)",
         "uniform", "fedspa-dst", fewer_operations, 1.0),
    ):  # fmt: skip
        first, second = where.rows("0.3", one, other)
        yield Claim(text, check(first, second, most), COMMAND.of_rows(first, second))


def _counts() -> Iterator[Claim]:
    """Return claims that follow from the nets alone, with the paper's samples and epochs."""
    for data, least, printed in (
        ("cifar-100", 0.153, "15.3 % in the introduction, 15.4 % in 5.2"),
        ("cifar-10", 0.246, "24.6 %, Table 1"),
        ("emnist-letters", 0.429, "42.9 %, 5.2"),
    ):
        yield Claim(
            f"C9: counted for {ORIGINALS[data].model}: FedSpa, its search included, takes at least {least:.1%} fewer"
            f" operations than FedAvg (paper: {printed})",
            saves(least, operations(data), operations(data, 0.5)),
        )
    yield Claim(
        "Table 4: counted for resnet18-gn: uniform takes at least 34 % fewer operations than ERK (paper: 34.3 %)",
        saves(0.34, operations("cifar-100", 0.5), operations("cifar-100", 0.5, uniform=True)),
    )
    yield Claim(
        "Table 5: counted for the three nets: the search takes at most 20 % of the operations of the training"
        " (paper: 5 to 20 % of the time)",
        all_of({task.model: searches(0.2, operations(data, 0.5)) for data, task in ORIGINALS.items()}),
    )


CLAIMS = [
    *(claim for where in TESTBEDS for claim in _of(where)),
    *shared.harder(
        TESTBEDS, "0.3", lambda leads: f"paper, CIFAR-10 and EMNIST-L: {leads[1]:.1f} and {leads[0]:.1f} points"
    ),
    *_counts(),
    Claim(
        "Table 5: LeNet5 on a CPU: the search takes at most 20 % of the time of the training (paper: 8.9 %)",
        measured(f"{MEASURED}search-lenet5", "time", 0.2),
        "`python benchmarks/fedspa.py`",
    ),
    Claim(
        "abstract: FedSpa takes less memory than dense training",
        never("runs measure no memory and train in dense buffers under a mask; half of the weights are active (C9)"),
        "no command: it needs kernels for sparse weights",
    ),
    *original_claims(),
]
