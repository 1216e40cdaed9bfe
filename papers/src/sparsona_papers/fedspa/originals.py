"""The claims that only the paper's own data sets, nets and lengths can settle. All are read at `pre`, as the paper
tests its models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparsona_papers._verdicts import Claim, above, all_of, within
from sparsona_papers.fedspa import shared_claims as shared
from sparsona_papers.fedspa.checks import as_fast, falling, never_reaches, sooner
from sparsona_papers.fedspa.plan import COMMAND, ORIGINAL, ORIGINAL_SETTINGS, ORIGINALS, PRINTED
from sparsona_papers.fedspa.shared_claims import Testbed, setting_name

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
TESTBEDS = {
    data: Testbed(
        data=data,
        told=f"{data} with {task.model}",
        prefix=ORIGINAL,
        settings=ORIGINAL_SETTINGS,
        skewed="[AB]",
        printed=PRINTED[data],
        source="paper",
        at="",
    )
    for data, task in ORIGINALS.items()
}
"""The paper's data sets, from the easiest to the hardest."""


def original_claims() -> Iterator[Claim]:
    """All of them, by the data and by the table or figure."""
    for where in TESTBEDS.values():
        yield from _table_1(where)
        yield from _iid(where)
        yield from shared.lead_grows_with_skew(where, "larger in B than in A")
        yield from _one_mask(where)
    yield from shared.harder(tuple(TESTBEDS.values()), "B", _points)
    yield from _table_2()
    yield from _sparsity(TESTBEDS["cifar-100"])
    yield from _studies(TESTBEDS["cifar-100"])


def _points(leads: Sequence[float]) -> str:
    return f"paper: {', '.join(f'{lead:.1f}' for lead in leads)} points on {', '.join(TESTBEDS)}"


def _table_1(where: Testbed) -> Iterator[Claim]:
    """DST against its rivals under skewed labels; what is best is printed first."""
    mark = "C1" if where.data == "cifar-100" else "C2"
    for setting in ("B", "A"):
        for rivals in (("ditto",), ("sub-fedavg",), ("fedavg",), ("fedspa-rsm", "local", "subsampling")):
            order = where.best_first(setting, "fedspa-dst", *rivals)
            yield shared.ranked(where, mark, setting, order, f" ({where.numbers(setting, *order)})")
    printed = "13.0 to 28.2 %; its Table 1 has 10.0 to 28.1 %"
    yield from shared.beside_sub_fedavg(where, f"{where.told}, B", "B", 10, printed)


def _iid(where: Testbed) -> Iterator[Claim]:
    numbers = where.numbers("iid", "fedspa-rsm", "fedavg")
    yield shared.rsm_as_fedavg(where, "iid", f"5.2: {where.told}, IID: RSM", f" ({numbers})")
    yield from shared.personal_lose_on_iid(where, lambda rows: f"; {where.numbers('iid', *rows)}")


def _one_mask(where: Testbed) -> Iterator[Claim]:
    """RSM with one mask is as FedAvg is, with skewed labels, too."""
    methods = ("fedspa-rsm", "fedavg")
    pairs = {setting: where.rows(setting, *methods) for setting in ("A", "B")}
    yield Claim(
        f"Figure 6: {where.told}, A and B: RSM with one mask within 1.5 points of FedAvg",
        all_of({setting: within(0.015, *rows) for setting, rows in pairs.items()}),
        COMMAND.of_rows(*pairs["A"], *pairs["B"], only=where.only(("A", "B"), *methods)),
    )


def _table_2() -> Iterator[Claim]:
    for data, setting, goal, one, others, printed in TABLE_2:
        where = TESTBEDS[data]
        mine, rows = where.row(setting, one), {row: where.row(setting, row) for row in others}
        yield Claim(
            f"C3: {where.told}, {setting_name(setting)}: {one} has {goal:.0%} in fewer rounds than {', '.join(others)}"
            f" (paper: {printed})",
            all_of({row: sooner(mine, other, goal) for row, other in rows.items()}),
            COMMAND.of_rows(mine, *rows.values(), seeds=2),
        )
    for data, goal, printed in EQUAL:
        where = TESTBEDS[data]
        pair = where.rows("iid", "fedspa-rsm", "fedavg")
        yield Claim(
            f"C3: {where.told}, IID: RSM's rounds to {goal:.0%} are within 10 % of FedAvg's (paper: {printed})",
            as_fast(pair[0], pair[1], goal),
            COMMAND.of_rows(*pair, seeds=2),
        )
    for data, settings, row, goal in NEVER:
        where = TESTBEDS[data]
        found = {setting_name(setting): where.row(setting, row) for setting in settings}
        yield Claim(
            f"C3: {where.told}, {', '.join(found)}: {row} never has {goal:.0%} in its 1,000 rounds",
            all_of({setting: never_reaches(own, goal) for setting, own in found.items()}),
            COMMAND.of_rows(*found.values(), only=where.only(settings, row), seeds=2),
        )
    for rival in ("fedavg", "ditto"):
        yield shared.sooner_to_best_of(TESTBEDS["cifar-100"], "B", rival)


def _sparsity(where: Testbed) -> Iterator[Claim]:
    """Table 3 and Figure 1."""

    def printed(setting: str) -> str:
        return f" ({where.numbers(setting, *shared.SWEPT.values())})"

    yield shared.sparsity_inside(where, "B", printed("B"))
    yield shared.best_sparsity(where, "C4", "B", 0.4, printed("B"))
    contradicted = " (Table 3 contradicts it: 67.2 at 0.4, 66.9 at 0.5)"
    yield shared.best_sparsity(where, "4.3 and Figure 1", "B", 0.5, contradicted)
    for setting in ("A", "iid"):
        text = f"C4: {where.told}, {setting_name(setting)}: the sparser the worse{printed(setting)}"
        yield Claim(text, falling(shared.swept(where, setting)), shared.sweep_cost(where, setting))
    for more, less in (("B", "A"), ("A", "iid")):
        gains = [where.lead(setting, "sparsity-0.4", "sparsity-0.2") for setting in (more, less)]
        ending = f"from {setting_name(less)} to {more} (paper: {gains[0]:+.1f} and {gains[1]:+.1f} points)"
        only = where.only((less, more), "sparsity-0.4", "sparsity-0.2")
        yield shared.sparsity_gains(where, less, more, ending, only)
    yield shared.fewer_numbers_and_above(where, "B")


def _studies(where: Testbed) -> Iterator[Claim]:
    """Table 4 and figures 6, 7 and 8."""
    for setting in ("B", "A", "iid"):
        rows = ("fedspa-dst", "uniform")
        text = f"C5: {where.told}, {setting_name(setting)}: ERK above uniform ({where.numbers(setting, *rows)})"
        yield where.above(text, setting, *rows)
    for said, settings in (
        (shared.REGROWTH, ORIGINAL_SETTINGS),
        (shared.RSM_GAINS, ("A", "B")),
        (shared.RSM_LOSES, ("iid",)),
        (shared.RSM_BELOW, ("A", "B")),
        (shared.DST_GAINS, ("iid", "A")),
    ):
        found = {setting_name(setting): where.rows(setting, said.one, said.other) for setting in settings}
        yield Claim(
            f"{said.text}, {where.told}, {' and '.join(found)}",
            all_of({setting: above(*rows) for setting, rows in found.items()}),
            COMMAND.of_rows(
                *(row for rows in found.values() for row in rows), only=where.only(settings, said.one, said.other)
            ),
        )
    goals = {"B": 0.55, "A": 0.55, "iid": 0.40}
    regrown = {setting: where.rows(setting, "fedspa-dst", "random") for setting in goals}
    yield Claim(
        f"C6: gradients regrow in fewer rounds than chance, {where.told}: to 55 % in B and A, to 40 % on IID data",
        all_of({setting_name(s): sooner(regrown[s][0], regrown[s][1], goal) for s, goal in goals.items()}),
        COMMAND.of_rows(
            *(row for rows in regrown.values() for row in rows),
            only=where.only(ORIGINAL_SETTINGS, "fedspa-dst", "random"),
            seeds=2,
        ),
    )
    for setting in ORIGINAL_SETTINGS:
        mine, rival = where.rows(setting, "fedspa-dst", "fedavg")
        yield from shared.global_model(where, setting, COMMAND.of_rows(mine, rival), COMMAND.of_rows(mine))
