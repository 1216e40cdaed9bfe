"""The paper's claims about LGA and PLGA, and objections."""

from __future__ import annotations

from collections.abc import Iterator

from sparsona_papers._command import together
from sparsona_papers._differences import Reading, RowAt, score
from sparsona_papers._verdicts import Check, Claim, above, exceeds, never, within
from sparsona_papers.plga.held import CLIENT
from sparsona_papers.plga.plan import AT_CLIENT, COMMAND, LENGTHS, VARIED, orders_of
from sparsona_papers.spfl.plan import ABSENT

RIVALS = ("fedavg-stale", "fedavg-drop", "per-fedavg", "fedasync")
HELD = tuple(f"{name}{AT_CLIENT}" for name in RIVALS)
LGA_HELD = f"lga{AT_CLIENT}"
"""The same methods, and LGA, with rates chosen at the client point."""
SERVERS = "paper: mnist 97.59 to 97.82, cifar-10 45.48 to 46.86, EMNIST 73.74 to 74.74, CIFAR-100 20.53 to 20.98"
GAINS = "paper: 0.52 on mnist to 12.63 on EMNIST; its 0.23 is of the server's columns on mnist"


def claims() -> Iterator[Claim]:
    """All claims. They are the same in every size; each names the command that settles it."""
    for data in LENGTHS:
        for order in orders_of(data):
            yield from _table_2(data, order)
    for data in LENGTHS:
        for order in orders_of(data)[:2]:
            yield from _variants(data, order)
    rows = [f"vary-{name}" for name in VARIED]
    yield Claim(
        "4.2: B = 64, beta = 0.001, E = 20 and T = 800 are best: PLGA with them above PLGA with one of them halved or"
        " doubled (beta: by three), client point, mnist, stored, raw pixels",
        above(*rows, of=CLIENT),
        COMMAND.of_rows(*rows, only=[together(rows)]),
    )
    yield Claim(
        "figure 2: PLGA's accuracy over the rounds",
        never("the paper says nothing of it in words; every run draws its own as plga-rounds.png"),
        f"{COMMAND.of_runs('quick', 'digits-*-1')}, the first seed's",
    )


def _claim(text: str, check: Check, *rows: str) -> Claim:
    return Claim(text, check, COMMAND.of_rows(*rows, only=[together(rows)]))


def _table_2(data: str, order: str) -> Iterator[Claim]:
    where = f"{data}, {'stored, raw pixels' if order == 'raw' else order}"

    def at(*names: str) -> tuple[str, ...]:
        return tuple(f"{data}-{order}-{name}" for name in names)

    for text, names, by in (
        ("Table 2: PLGA above all others at the paper's client point", ("plga", LGA_HELD, *HELD), 0.0),
        (f"abstract: PLGA 0.23 points or more above its rivals at the paper's client point ({GAINS})",
         ("plga", *HELD), 0.0023),
        ("C5: PLGA above LGA at the paper's client point", ("plga", LGA_HELD), 0.0),
        ("C5: LGA above the other methods at the paper's client point", (LGA_HELD, *HELD), 0.0),
    ):  # fmt: skip
        yield _claim(f"{text}, {where}", above(*at(*names), of=CLIENT, by=by), *at(*names))
    servers = at("lga", *RIVALS)
    yield _claim(
        f"C6: all server models (`pre`; PLGA's is LGA's) within a point ({SERVERS}), {where}",
        within(0.01, *servers),
        *servers,
    )
    if data in ABSENT:
        return
    yield _claim(
        f"repair of forgetting: PLGA at the client point above LGA's server model (`pre`), {where}",
        exceeds(RowAt(at("plga")[0], "pre", CLIENT), RowAt(at("lga")[0])),
        *at("plga", "lga"),
    )
    for text, names, of in (
        ("LGA's server model above stale averaging (`pre`)", ("lga", "fedavg-stale"), score),
        ("against it: `local` above PLGA at the client point", ("local", "plga"), CLIENT),
    ):
        yield _claim(f"{text}, {where}", above(*at(*names), of=of), *at(*names))


def _variants(data: str, order: str) -> Iterator[Claim]:
    """Return the claims about equations (11) and (10), and about the spans of a cosine."""
    found: list[tuple[str, str, str, Reading]] = [
        ("4.2: equation (11) above (10), PLGA at the client point", "plga", "plga-eq10", CLIENT),
    ]  # fmt: skip
    if data == "digits":
        found.append(("equation (11) above (10), LGA at `pre`", "lga", "lga-eq10", score))
    else:  # a stage of digits' net is one layer
        found += [
            ("contribution 3: a cosine for each of two stages above one for each tensor, PLGA at the client point",
             "plga-stages", "plga", CLIENT),
            ("contribution 3: stages improve PLGA: a cosine for each of two stages above one for the net, at the client"
             " point", "plga-stages", "plga-net", CLIENT),
        ]  # fmt: skip
    for text, one, other, of in found:
        rows = f"{data}-{order}-{one}", f"{data}-{order}-{other}"
        yield _claim(f"{text}, {data}, {order}", above(*rows, of=of), *rows)
