"""The claims that only the paper's own data sets, nets and lengths can settle. All are read at `pre`, as the paper
tests its models."""

from __future__ import annotations

from collections.abc import Iterator

from sparsona.reproduce._checks import grows
from sparsona.reproduce._verdicts import At, Claim, above, accuracy, all_of, exceeds, level, within
from sparsona.reproduce.fedspa.checks import (
    as_fast,
    falling,
    fewer_and_above,
    fewer_numbers,
    fewer_operations,
    inside,
    never_reaches,
    sooner,
    sooner_to_best,
)
from sparsona.reproduce.fedspa.hours import PRICE
from sparsona.reproduce.fedspa.plan import DENSER, ORIGINAL_SETTINGS, ORIGINALS, PERSONAL, PRINTED, SWEEP, original_of

TABLE_2: tuple[tuple[str, str, float, str, tuple[str, ...], str], ...] = (
    # who is sooner than whom to which accuracy, and the paper's rounds
    ("cifar-10", "B", 0.80, "fedspa-dst", ("ditto", "fedavg", "fedspa-rsm"), "270; 418, 584, 614"),
    ("cifar-10", "A", 0.80, "fedspa-dst", ("ditto", "fedavg", "fedspa-rsm"), "281; 466, 475, 472"),
    ("cifar-10", "iid", 0.80, "fedavg", ("fedspa-dst",), "229; 312"),
    ("cifar-10", "iid", 0.80, "fedspa-dst", ("ditto",), "312; 549"),
    ("cifar-10", "B", 0.70, "sub-fedavg", ("fedspa-dst",), "137; 164"),
    ("cifar-100", "B", 0.55, "fedspa-dst", ("ditto", "sub-fedavg"), "408; 679, 511"),
    ("cifar-100", "A", 0.55, "fedspa-dst", ("ditto",), "595; 894"),
    ("cifar-100", "iid", 0.40, "fedavg", ("fedspa-dst",), "245; 536"),
)
EQUAL = (("cifar-10", 0.80, "237 and 229"), ("cifar-100", 0.50, "436 and 436"))
"""IID: the rounds of RSM and FedAvg."""
NEVER = (("cifar-10", ORIGINAL_SETTINGS, "sub-fedavg", 0.80), ("cifar-100", ("A", "B"), "fedavg", 0.55),
         ("cifar-100", ("iid",), "fedspa-dst", 0.50))  # fmt: skip


def original_claims() -> Iterator[Claim]:
    """All of them, by the data and by the table or figure."""
    for data in ORIGINALS:
        yield from _table_1(data)
        yield from _iid(data)
        yield from _leads(data)
    yield from _harder()
    yield from _table_2()
    yield from _sparsity()
    yield from _studies()


def _name(data: str) -> str:
    return f"{data} with {ORIGINALS[data].model}"


def _setting(setting: str) -> str:
    return "IID" if setting == "iid" else setting


def _number(data: str, setting: str, row: str) -> float:
    return PRINTED[data][row][ORIGINAL_SETTINGS.index(setting)]


def _numbers(data: str, setting: str, *rows: str) -> str:
    return "paper: " + ", ".join(f"{_number(data, setting, row):g}" for row in rows)


def _only(data: str, settings: tuple[str, ...], *rows: str) -> list[str]:
    """Patterns that hold these rows in these settings and no other row."""
    together = {("A", "B"): "[AB]", ORIGINAL_SETTINGS: "*"}.get(settings)
    return [f"{original_of(data, setting, row)}*" for row in rows for setting in ([together] if together else settings)]


def _table_1(data: str) -> Iterator[Claim]:
    """DST against its rivals under skewed labels; what is best is printed first."""
    mark = "C1" if data == "cifar-100" else "C2"
    for setting in ("B", "A"):
        for rivals in (("ditto",), ("sub-fedavg",), ("fedavg",), ("fedspa-rsm", "local", "subsampling")):
            first, *others = sorted(("fedspa-dst", *rivals), key=lambda row: -_number(data, setting, row))
            rows = [original_of(data, setting, row) for row in (first, *others)]
            yield Claim(
                f"{mark}: {_name(data)}, {setting}: {first} above {', '.join(others)}"
                f" ({_numbers(data, setting, first, *others)})",
                above(*rows),
                PRICE.of_rows(*rows),
            )
    for text, one, other, check, most in (
        ("FedSpa sends at least 10 % fewer numbers than Sub-FedAvg (paper: 13.0 to 28.2 %; its Table 1 has 10.0 to"
         " 28.1 %)", "fedspa-dst", "sub-fedavg", fewer_numbers, 0.9),
        ("Sub-FedAvg takes fewer operations than FedSpa (DST)", "sub-fedavg", "fedspa-dst", fewer_operations, 1.0),
    ):  # fmt: skip
        rows = [original_of(data, "B", row) for row in (one, other)]
        yield Claim(f"5.2: {_name(data)}, B: {text}", check(rows[0], rows[1], most), PRICE.of_rows(*rows))


def _iid(data: str) -> Iterator[Claim]:
    def at(*rows: str) -> list[str]:
        return [original_of(data, "iid", row) for row in rows]

    pair = ("fedspa-rsm", "fedavg")
    yield Claim(
        f"5.2: {_name(data)}, IID: RSM within 1.5 points of FedAvg ({_numbers(data, 'iid', *pair)})",
        within(0.015, *at(*pair)),
        PRICE.of_rows(*at(*pair)),
    )
    for better in pair:
        rows = (better, *PERSONAL)
        yield Claim(
            f"5.2: {_name(data)}, IID: {better} above the personal methods (Ditto, Sub-FedAvg, DST;"
            f" {_numbers(data, 'iid', *rows)})",
            above(*at(*rows)),
            PRICE.of_rows(*at(*rows)),
        )
    yield Claim(
        f"5.2: {_name(data)}, IID: Ditto above the compression-based Sub-FedAvg and DST"
        f" ({_numbers(data, 'iid', *PERSONAL)})",
        above(*at(*PERSONAL)),
        PRICE.of_rows(*at(*PERSONAL)),
    )


def _leads(data: str) -> Iterator[Claim]:
    """The lead of DST grows with the skew; RSM with one mask is as FedAvg is, with skewed labels, too."""
    for rival in ("fedavg", "ditto"):
        more, less = ((original_of(data, s, "fedspa-dst"), original_of(data, s, rival)) for s in ("B", "A"))
        leads = [_number(data, s, "fedspa-dst") - _number(data, s, rival) for s in ("B", "A")]
        yield Claim(
            f"5.2: {_name(data)}: DST's lead on {rival} is larger in B than in A"
            f" (paper: {leads[0]:.1f} and {leads[1]:.1f} points)",
            grows([[less], [more]]),
            PRICE.of_rows(*more, *less, only=_only(data, ("A", "B"), "fedspa-dst", rival)),
        )
    pairs = {s: [original_of(data, s, row) for row in ("fedspa-rsm", "fedavg")] for s in ("A", "B")}
    yield Claim(
        f"Figure 6: {_name(data)}, A and B: RSM with one mask within 1.5 points of FedAvg",
        all_of({setting: within(0.015, *rows) for setting, rows in pairs.items()}),
        PRICE.of_rows(*pairs["A"], *pairs["B"], only=_only(data, ("A", "B"), "fedspa-rsm", "fedavg")),
    )


def _harder() -> Iterator[Claim]:
    """What grows with the difficulty of the data."""
    easy, *_, hard = ORIGINALS
    for rival in ("fedavg", "ditto"):
        rows = {data: (original_of(data, "B", "fedspa-dst"), original_of(data, "B", rival)) for data in ORIGINALS}
        leads = ", ".join(f"{_number(d, 'B', 'fedspa-dst') - _number(d, 'B', rival):.1f}" for d in ORIGINALS)
        yield Claim(
            f"5.2: B: DST's lead on {rival} is larger on {hard} than on {easy} (paper: {leads} points on"
            f" {', '.join(ORIGINALS)})",
            grows([[rows[easy]], [rows[hard]]]),
            PRICE.of_rows(*rows[hard], *rows[easy]),
        )
    for loser in PERSONAL:
        rows = {data: (original_of(data, "iid", "fedavg"), original_of(data, "iid", loser)) for data in ORIGINALS}
        losses = ", ".join(f"{_number(d, 'iid', 'fedavg') - _number(d, 'iid', loser):.1f}" for d in ORIGINALS)
        yield Claim(
            f"5.2: IID: {loser} is further below FedAvg on {hard} than on {easy} (paper: {losses} points on"
            f" {', '.join(ORIGINALS)})",
            grows([[rows[easy]], [rows[hard]]]),
            PRICE.of_rows(*rows[hard], *rows[easy]),
        )


def _table_2() -> Iterator[Claim]:
    for data, setting, goal, one, others, printed in TABLE_2:
        mine, rows = original_of(data, setting, one), {row: original_of(data, setting, row) for row in others}
        yield Claim(
            f"C3: {_name(data)}, {_setting(setting)}: {one} has {goal:.0%} in fewer rounds than {', '.join(others)}"
            f" (paper: {printed})",
            all_of({row: sooner(mine, other, goal) for row, other in rows.items()}),
            PRICE.of_rows(mine, *rows.values(), seeds=2),
        )
    for data, goal, printed in EQUAL:
        pair = [original_of(data, "iid", row) for row in ("fedspa-rsm", "fedavg")]
        yield Claim(
            f"C3: {_name(data)}, IID: RSM's rounds to {goal:.0%} are within 10 % of FedAvg's (paper: {printed})",
            as_fast(pair[0], pair[1], goal),
            PRICE.of_rows(*pair, seeds=2),
        )
    for data, settings, row, goal in NEVER:
        rows = {_setting(setting): original_of(data, setting, row) for setting in settings}
        yield Claim(
            f"C3: {_name(data)}, {', '.join(rows)}: {row} never has {goal:.0%} in its 1,000 rounds",
            all_of({setting: never_reaches(own, goal) for setting, own in rows.items()}),
            PRICE.of_rows(*rows.values(), only=_only(data, settings, row), seeds=2),
        )
    for rival, saved in (("fedavg", 76.2), ("ditto", 38.1)):
        pair = [original_of("cifar-100", "B", row) for row in ("fedspa-dst", rival)]
        yield Claim(
            f"introduction: {_name('cifar-100')}, B: DST gets to the best accuracy of {rival} in fewer rounds"
            f" (paper: {saved} % fewer)",
            sooner_to_best(pair[0], pair[1]),
            PRICE.of_rows(*pair, seeds=2),
        )


def _sparsity() -> Iterator[Claim]:
    """Table 3 and Figure 1."""
    name, order = _name("cifar-100"), sorted((*SWEEP, 0.5))

    def swept(setting: str) -> dict[float, str]:
        labels = {s: "fedspa-dst" if s == 0.5 else f"sparsity-{s:g}" for s in order}
        return {s: original_of("cifar-100", setting, label) for s, label in labels.items()}

    def printed(setting: str) -> str:
        return _numbers("cifar-100", setting, *("fedspa-dst" if s == 0.5 else f"sparsity-{s:g}" for s in order))

    def cost(setting: str) -> str:
        return PRICE.of_rows(*swept(setting).values(), only=_only("cifar-100", (setting,), "sparsity-", "fedspa-dst"))

    best, usual = swept("B")[0.4], swept("B")[0.5]
    yield Claim(
        f"C4: {name}, B: some sparsity inside the sweep above both of its ends ({printed('B')})",
        inside(list(swept("B").values())),
        cost("B"),
    )
    yield Claim(
        f"C4: {name}, B: 0.4 is the best sparsity ({printed('B')})",
        above(best, *(row for row in swept("B").values() if row != best)),
        cost("B"),
    )
    yield Claim(
        f"4.3 and Figure 1: {name}, B: 0.5 is the best sparsity (Table 3 contradicts it: 67.2 at 0.4, 66.9 at 0.5)",
        above(usual, *(row for row in swept("B").values() if row != usual)),
        cost("B"),
    )
    for setting in ("A", "iid"):
        text = f"C4: {name}, {_setting(setting)}: the sparser the worse ({printed(setting)})"
        yield Claim(text, falling(swept(setting)), cost(setting))
    for more, less in (("B", "A"), ("A", "iid")):
        skewed, even = ((swept(setting)[0.4], swept(setting)[0.2]) for setting in (more, less))
        gains = [
            _number("cifar-100", s, "sparsity-0.4") - _number("cifar-100", s, "sparsity-0.2") for s in (more, less)
        ]
        yield Claim(
            f"abstract and B.4: {name}: a sparsity of 0.4 gains on 0.2 from {_setting(less)} to {more}"
            f" (paper: {gains[0]:+.1f} and {gains[1]:+.1f} points)",
            grows([[even], [skewed]]),
            PRICE.of_rows(*skewed, *even, only=_only("cifar-100", (less, more), "sparsity-0.4", "sparsity-0.2")),
        )
    rivals = [original_of("cifar-100", "B", row) for row in DENSER]
    yield Claim(
        f"Figure 1: {name}, B: DST sends fewer numbers than {', '.join(DENSER)} and is above them",
        fewer_and_above(usual, *rivals),
        PRICE.of_rows(usual, *rivals),
    )


def _studies() -> Iterator[Claim]:
    """Table 4 and figures 6, 7 and 8."""
    name = _name("cifar-100")

    def at(setting: str, *rows: str) -> list[str]:
        return [original_of("cifar-100", setting, row) for row in rows]

    for setting in ("B", "A", "iid"):
        rows = ("fedspa-dst", "uniform")
        yield Claim(
            f"C5: {name}, {_setting(setting)}: ERK above uniform ({_numbers('cifar-100', setting, *rows)})",
            above(*at(setting, *rows)),
            PRICE.of_rows(*at(setting, *rows)),
        )
    for text, settings, one, other in (
        ("C6: gradients regrow better than chance", ORIGINAL_SETTINGS, "fedspa-dst", "random"),
        ("C7: RSM is better with different masks", ("A", "B"), "rsm-different", "fedspa-rsm"),
        ("C7: RSM is worse with different masks", ("iid",), "fedspa-rsm", "rsm-different"),
        ("C7: RSM with different masks stays below DST", ("A", "B"), "fedspa-dst", "rsm-different"),
        ("C7: DST is slightly better with different masks", ("iid", "A"), "different", "fedspa-dst"),
    ):
        found = {_setting(setting): at(setting, one, other) for setting in settings}
        yield Claim(
            f"{text}, {name}, {' and '.join(found)}",
            all_of({setting: above(*rows) for setting, rows in found.items()}),
            PRICE.of_rows(
                *(row for rows in found.values() for row in rows), only=_only("cifar-100", settings, one, other)
            ),
        )
    goals = {"B": 0.55, "A": 0.55, "iid": 0.40}
    regrown = {setting: at(setting, "fedspa-dst", "random") for setting in goals}
    yield Claim(
        f"C6: gradients regrow in fewer rounds than chance, {name}: to 55 % in B and A, to 40 % on IID data",
        all_of({_setting(s): sooner(regrown[s][0], regrown[s][1], goal) for s, goal in goals.items()}),
        PRICE.of_rows(
            *(row for rows in regrown.values() for row in rows),
            only=_only("cifar-100", ORIGINAL_SETTINGS, "fedspa-dst", "random"),
            seeds=2,
        ),
    )
    for setting in ORIGINAL_SETTINGS:
        mine, rival = at(setting, "fedspa-dst", "fedavg")
        server = At(mine, "pre", accuracy("server"))
        yield Claim(
            f"C8: FedSpa's global model is worse than FedAvg's, {name}, {_setting(setting)}",
            exceeds(At(rival), server),
            PRICE.of_rows(mine, rival),
        )
        if setting == "iid":
            text = f"C8: FedSpa's global model is within 1.5 points of its own personal ones, {name}, IID"
            yield Claim(text, level(At(mine), server, 0.015), PRICE.of_rows(mine))
        else:
            text = f"C8: FedSpa's global model is worse than its own personal ones, {name}, {setting}"
            yield Claim(text, exceeds(At(mine), server), PRICE.of_rows(mine))
