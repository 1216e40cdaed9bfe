"""What the pFedGate paper claims of its own data sets, table by table. A cluster can run them: the size `paper`.

Where the whole has the same rows of CIFAR-10, its command is the cheaper one, and the claim has the same words there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, pairwise

from sparsona_papers._differences import Reading, RowAt, bottom, by_size, extra, lag
from sparsona_papers._verdicts import Check, Claim, above, exceeds, never
from sparsona_papers.pfedgate import shared_claims as shared
from sparsona_papers.pfedgate.checks import behind, combined, growth, mean_gain, most_gain
from sparsona_papers.pfedgate.plan import BASELINES, BESIDE, COMMAND
from sparsona_papers.pfedgate.printed import OTHERS, TITLES
from sparsona_papers.pfedgate.shared_claims import ClaimScope, same_cost

RIVALS = tuple(name for name in BASELINES if name not in BESIDE)
PAIR = ("femnist", "cifar-10")
"""The data sets of tables 3, 6, 8 and 13."""
DENSITIES = ("1", "0.5", "0.3")


def own_claims() -> Iterator[Claim]:
    """All of them."""
    for data in TITLES:
        yield from shared.table_1(_by_runs((data,), "[!s]*"), RIVALS, ("post",))
        yield shared.sparse_loses_little(_on(data))
    yield from _averages()
    yield from _section_7_4(_on("cifar-10"))
    yield from _tables_3_and_5()
    yield from _table_4()
    yield from _figure_5_and_table_10(_on("emnist"))
    yield from _table_6()
    yield from _table_8()
    for data in TITLES:
        yield shared.speed(
            _by_runs((data,), "fed[ae]*", "pfedgate-*[15]-[123]"), ("1", "0.5"), ("fedavg", "fedem"), 1.0
        )
        yield shared.speed(_by_runs((data,), "fedavg-[123]", "pfedgate-0.3-[123]"), ("0.3",), ("fedavg",), 1.15)
    yield from shared.local_epochs(_on("emnist"), _cost)
    yield from _table_12(_on("cifar-10"))
    yield from _table_13()
    yield from _figures_3_and_4(_on("cifar-10"))


def _on(*sets: str) -> ClaimScope:
    """Some data sets, with the paper's own nets and lengths; what it costs is found by the rows of a claim."""
    return ClaimScope(sets, _cost)


def _cost(rows: Sequence[str]) -> str:
    return COMMAND.of_rows(*rows, at_least="whole")


def _by_runs(sets: tuple[str, ...], *patterns: str) -> ClaimScope:
    """Some data sets, with the command for those of their runs that match a pattern."""
    return ClaimScope(
        sets, same_cost(COMMAND.of_runs("paper", *(f"{data}-{pattern}" for data in sets for pattern in patterns)))
    )


def _averages() -> Iterator[Claim]:
    readings: tuple[tuple[str, Reading, str, float, str], ...] = (
        ("weighted mean", by_size, "0.3", 0.031, ""),
        ("bottom decile", bottom, "0.3", 0.049, ""),
        ("weighted mean", by_size, "1", 0.043, " (introduction: 4.53; by its table 4.35)"),
        ("bottom decile", bottom, "1", 0.062, ""),
    )
    for what, read_by, density, least, told in readings:
        gate = f"pfedgate-{density}"
        pairs = ((RowAt(f"{data}-{name}", "post", read_by) for name in (gate, "fedem")) for data in TITLES)
        yield Claim(
            f"7.2: in the mean of the four data sets density {density} is at least {100 * least:.1f} points above"
            f" FedEM, {what}, `post`{told}",
            combined(mean_gain, *chain.from_iterable(pairs), least=least),
            COMMAND.of_runs("paper", "*[t0]-fedem-[123]", f"*-{gate}-[123]"),
        )


def _section_7_4(where: ClaimScope) -> Iterator[Claim]:
    """How far density 0.3 is above two rivals, where its time and memory are measured."""
    readings: tuple[tuple[str, Reading], ...] = (("weighted mean", by_size), ("bottom decile", bottom))
    for rival, name, points in (("fedavg", "FedAvg", (0.053, 0.041)), ("fedem", "FedEM", (0.012, 0.015))):
        for (what, of), least in zip(readings, points, strict=True):

            def checks(data: str, rival: str = rival, of: Reading = of, least: float = least) -> Iterator[Check]:
                gate, other = (RowAt(where.row(data, row), "post", of) for row in ("pfedgate-0.3", rival))
                yield exceeds(gate, other, least)

            text = f"7.4: {where}: density 0.3 is at least {100 * least:.1f} points above {name}, {what}, `post`"
            yield where.claim(text, checks, rival, "pfedgate-0.3")


def _tables_3_and_5() -> Iterator[Claim]:
    for data in PAIR:
        yield shared.few_participants(_on(data))
    both = _by_runs(PAIR, "pfedgate-*[13]-[123]", "study-pfedgate-*[13]-20%-*")
    yield both.loses(
        f"Table 3: {both}: 20 % participation costs less than a point at densities 1 and 0.3, too, weighted, `post`",
        *((one, f"{one}-20%") for one in ("pfedgate-1", "pfedgate-0.3")),
        most=0.01,
    )
    yield shared.few_participants_of_fedavg(_on("cifar-10"))
    both = _by_runs(PAIR, "fedem-[123]", "study-fedem-20%-*")
    yield both.exceeds(
        f"Table 3: {both}: 20 % participation costs FedEM more than a point, weighted, `post` (paper: 1.58 and 1.31)",
        ("fedem", "fedem-20%"),
        by=0.01,
    )
    for data in PAIR:
        yield shared.sent_up(_on(data))


def _table_4() -> Iterator[Claim]:
    where = _on("emnist", "cifar-100")
    base = {"emnist": 87.28, "cifar-100": 39.72}

    def numbers(name: str) -> str:
        return "; ".join(f"{base[data]} and {OTHERS[data][f'pfedgate-0.5-{name}'][0]}" for data in where.sets)

    yield from shared.ablations(where, "Table 4", lambda name: f"paper: {numbers(name)}")
    yield from shared.ablation_speeds(where)


def _figure_5_and_table_10(where: ClaimScope) -> Iterator[Claim]:
    sparse, dense = "pfedgate-0.1", "pfedgate-1"
    text = f"Figure 5: {where}: density 0.1 loses at most 4 points on 1, weighted, `post` (paper: 3.53)"
    yield where.loses(text, (dense, sparse), most=0.04)
    yield where.claim(
        f"Figure 5: {where}: clients differ more at density 0.1 than at 1 (mean less bottom decile), `post`"
        " (paper's table 10: 8.4 and 5.7 points; at 0.3, though, 4.6)",
        lambda data: [
            combined(
                float.__sub__, *(RowAt(where.row(data, row), "post", behind) for row in (sparse, dense)), least=0.0
            )
        ],
        dense,
        sparse,
    )
    yield shared.mixed_densities(where)
    scores = partial(shared.with_server, where, reading="trained_weighted")

    def lowest(data: str, density: str) -> tuple[RowAt, RowAt]:
        row = where.row(data, f"pfedgate-{density}")
        return RowAt(row, "post", bottom), RowAt(row, "pre", extra("trained_bottom"))

    densities = (*DENSITIES, "0.1")
    every = _by_runs(where.sets, "pfedgate-*", "study-pfedgate-0.1-*")
    told = f"Table 10: {where}: the server's model, after an epoch more, is"
    yield every.claim(
        f"{told} at least 7 points below the personal ones, densities 1, 0.5, 0.3 and 0.1, weighted",
        lambda data: (exceeds(*scores(data, density), 0.07) for density in densities),
    )
    yield where.claim(
        f"{told} further behind at density 0.3 than at 1 and at 0.1, weighted (paper: 9.95, 7.64 and 7.13 points)",
        lambda data: (combined(growth, *scores(data, "0.3"), *scores(data, d), least=0.0) for d in ("1", "0.1")),
        *(f"pfedgate-{density}" for density in ("1", "0.3", "0.1")),
    )
    yield every.claim(
        f"{told} further behind at the bottom decile than in the mean, densities 1, 0.5, 0.3 and 0.1",
        lambda data: (combined(growth, *lowest(data, d), *scores(data, d), least=0.0) for d in densities),
    )


def _table_6() -> Iterator[Claim]:
    for rivals, told, patterns in (
        (("per-fedavg", "pfedme"), "Per-FedAvg and pFedMe", ("study-per-fedavg-*", "pfedme-[123]")),
        (("fedmd",), "FedMD with near public data", ("study-fedmd-*",)),
    ):

        def checks(data: str, rivals: tuple[str, ...] = rivals) -> Iterator[Check]:
            for density in DENSITIES:
                rows = (f"{data}-{name}" for name in (f"pfedgate-{density}", *rivals))
                yield above(*rows, point="post", of=by_size)

        both = _by_runs(PAIR, "pfedgate-*", *patterns)
        yield both.claim(f"Table 6: {both}: densities 1, 0.5 and 0.3 above {told}, weighted, `post`", checks)
    yield Claim(
        "Table 6: femnist and cifar-10: densities 1, 0.5 and 0.3 above FedMD with far public data, weighted, `post`",
        never(
            "FedMD's clients answer public images of their own shape: the paper does not say how photographs come to"
            " fit FEMNIST's net"
        ),
        "no command: it would need that rule",
    )


def _table_8() -> Iterator[Claim]:
    for data in PAIR:
        yield from shared.new_clients(_on(data), 5)
    both = _by_runs(PAIR, "study-fedem-new-*", "study-pfedgate-0.5-new-5-*")
    yield both.above(
        f"Table 8: {both}: new clients are less far behind than FedEM's, density 0.5, `post`, epochs: 5"
        " (paper: 0.45 and 0.95, 0.93 and 1.17 points)",
        "fedem-new",
        "pfedgate-0.5-new-5",
        of=lag,
    )
    both = _by_runs(PAIR, "study-pfedgate-*[13]-new-5-*")
    yield shared.newcomers_near(
        both,
        f"Table 8: {both}: new clients are less than a point behind at densities 1 and 0.3, too, `post`, epochs: 5",
        "pfedgate-1-new-5",
        "pfedgate-0.3-new-5",
    )


def _table_12(where: ClaimScope) -> Iterator[Claim]:
    for density, fall in (("1", "2.55"), ("0.5", "2.31"), ("0.3", "2.07"), ("0.1", "2.81")):
        yield shared.skewed_labels(where, density, fall)
    alphas = ("", "-alpha-0.2", "-alpha-0.1", "-alpha-0.01")
    rows = [[f"pfedgate-{density}{alpha}" for alpha in alphas] for density in (*DENSITIES, "0.1")]
    every = _by_runs(where.sets, "pfedgate-*", "study-pfedgate-*-alpha-*", "study-pfedgate-0.1-[123]")
    yield every.exceeds(
        f"Table 12: {where}: accuracy falls with every step of alpha, 0.4, 0.2, 0.1, 0.01, at densities 1, 0.5, 0.3 and"
        " 0.1, weighted, `post`",
        *(pair for own in rows for pair in pairwise(own)),
    )
    sparse, dense = "pfedgate-0.1", "fedavg"
    yield where.claim(
        f"G: {where}: density 0.1 is at least a point above FedAvg, weighted, `post` (paper: 3.02 in its text, 1.93 by"
        " its tables)",
        lambda data: [exceeds(where.end(data, sparse), where.end(data, dense), 0.01)],
        dense,
        sparse,
    )


def _table_13() -> Iterator[Claim]:
    masks, gates = _by_runs(PAIR, "*fedmask-*"), _by_runs(PAIR, "pfedgate-0.[35]-*")
    yield masks.exceeds(
        f"Table 13: {masks}: FedMask loses more than a point from density 0.5 to 0.3, weighted, `post` (paper: 1.28 and"
        " 2.08)",
        ("fedmask", "fedmask-0.3"),
        by=0.01,
    )
    yield gates.loses(
        f"Table 13: {gates}: pFedGate loses less than a point from density 0.5 to 0.3, weighted, `post` (paper: -0.44"
        " and 0.42)",
        ("pfedgate-0.5", "pfedgate-0.3"),
        most=0.01,
    )
    both = _by_runs(PAIR, "pfedgate-0.[35]-*", "*fedmask-*")
    yield both.exceeds(
        f"Table 13: {both}: pFedGate above FedMask at densities 0.5 and 0.3, weighted, `post` (FedMask here is not"
        " validated: its paper has no code)",
        ("pfedgate-0.5", "fedmask"),
        ("pfedgate-0.3", "fedmask-0.3"),
    )
    for data in PAIR:
        yield shared.five_blocks(_on(data))
        yield shared.ten_blocks(_on(data))
    both = _by_runs(PAIR, "pfedgate-0.[35]-*", "study-*-blocks-10-*")
    falls = [f"pfedgate-{density}{blocks}" for blocks in ("-blocks-10", "") for density in ("0.5", "0.3")]
    yield both.claim(
        f"Table 13: {both}: from density 0.5 to 0.3 ten blocks a tensor lose more than five, weighted, `post` (paper:"
        " 0.71 and -0.44, 0.46 and 0.42)",
        lambda data: [combined(growth, *(both.end(data, name) for name in falls), least=0.0)],
    )


def _figures_3_and_4(where: ClaimScope) -> Iterator[Claim]:
    yield where.claim(
        f"Figure 3: {where}: more than half of the clients gain on FedEM, density 0.5, `post`",
        lambda data: [most_gain(f"{data}-pfedgate-0.5", f"{data}-fedem")],
        "fedem",
        "pfedgate-0.5",
    )
    yield shared.gates_alike(where)
