"""The claims of the FedPSE paper, and objections."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sparsona_papers._checks import bytes_sent, grows, mean_above, numbers_sent, share
from sparsona_papers._differences import RowAt, extra
from sparsona_papers._paper import Size
from sparsona_papers._verdicts import Check, Claim, above, all_of, loses, within
from sparsona_papers.fedpse.checks import rising
from sparsona_papers.fedpse.plan import (
    ALONE,
    BETWEEN,
    CIFAR,
    COMMAND,
    EVERY_P,
    FEW,
    LAMBDAS,
    MANY,
    METHODS,
    SAMPLED,
    SAMPLES,
    SPARSITIES,
    TABLE_1,
    TUNED,
    row_of,
    row_with,
)
from sparsona_papers.fedpse.readings import OVER_ROUNDS, SWING

RIVALS = METHODS[1:4]
POINTS = ("pre", "post")
RIVALS_TOLD = "FedAvg, FedSTC and FedSCR"
TOLD = {CIFAR: "cifar-10 from scratch (the paper's ResNet18 starts from weights that it does not name)"}
"""Data sets whose names need a remark."""
TEN = "fashion-mnist-10-1-fed???"
"""The rows of the headline, first seed."""


def claims(size: Size) -> Iterator[Claim]:
    """Return all claims, the same in every size. Every row chooses its rate on validation samples; in `quick` only rows
    that say so in their names.
    """
    yield from _headline()
    yield from _chosen(size)
    yield from _table_1()
    yield from _efficiency()
    yield from _table_2()
    yield from _parts()
    yield from _distances()
    yield from _sparsities()
    yield from _some_clients()
    yield from _against()


def _best(ratio: float, clients: int, data: str, point: str = "pre", variant: str = "") -> Check:
    """Return whether FedPSE is above FedAvg, FedSTC and FedSCR."""
    end = f"-{variant}" if variant else ""
    return above(*(row_of(ratio, m, clients, data) + end for m in ("fedpse", *RIVALS)), point=point)


def _rows(ratio: float, clients: int, data: str) -> str:
    """A pattern for the rows of FedAvg, FedSTC, FedSCR and FedPSE, first seed."""
    return row_of(ratio, "fed???", clients, data)


def _headline() -> Iterator[Claim]:
    for number, data in (("C1", "fashion-mnist"), ("C2", "mnist"), ("C2", "imdb"), ("C2", CIFAR)):
        for n in FEW:
            for point in POINTS:
                yield Claim(
                    f"{number}: lambda = 1, {TOLD.get(data, data)}, N = {n}: FedPSE above {RIVALS_TOLD} at `{point}`",
                    _best(1.0, n, data, point),
                    COMMAND.of_runs("paper" if data == CIFAR else "quick", _rows(1.0, n, data)),
                )
    for point in POINTS:
        yield Claim(
            f"the same on fashion-mnist, N = 10, with whole epochs, at `{point}`",
            _best(1.0, 10, "fashion-mnist", point, "epochs"),
            COMMAND.of_runs("quick", "*-epochs"),
        )


def _chosen(size: Size) -> Iterator[Claim]:
    """Return the headline and the objections, with rates chosen on validation samples."""
    how = "rates chosen on validation samples (by `pre`)"

    def row(ratio: float, method: str) -> str:
        return row_of(ratio, method) + (f"-{TUNED}" if size == "quick" else "")

    def cost(ratio: float) -> str:
        return COMMAND.of_runs("quick", f"{row_of(ratio, '*')}-{TUNED}*")

    for ratio, number in ((1.0, "C1"), (0.5, "C3")):
        for point in POINTS:
            yield Claim(
                f"{number}: lambda = {ratio:g}, fashion-mnist, N = 10: FedPSE above {RIVALS_TOLD} at `{point}`, {how}",
                above(*(row(ratio, m) for m in ("fedpse", *RIVALS)), point=point),
                cost(ratio),
            )
            yield Claim(
                f"{number}, of FedAvg alone: lambda = {ratio:g}, fashion-mnist, N = 10: FedPSE above FedAvg at "
                f"`{point}`, {how}",
                above(row(ratio, "fedpse"), row(ratio, "fedavg"), point=point),
                cost(ratio),
            )
    for rival, name in (("fedstc", "FedSTC"), ("fedscr", "FedSCR")):
        yield Claim(
            f"Table 1: {name} above FedAvg at lambda = 1, fashion-mnist, N = 10 (`pre`), {how}",
            above(row(1.0, rival), row(1.0, "fedavg")),
            cost(1.0),
        )
    for point in POINTS:
        yield Claim(
            f"against it: `local` is above FedPSE at lambda = 1 (`{point}`), {how}",
            above(row(1.0, "local"), row(1.0, "fedpse"), point=point),
            cost(1.0),
        )
    yield Claim(
        f"against it: FedAvg fine-tuned is above FedPSE at `post`, lambda = 1, {how}",
        above(row(1.0, "fedavg"), row(1.0, "fedpse"), point="ft", other_point="post"),
        cost(1.0),
    )


def _table_1() -> Iterator[Claim]:
    for rival, name in (("fedstc", "FedSTC"), ("fedscr", "FedSCR")):
        yield Claim(
            f"Table 1: FedSTC and FedSCR above FedAvg at lambda = 1, fashion-mnist, N = 10 (`pre`): {name}",
            above(row_of(1.0, rival), row_of(1.0, "fedavg")),
            COMMAND.of_runs("quick", TEN),
        )
    for data in SAMPLES:
        size: Size = "paper" if data == CIFAR else "quick"
        yield Claim(
            f"C3: lambda = 0.5, {TOLD.get(data, data)}, N = 10: FedPSE above {RIVALS_TOLD} at `pre`",
            _best(0.5, 10, data),
            COMMAND.of_runs(size, _rows(0.5, 10, data)),
        )
        mine, other = RowAt(row_of(0.0, "fedpse", data=data)), RowAt(row_of(0.0, "fedavg", data=data))
        yield Claim(
            f"C3: lambda = 0, {TOLD.get(data, data)}, N = 10: FedPSE below FedAvg",
            above(other.row, mine.row),
            COMMAND.of_runs(size, _rows(0.0, 10, data)),
        )
        yield Claim(
            f"C3: lambda = 0, {TOLD.get(data, data)}, N = 10: FedPSE at most 3 points below FedAvg (paper, "
            "fashion-mnist: 2.7)",
            loses(other, mine, 0.03),
            COMMAND.of_runs(size, _rows(0.0, 10, data)),
        )
    for (data, n, ratio), printed in TABLE_1.items():
        if ratio == 0.5 and n < 10 and max(printed) == printed[-1]:
            yield Claim(
                f"Table 1: lambda = 0.5, {TOLD.get(data, data)}, N = {n}: FedPSE above {RIVALS_TOLD} at `pre`",
                _best(ratio, n, data),
                COMMAND.of_runs("paper" if data == CIFAR else "whole", _rows(ratio, n, data)),
            )
    even = COMMAND.of_runs("quick", "fashion-mnist-10-0-fed???")
    fair = {m: row_of(0.0, m) for m in METHODS}
    yield Claim(
        "Table 1: lambda = 0, fashion-mnist, N = 10: FedPSE above FedSCR at `pre`",
        above(fair["fedpse"], fair["fedscr"]),
        even,
    )
    yield Claim(
        "5.2: FedSCR has a weakness at lambda = 0: below FedAvg and FedSTC at `pre`, fashion-mnist, N = 10",
        all_of(above(fair[other], fair["fedscr"]) for other in ("fedavg", "fedstc")),
        even,
    )
    yield Claim(
        "5.2: at lambda = 0 FedPSE is at most 3 points below FedSTC at `pre`, fashion-mnist, N = 10 (paper: 2.4)",
        loses(RowAt(fair["fedstc"]), RowAt(fair["fedpse"]), 0.03),
        even,
    )
    for point in POINTS:
        yield Claim(
            f"5.5: FedPSE's accuracy at `{point}` rises with lambda: 1 above 0.5 and 0, fashion-mnist, N = 10",
            above(*(row_of(r, "fedpse") for r in reversed(LAMBDAS)), point=point),
            COMMAND.of_runs("quick", "fashion-mnist-10-*-fedpse"),
        )


def _efficiency() -> Iterator[Claim]:
    for way in ("up", "down"):
        yield Claim(
            f"FedPSE sends a tenth of FedAvg's numbers {way}, the paper's p = 0.9",
            share(row_of(1.0, "fedpse"), row_of(1.0, "fedavg"), numbers_sent(way), 0.101, least=0.08),
            COMMAND.of_runs("quick", TEN),
        )
    yield Claim(
        "FedSCR sends a tenth of FedAvg's numbers down, too",
        share(row_of(1.0, "fedscr"), row_of(1.0, "fedavg"), numbers_sent("down"), 0.101),
        COMMAND.of_runs("quick", TEN),
    )
    for rival, name in (("fedstc", "FedSTC"), ("fedscr", "FedSCR")):
        yield Claim(
            f"abstract: more efficient than {name}: FedPSE sends fewer bytes, both ways together, lambda = 1, N = 10",
            share(row_of(1.0, "fedpse"), row_of(1.0, rival), bytes_sent("up", "down"), 1.0),
            COMMAND.of_runs("quick", TEN),
        )


def _table_2() -> Iterator[Claim]:
    """Return the claims about rounds and the number of clients."""
    curves = {m: f"{row_of(1.0, m, 5)}-curve" for m in METHODS[1:]}
    yield Claim(
        "Figure 2: FedPSE converges faster than FedSTC and FedSCR: its mean at `pre` over 100 rounds is above theirs, "
        "fashion-mnist, N = 5, lambda = 1",
        above(curves["fedpse"], curves["fedstc"], curves["fedscr"], of=extra(OVER_ROUNDS)),
        COMMAND.of_runs("paper", "*-curve*"),
    )
    yield Claim(
        "Figure 2: FedAvg is unstable: from round to round it changes more at `pre` than the others, fashion-mnist, "
        "N = 5, lambda = 1, rounds 50 to 100",
        above(*(curves[m] for m in METHODS[1:]), of=extra(SWING)),
        COMMAND.of_runs("paper", "*-curve*"),
    )
    yield Claim(
        "5.3, against Table 1: FedSCR performs best at `pre`, fashion-mnist, N = 5, lambda = 1",
        above(*(row_of(1.0, m, 5) for m in ("fedscr", "fedpse", "fedstc", "fedavg"))),
        COMMAND.of_runs("quick", _rows(1.0, 5, "fashion-mnist")),
    )
    for data in ("fashion-mnist", "imdb"):
        for point in POINTS:
            yield Claim(
                f"C4: lambda = 1, {data}: FedPSE above {RIVALS_TOLD} with 25, with 50 and with 100 clients at "
                f"`{point}` (2, 5 and 10: see C1 and C2)",
                all_of(_best(1.0, n, data, point) for n in MANY),
                COMMAND.of_runs("paper", f"{data}-[125][05]*-1-fed???"),
            )
        for rival, name in (("fedstc", "FedSTC"), ("fedscr", "FedSCR")):
            pairs = [(row_of(1.0, "fedpse", n, data), row_of(1.0, rival, n, data)) for n in (*FEW, *MANY)]
            printed = {
                "fashion-mnist": {"fedstc": "5.9 points, printed as 6.85 %", "fedscr": "4.8 points, printed as 5.57 %"},
                "imdb": {"fedstc": "9.5 points, printed as 10.68 %", "fedscr": "8.5 points, printed as 9.43 %"},
            }
            yield Claim(
                f"C4: lambda = 1, {data}: FedPSE above {name} at `pre` in the mean over N = 2, 5, 10, 25, 50 and 100 "
                f"(paper: by {printed[data][rival]})",
                mean_above(pairs),
                COMMAND.of_runs("paper", f"{data}-*-1-fed???"),
            )


def _parts() -> Iterator[Claim]:
    """Return the claims about EWA and DPS."""
    studies = (("EWA", "no-ewa", "C5", LAMBDAS, 5), ("DPS", "no-dps", "C6", (0.2, 0.5, 1.0), 8))
    for part, study, number, ratios, figure in studies:
        for r in ratios:
            for point in POINTS:
                yield Claim(
                    f"{number}: {part} helps at lambda = {r:g}, N = 10, p = 0.9, at `{point}`",
                    above(row_of(r, "fedpse"), f"{row_of(r, 'fedpse')}-{study}", point=point),
                    COMMAND.of_runs("quick", f"{row_of(r, 'fedpse')}*"),
                )
        yield Claim(
            f"{number}, figure {figure}: {part} helps at lambda = 0.2, 0.4, 0.6 and 0.8, N = 10, p = 0.9, at `pre`",
            all_of(above(row_of(r, "fedpse"), f"{row_of(r, 'fedpse')}-{study}") for r in BETWEEN),
            COMMAND.of_runs("paper", "fashion-mnist-10-0.[2468]-fedpse*"),
        )
    pairs = {n: [(row_with(p, True, n), row_with(p, False, n)) for p in EVERY_P] for n in FEW}
    for n, printed in zip(FEW, (0.002, 0.0071, 0.0143), strict=True):
        yield Claim(
            f"C5: EWA gains at `pre` in the mean over p from 0.1 to 0.9, fashion-mnist, lambda = 1, N = {n} (paper: "
            f"{printed})",
            mean_above(pairs[n]),
            COMMAND.of_runs("paper", f"{row_of(1.0, 'fedpse', n)}*"),
        )
    yield Claim(
        "C5: EWA's gain at `pre` in the mean over p grows with the clients: N = 10 above 5, and 5 above 2",
        grows([pairs[n] for n in FEW]),
        COMMAND.of_runs("paper", "fashion-mnist-*-1-fedpse*"),
    )
    yield Claim(
        "5.5, figure 4: EWA gains at `pre` at every p from 0.1 to 0.9, fashion-mnist, lambda = 1, N = 10",
        all_of(above(*pair) for pair in pairs[10]),
        COMMAND.of_runs("paper", f"{row_of(1.0, 'fedpse')}*"),
    )


def _distances() -> Iterator[Claim]:
    whats = (
        ("mean correlation distance d rises", "distance"),
        ("variance of d over the clients rises", "distance_variance"),
    )
    costs = {
        ("fashion-mnist", 10): COMMAND.of_runs("quick", "fashion-mnist-10-*-fedpse"),
        ("fashion-mnist", 2): COMMAND.of_runs("quick", "fashion-mnist-2-*-fedpse*"),
        ("fashion-mnist", 5): COMMAND.of_runs("quick", "fashion-mnist-5-*-fedpse*"),
        ("imdb", 10): COMMAND.of_runs("quick", "imdb-10-*-fedpse", again=True),  # one was kept before d was
        ("imdb", 5): COMMAND.of_runs("whole", "imdb-5-*-fedpse"),
    }
    for (data, n), cost in costs.items():
        for what, name in whats:
            yield Claim(f"C7: the {what} with lambda, {data}, N = {n}, last round", rising(n, name, data), cost)


def _sparsities() -> Iterator[Claim]:
    for low, high in (*pairwise(SPARSITIES), (SPARSITIES[0], SPARSITIES[-1])):
        for point in POINTS:
            yield Claim(
                f"C8: accuracy at `{point}` is higher with p = {high:g} than with {low:g}, lambda = 1, N = 10",
                above(row_with(high), row_with(low), point=point),
                COMMAND.of_runs("quick", "*-p-*"),
            )
    yield Claim(
        "C8: accuracy at `pre` is higher with p = 0.7 than with 0.1, lambda = 1, N = 5",
        above(row_with(0.7, clients=5), row_with(0.1, clients=5)),
        COMMAND.of_runs("paper", "fashion-mnist-5-1-fedpse-p-0.[17]*"),
    )
    yield Claim(
        "5.6: with two clients accuracy at `pre` keeps steady from p = 0.1 to 0.9, within a point, lambda = 1",
        within(0.01, *(row_with(p, clients=2) for p in EVERY_P)),
        COMMAND.of_runs("paper", "fashion-mnist-2-1-fedpse*"),
    )


def _some_clients() -> Iterator[Claim]:
    for part in SAMPLED:
        for point in POINTS:
            yield Claim(
                f"C9: FedPSE best with {part:g} of the clients a round, lambda = 1, N = 10, at `{point}`",
                _best(1.0, 10, "fashion-mnist", point, f"sample-{part:g}"),
                COMMAND.of_runs("quick", f"*-sample-{part:g}*"),
            )
        yield Claim(
            f"C9: FedPSE best with {part:g} of the clients a round, imdb, lambda = 1, N = 10, at `pre`",
            _best(1.0, 10, "imdb", "pre", f"sample-{part:g}"),
            COMMAND.of_runs("paper", f"imdb-*-sample-{part:g}*"),
        )


def _against() -> Iterator[Claim]:
    for point in POINTS:
        yield Claim(
            f"against it: `local` is above FedPSE at lambda = 1 (`{point}`)",
            above(row_of(1.0, "local"), row_of(1.0, "fedpse"), point=point),
            COMMAND.of_runs("quick", "fashion-mnist-10-1-*"),
        )
    for data, n, ratio in ALONE:
        yield Claim(
            f"against it: `local` is above FedPSE at lambda = {ratio:g} (`pre`), {TOLD.get(data, data)}, N = {n}",
            above(row_of(ratio, "local", n, data), row_of(ratio, "fedpse", n, data)),
            COMMAND.of_runs("paper", row_of(ratio, "*[le]", n, data)),
        )
    yield Claim(
        "against it: FedAvg fine-tuned is above FedPSE at `post`, lambda = 1",
        above(row_of(1.0, "fedavg"), row_of(1.0, "fedpse"), point="ft", other_point="post"),
        COMMAND.of_runs("quick", TEN),
    )
