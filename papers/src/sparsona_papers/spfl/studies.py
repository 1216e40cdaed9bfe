"""The claims of the paper's appendices about SPFL: Table 7, Table 8, and figures 4 to 6."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sparsona_papers._command import together
from sparsona_papers._differences import RowAt
from sparsona_papers._verdicts import Check, Claim, above, all_of, exceeds, gains, never
from sparsona_papers.spfl.checks import beyond
from sparsona_papers.spfl.plan import COMMAND, TABLE_7, study_row
from sparsona_papers.spfl.readings import best_tuned, cosine, tuned

KINDS = {"IID": "iid", "non-IID": "noniid"}
TABLE_8 = {
    "mnist": ((98.57, 98.85, 98.89), (98.20, 98.44, 98.49)),
    "cifar-10": ((73.75, 75.91, 76.08), (65.66, 69.14, 69.41)),
    "emnist": ((89.62, 90.40, 90.53), (87.56, 88.82, 88.85)),
    "cifar-100": ((32.93, 37.55, 37.55), (26.16, 31.68, 31.68)),
}
"""Printed, in percent, IID and non-IID: ten steps at the training's rate, at a tenth of it, and the best column."""
NEAR_ONE = 0.9


def studies(data_sets: Sequence[str]) -> Iterator[Claim]:
    """All claims of the appendices."""
    for data in data_sets:
        yield from _table_7(data)
    for data in data_sets:
        yield from _table_8(data)
    for data in data_sets:
        yield from _figures(data)
    order = ("mnist", "emnist", "cifar-10", "cifar-100")
    rows = {kind: [study_row(data, kind, "base") for data in order] for kind in KINDS.values()}
    yield Claim(
        "4.1: accuracy falls from mnist over EMNIST and cifar-10 to CIFAR-100, SPFL, IID and non-IID",
        all_of({
            f"{name}, {harder}": above(easy, hard)
            for name, kind in KINDS.items()
            for harder, easy, hard in zip(order[1:], rows[kind], rows[kind][1:], strict=False)
        }),
        COMMAND.of_rows(*(row for own in rows.values() for row in own), only=["table7-*-base-*"]),
    )  # fmt: skip
    yield Claim(
        "figure 6: SPFL's accuracy client by client",
        never("the paper says nothing of it in words; every run draws its own as spfl-clients.png"),
        f"{COMMAND.of_runs('quick', '*-spfl-1')}, the first seed's",
    )


def _in_both(data: str, check: Callable[[str], Check], *variants: str) -> tuple[Check, str]:
    """Return a check for IID and for non-IID rows, and the command that runs them."""
    rows = [study_row(data, kind, variant) for kind in KINDS.values() for variant in variants]
    pattern = f"table7-{data}-*-{variants[0]}-*" if len(variants) == 1 else together(rows)
    return all_of({name: check(kind) for name, kind in KINDS.items()}), COMMAND.of_rows(*rows, only=[pattern])


def _table_7(data: str) -> Iterator[Claim]:
    for text, better, worse in (
        ("fewer classes a client are better than more", "few-classes", "many-classes"),
        ("ten clients are better than six", "base", "6-clients"),
        ("two local epochs are better than one", "2-epochs", "base"),
        ("two local epochs are better than five", "2-epochs", "5-epochs"),
    ):

        def check(kind: str, better: str = better, worse: str = worse) -> Check:
            return above(study_row(data, kind, better), study_row(data, kind, worse))

        numbers = (TABLE_7[data][variant] for variant in (better, worse)) if data in TABLE_7 else ((), ())
        pairs = [f"{one:g} and {two:g}" for one, two in zip(*numbers, strict=True)]
        printed = f" (paper: IID {pairs[0]}, non-IID {pairs[1]})" if pairs else ""
        both, cost = _in_both(data, check, better, worse)
        yield Claim(f"Table 7: {text}, SPFL, {data}, IID and non-IID{printed}", both, cost)


def _table_8(data: str) -> Iterator[Claim]:
    def at(kind: str) -> str:
        return study_row(data, kind, "base")

    def told(column: int) -> str:
        if data not in TABLE_8:
            return ""
        pairs = zip(TABLE_7[data]["base"], (own[column] for own in TABLE_8[data]), strict=True)
        iid, noniid = (f"{before:g} to {after:g}" for before, after in pairs)
        return f" (paper: IID {iid}, non-IID {noniid})"

    for text, column, check in (
        ("fine-tuning SPFL's models, ten steps at a tenth of the rate, improves them", 1,
         lambda kind: exceeds(RowAt(at(kind), of=tuned("tenth")), RowAt(at(kind)))),
        ("fine-tuning gains at most a point, whichever of the six ways is best", 2,
         lambda kind: gains(RowAt(at(kind), of=best_tuned), RowAt(at(kind)), 0.01)),
        ("fine-tuning at the full rate hurts", 0,
         lambda kind: exceeds(RowAt(at(kind)), RowAt(at(kind), of=tuned("full rate")))),
    ):  # fmt: skip
        both, cost = _in_both(data, check, "base")
        yield Claim(f"Table 8: {text}, {data}, IID and non-IID{told(column)}", both, cost)


def _figures(data: str) -> Iterator[Claim]:
    """The cosines of the clients' gradients, over the base of the net and over its last layer."""
    stages = {"base": cosine("base"), "head": cosine("head")}
    alike, skewed = rows = [study_row(data, kind, "one-round") for kind in ("iid", "noniid")]
    last = study_row(data, "iid", "base")
    cost = COMMAND.of_rows(*rows, only=[f"table7-{data}-*-one-round-*"])
    yield Claim(
        f"figures 4 and 5: gradients of IID clients have cosines near 1 (above {NEAR_ONE:g}), first round, {data}",
        all_of({stage: beyond(alike, of, NEAR_ONE) for stage, of in stages.items()}),
        cost,
    )
    yield Claim(
        f"figures 4 and 5: gradients of IID clients are more alike than those of non-IID ones, first round, {data}",
        all_of({stage: exceeds(RowAt(alike, of=of), RowAt(skewed, of=of)) for stage, of in stages.items()}),
        cost,
    )
    yield Claim(
        f"figures 4 and 5: non-IID gradients are more alike in the base than in the last layer, first round, {data}",
        exceeds(RowAt(skewed, of=stages["base"]), RowAt(skewed, of=stages["head"])),
        cost,
    )
    yield Claim(
        f"figures 4 and 5: gradients of IID clients have cosines near 1 (above {NEAR_ONE:g}), last measured, {data}",
        all_of({stage: beyond(last, of, NEAR_ONE) for stage, of in stages.items()}),
        COMMAND.of_rows(last),
    )
