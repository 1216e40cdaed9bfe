"""What the FedSpa paper claims, row against row, and what one would say against it: on data and nets that a CPU can
train. `originals.py` has those on the paper's own."""

from __future__ import annotations

from collections.abc import Iterator

from sparsona.reproduce import MEASURED
from sparsona.reproduce._checks import grows, measured
from sparsona.reproduce._price import in_words
from sparsona.reproduce._verdicts import At, Claim, above, accuracy, all_of, exceeds, level, never, within
from sparsona.reproduce.fedspa.checks import (
    fewer_and_above,
    fewer_numbers,
    fewer_operations,
    inside,
    operations,
    saves,
    searches,
    sooner,
    sooner_to_best,
)
from sparsona.reproduce.fedspa.hours import PRICE
from sparsona.reproduce.fedspa.originals import original_claims
from sparsona.reproduce.fedspa.plan import (
    DENSER,
    MODELS,
    ORIGINALS,
    PERSONAL,
    PRINTED,
    SETTINGS,
    STANDS_FOR,
    SWEEP,
    name_of,
)

GOALS = (0.80, 0.85)
"""The accuracies at `pre` whose rounds are compared (C3)."""
PAPERS_NET = {"fashion-mnist": "EMNIST-L, LeNet5", "cifar-10": "CIFAR-10, VGG11"}


def _number(data: str, setting: str, row: str) -> float:
    return PRINTED[STANDS_FOR[data]][row][list(SETTINGS).index(setting)]


def _printed(data: str, setting: str, rival: str) -> str:
    """The paper's two numbers for a comparison; on EMNIST-L it has Ditto, and on IID data FedAvg, above FedSpa."""
    mine, other = (_number(data, setting, row) for row in ("fedspa-dst", rival))
    return f"paper, {PAPERS_NET[data]}: {mine:g} and {other:g}"


def _of(data: str) -> Iterator[Claim]:
    """The claims that are tested on one data set."""

    def at(setting: str, *methods: str) -> tuple[str, ...]:
        return tuple(name_of(data, setting, method) for method in methods)

    for setting in ("0.3", "0.5"):
        for rival in ("ditto", "sub-fedavg", "fedavg", "fedspa-rsm", "subsampling", "local"):
            rows = sorted(("fedspa-dst", rival), key=lambda row: -_number(data, setting, row))
            for point in ("pre", "post"):
                yield Claim(
                    f"C2: {data}, {setting}: {rows[0]} above {rows[1]} at `{point}` ({_printed(data, setting, rival)})",
                    above(*at(setting, *rows), point=point),
                    PRICE.of_rows(*at(setting, *rows)),
                )
    for better in ("fedspa-rsm", "fedavg"):
        rows = [better, "fedspa-dst"]
        yield Claim(
            f"C2: {data}, IID: {better} above FedSpa (DST) at `pre` ({_printed(data, 'iid', better)})",
            above(*at("iid", *rows)),
            PRICE.of_rows(*at("iid", *rows)),
        )
    yield from _skew(data)
    yield from _sparsity(data)
    for text, setting, one, other in (
        ("C5: ERK above uniform", "0.3", "fedspa-dst", "uniform"),
        ("C5: ERK above uniform", "iid", "fedspa-dst", "uniform"),
        ("C6: gradients regrow better than chance", "0.3", "fedspa-dst", "random"),
        ("C7: RSM is better with different masks", "0.3", "rsm-different", "fedspa-rsm"),
        ("C7: RSM is worse with different masks", "iid", "fedspa-rsm", "rsm-different"),
        ("C7: RSM with different masks stays below DST", "0.3", "fedspa-dst", "rsm-different"),
        ("C7: DST is slightly better with different masks", "iid", "different", "fedspa-dst"),
        ("C7: DST is slightly better with different masks", "0.5", "different", "fedspa-dst"),
        ("ours: DST is better with different masks (of its setting B the paper says nothing)", "0.3", "different",
         "fedspa-dst"),
    ):  # fmt: skip
        for point in ("pre", "post"):
            rows = list(at(setting, one, other))
            name = "IID" if setting == "iid" else setting
            yield Claim(f"{text}, {data}, {name}, at `{point}`", above(*rows, point=point), PRICE.of_rows(*rows))
    yield from _rounds(data)
    yield from _global_model(data)
    yield from _iid(data)
    yield from _costs(data)
    for point in ("pre", "post"):
        yield Claim(
            f"ours: {data}, 0.3: averaging a weight over those who hold it (`agg=count`) above the paper's mean,"
            f" `{point}`",
            above(*at("0.3", "count", "fedspa-dst"), point=point),
            PRICE.of_rows(*at("0.3", "count", "fedspa-dst")),
        )
    yield Claim(
        f"against it: {data}, 0.3: FedAvg fine-tuned (`ft`) above FedSpa (DST) at `post`",
        above(*at("0.3", "fedavg", "fedspa-dst"), point="ft", other_point="post"),
        PRICE.of_rows(*at("0.3", "fedavg", "fedspa-dst")),
    )


def _skew(data: str) -> Iterator[Claim]:
    """5.2: the lead of DST grows with the skew of the labels."""
    for rival in ("fedavg", "ditto"):
        more, less = ((name_of(data, skew, "fedspa-dst"), name_of(data, skew, rival)) for skew in ("0.3", "0.5"))
        leads = [_number(data, skew, "fedspa-dst") - _number(data, skew, rival) for skew in ("0.3", "0.5")]
        yield Claim(
            f"5.2: {data}: DST's lead on {rival} at `pre` is larger at 0.3 than at 0.5"
            f" (paper, {PAPERS_NET[data]}: {leads[0]:.1f} and {leads[1]:.1f} points)",
            grows([[less], [more]]),
            PRICE.of_rows(*more, *less, only=[f"{data}-0.[35]-{row}*" for row in ("fedspa-dst", rival)]),
        )


def _sparsity(data: str) -> Iterator[Claim]:
    swept = [name_of(data, "0.3", "fedspa-dst" if s == 0.5 else f"sparsity-{s:g}") for s in sorted((*SWEEP, 0.5))]
    usual = name_of(data, "0.3", "fedspa-dst")
    both = [name_of(data, "0.3", "sparsity-*"), f"{usual}*"]
    for point in ("pre", "post"):
        yield Claim(
            f"C4: {data}, 0.3: some sparsity inside the sweep above both of its ends at `{point}`",
            inside(swept, point),
            PRICE.of_rows(*swept, only=both),
        )
    yield Claim(
        f"4.3 and Figure 1: {data}, 0.3: 0.5 is the best sparsity at `pre` (Table 3 contradicts it: 0.4)",
        above(usual, *(row for row in swept if row != usual)),
        PRICE.of_rows(*swept, only=both),
    )
    more, less = ((name_of(data, s, "sparsity-0.4"), name_of(data, s, "sparsity-0.2")) for s in ("0.3", "iid"))
    yield Claim(
        f"abstract and B.4: {data}: a sparsity of 0.4 gains on 0.2 at `pre` as the labels get skewed, from IID to 0.3",
        grows([[less], [more]]),
        PRICE.of_rows(*more, *less),
    )
    rivals = [name_of(data, "0.3", row) for row in DENSER]
    yield Claim(
        f"Figure 1: {data}, 0.3: DST sends fewer numbers than {', '.join(DENSER)} and is above them at `pre`",
        fewer_and_above(usual, *rivals),
        PRICE.of_rows(usual, *rivals),
    )


def _rounds(data: str) -> Iterator[Claim]:
    """Who is sooner, on Fashion-MNIST, where the runs of the whole are long enough."""
    if data != "fashion-mnist":
        return
    mine = name_of(data, "0.3", "fedspa-dst")
    for rival in ("ditto", "fedavg"):
        other = name_of(data, "0.3", rival)
        cost = PRICE.of_rows(mine, other, seeds=2, at_least="day")
        for goal in GOALS:
            yield Claim(
                f"C3: {data}, 0.3: FedSpa (DST) has {goal:.0%} at `pre` in fewer rounds than {rival}"
                f" (paper: to 80 % on CIFAR-10 DST 270, Ditto 418, FedAvg 584)",
                sooner(mine, other, goal),
                cost,
            )
        saved = {"fedavg": 76.2, "ditto": 38.1}[rival]
        yield Claim(
            f"introduction: {data}, 0.3: DST gets to the best accuracy of {rival} at `pre` in fewer rounds"
            f" (paper: {saved} % fewer)",
            sooner_to_best(mine, other),
            cost,
        )


def _global_model(data: str) -> Iterator[Claim]:
    for setting, name in (("0.3", "0.3"), ("iid", "IID")):
        row, rival = name_of(data, setting, "fedspa-dst"), name_of(data, setting, "fedavg")
        server = At(row, "pre", accuracy("server"))
        short = data == "fashion-mnist" or setting == "0.3"
        cost = PRICE.of_rows(row, rival, again=short)
        yield Claim(
            f"C8: FedSpa's global model is worse than FedAvg's, {data}, {name}", exceeds(At(rival), server), cost
        )
        if setting == "iid":
            text = f"C8: FedSpa's global model is within 1.5 points of its own personal ones, {data}, IID"
            yield Claim(text, level(At(row), server, 0.015), cost)
        else:
            text = f"C8: FedSpa's global model is worse than its own personal ones, {data}, {name}"
            yield Claim(text, exceeds(At(row), server), cost)


def _iid(data: str) -> Iterator[Claim]:
    """RSM is as FedAvg is, and what is personal loses on IID data."""
    for setting, text in (("iid", "5.2: {}, IID: RSM"), ("0.3", "Figure 6: {}, 0.3: RSM with one mask")):
        rows = [name_of(data, setting, row) for row in ("fedspa-rsm", "fedavg")]
        yield Claim(
            f"{text.format(data)} within 1.5 points of FedAvg at `pre`", within(0.015, *rows), PRICE.of_rows(*rows)
        )
    personal = [name_of(data, "iid", row) for row in PERSONAL]
    for better in ("fedspa-rsm", "fedavg"):
        rows = [name_of(data, "iid", better), *personal]
        yield Claim(
            f"5.2: {data}, IID: {better} above the personal methods (Ditto, Sub-FedAvg, DST) at `pre`",
            above(*rows),
            PRICE.of_rows(*rows),
        )
    printed = ", ".join(f"{_number(data, 'iid', row):g}" for row in PERSONAL)
    yield Claim(
        f"5.2: {data}, IID: Ditto above the compression-based Sub-FedAvg and DST at `pre`"
        f" (paper, {PAPERS_NET[data]}: {printed})",
        above(*personal),
        PRICE.of_rows(*personal),
    )


def _costs(data: str) -> Iterator[Claim]:
    """Numbers and operations, which do not depend on the seed."""

    def row(method: str) -> str:
        return name_of(data, "0.3", method)

    saved, net = (0.246, "VGG11") if data == "cifar-10" else (0.4, "LeNet5, where it is 42.9 %")
    for text, one, other, check, most in (
        (f"5.2: {data}: FedSpa sends at least 13 % fewer numbers than Sub-FedAvg (paper: 13.0 to 28.2 %)",
         "fedspa-dst", "sub-fedavg", fewer_numbers, 0.87),
        (f"5.2: {data}: Sub-FedAvg takes fewer operations than FedSpa (DST)",
         "sub-fedavg", "fedspa-dst", fewer_operations, 1.0),
        (f"C9: {data}: FedSpa sends half of FedAvg's numbers", "fedspa-dst", "fedavg", fewer_numbers, 0.5001),
        *((f"C9: {data}: at least {saved:.1%} fewer operations than FedAvg, {search.upper()}, its search included"
           f" (paper: {net}, five epochs; with one the search weighs five times as much)",
           f"fedspa-{search}", "fedavg", fewer_operations, 1 - saved) for search in ("rsm", "dst")),
        (f"Table 4: {data}: uniform takes fewer operations than ERK (paper: 34.3 % on ResNet18)",
         "uniform", "fedspa-dst", fewer_operations, 1.0),
    ):  # fmt: skip
        yield Claim(text, check(row(one), row(other), most), PRICE.of_rows(row(one), row(other)))


def _harder() -> Iterator[Claim]:
    """5.2: what grows from Fashion-MNIST to CIFAR-10, which is the harder."""
    easy, hard = MODELS
    for rival in ("fedavg", "ditto"):
        more, less = ((name_of(data, "0.3", "fedspa-dst"), name_of(data, "0.3", rival)) for data in (hard, easy))
        leads = [_number(data, "0.3", "fedspa-dst") - _number(data, "0.3", rival) for data in (hard, easy)]
        yield Claim(
            f"5.2: 0.3: DST's lead on {rival} at `pre` is larger on {hard} than on {easy}"
            f" (paper, CIFAR-10 and EMNIST-L: {leads[0]:.1f} and {leads[1]:.1f} points)",
            grows([[less], [more]]),
            PRICE.of_rows(*more, *less, only=[f"*-0.3-{row}*" for row in ("fedspa-dst", rival)]),
        )
    for loser in PERSONAL:
        more, less = ((name_of(data, "iid", "fedavg"), name_of(data, "iid", loser)) for data in (hard, easy))
        losses = [_number(data, "iid", "fedavg") - _number(data, "iid", loser) for data in (hard, easy)]
        yield Claim(
            f"5.2: IID: {loser} is further below FedAvg at `pre` on {hard} than on {easy}"
            f" (paper, CIFAR-10 and EMNIST-L: {losses[0]:.1f} and {losses[1]:.1f} points)",
            grows([[less], [more]]),
            PRICE.of_rows(*more, *less, only=[f"*-iid-{row}*" for row in ("fedavg", loser)]),
        )


def _counts() -> Iterator[Claim]:
    """What follows from the nets alone, with the paper's samples and epochs."""
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
    *(claim for data in MODELS for claim in _of(data)),
    *_harder(),
    *_counts(),
    Claim(
        "Table 5: LeNet5 on a CPU: the search takes at most 20 % of the time of the training (paper: 8.9 %)",
        measured(f"{MEASURED}search-lenet5", "time", 0.2),
        f"`python benchmarks/fedspa.py`: {in_words(0.1)}",
    ),
    Claim(
        "abstract: FedSpa takes less memory than dense training",
        never("runs measure no memory and train in dense buffers under a mask; half of the weights are active (C9)"),
        "no command: it needs kernels for sparse weights",
    ),
    *original_claims(),
]
