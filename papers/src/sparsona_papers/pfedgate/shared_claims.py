"""Claims of the pFedGate paper that are tested on its own data and on replacement data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from sparsona_papers._checks import Pair
from sparsona_papers._differences import Reading, RowAt, accuracy, bottom, by_size, extra, lag, newcomers
from sparsona_papers._verdicts import Check, Claim, above, all_of, exceeds, loses, within
from sparsona_papers.pfedgate.checks import combined, ratio, sent
from sparsona_papers.pfedgate.plan import ABLATIONS
from sparsona_papers.pfedgate.readings import rounds_to

Cost: TypeAlias = Callable[[Sequence[str]], str]
"""The command that makes some rows."""

ALL_BASELINES = "all baselines of this table"


def same_cost(command: str) -> Cost:
    """Return the same command for all rows."""
    return lambda rows: command


@dataclass(frozen=True)
class ClaimScope:
    """The scope of a claim: the data sets on which it must hold together, the command of their rows, and the endings of
    the rows' names. `base_ending` is the ending of the rows with which studies are compared, if studies have a fixed
    rate.

    >>> where = ClaimScope(("femnist", "cifar-10"), same_cost("`sparsona reproduce pfedgate`"))
    >>> f"C3: {where}", where.row("femnist", "fedavg")
    ('C3: femnist and cifar-10', 'femnist-fedavg')
    """

    sets: tuple[str, ...]
    cost: Cost
    suffix: str = ""
    base_ending: str = ""

    def __str__(self) -> str:
        return " and ".join(self.sets)

    def row(self, data: str, name: str) -> str:
        """A row of one of the data sets."""
        return f"{data}-{name}{self.suffix}"

    def base(self, name: str) -> str:
        """Return the row with which a study of `name` is compared."""
        return f"{name}{self.base_ending}"

    def end(self, data: str, name: str) -> RowAt:
        """A row after local training, weighted."""
        return RowAt(self.row(data, name), "post", by_size)

    def claim(self, text: str, checks: Callable[[str], Iterable[Check]], *names: str) -> Claim:
        """Return a claim that holds if all checks of every data set do, with the cost of the named rows."""
        rows = [self.row(data, name) for data in self.sets for name in names]
        return Claim(text, all_of(check for data in self.sets for check in checks(data)), self.cost(rows))

    def exceeds(self, text: str, *pairs: Pair, by: float = 0.0) -> Claim:
        """The first row of every pair is above the second by more than `by`, weighted, after local training."""
        return self._compared(text, pairs, lambda one, other: exceeds(one, other, by))

    def loses(self, text: str, *pairs: Pair, most: float) -> Claim:
        """Claim: the second row of every pair is below the first by at most `most`, weighted, after local training."""
        return self._compared(text, pairs, lambda one, other: loses(one, other, most))

    def _compared(self, text: str, pairs: Sequence[Pair], check: Callable[[RowAt, RowAt], Check]) -> Claim:
        def checks(data: str) -> Iterator[Check]:
            return (check(self.end(data, one), self.end(data, other)) for one, other in pairs)

        return self.claim(text, checks, *(name for pair in pairs for name in pair))

    def above(self, text: str, one: str, *others: str, point: str = "post", of: Reading = by_size) -> Claim:
        """A row is above all others at an evaluation point."""
        names = (one, *others)
        return self.claim(
            text, lambda data: [above(*(self.row(data, name) for name in names), point=point, of=of)], *names
        )


def table_1(
    where: ClaimScope, rivals: Sequence[str], points: Sequence[str], told: str = ALL_BASELINES
) -> Iterator[Claim]:
    """Claims: density 0.3 is above the baselines by every measure, others in the weighted mean at some points."""
    readings: tuple[tuple[str, Reading], ...] = (("weighted mean", by_size), ("bottom decile", bottom))
    for point, (what, of) in product(("pre", "post"), readings):
        text = f"C1: {where}: density 0.3 above {told}, {what}, `{point}`"
        yield where.above(text, "pfedgate-0.3", *rivals, point=point, of=of)
    for density, point in product(("1", "0.5"), points):
        text = f"Table 1: {where}: density {density} above {told}, weighted mean, `{point}`"
        yield where.above(text, f"pfedgate-{density}", *rivals, point=point)


def sparse_loses_little(where: ClaimScope) -> Claim:
    """Claim: from density 1 to 0.3 hardly any accuracy is lost."""
    text = f"C2: {where}: from density 1 to 0.3 at most 2.5 points are lost, weighted, `post`"
    return where.loses(text, ("pfedgate-1", "pfedgate-0.3"), most=0.025)


def above_heterofl(where: ClaimScope) -> Iterator[Claim]:
    """Claim: with fewer weights it is more accurate than HeteroFL."""
    for name, told in (("heterofl", ""), ("heterofl-all-labels", " without its label mask")):
        yield where.exceeds(
            f"7.2: {where}: density 0.3, which keeps a quarter of the weights, above HeteroFL{told}, which keeps 0.55,"
            " weighted, `post`",
            ("pfedgate-0.3", name),
        )


def few_participants(where: ClaimScope) -> Claim:
    """Claim: a fifth of the clients per round is enough."""
    text = f"C3: {where}: 20 % participation costs less than a point, weighted, `post`"
    return where.loses(text, (where.base("pfedgate-0.5"), "pfedgate-0.5-20%"), most=0.01)


def few_participants_of_fedavg(where: ClaimScope) -> Claim:
    """Claim: for FedAvg a fifth of the clients per round is not enough."""
    return where.exceeds(
        f"Table 3: {where}: 20 % participation costs FedAvg more than a point, weighted, `post` (paper: 1.45 to 3.56"
        " for the baselines)",
        (where.base("fedavg"), "fedavg-20%"),
        by=0.01,
    )


def mixed_densities(where: ClaimScope) -> Claim:
    """Claim: clients with low density do not harm the others' models."""
    return where.loses(
        f"Figure 5: {where}: densities of 0.5 and 0.1 side by side lose at most 2.5 points on 0.5, weighted, `post`",
        (where.base("pfedgate-0.5"), "pfedgate-mixed"),
        most=0.025,
    )


def ablations(where: ClaimScope, mark: str, printed: Callable[[str], str]) -> Iterator[Claim]:
    """Claims: every part of the gate helps, its first norm more than the second; `printed` has the paper's numbers for
    a gate without a part.
    """
    for name in ABLATIONS:
        text = f"{mark}: {where}: the whole gate above {name}, weighted, `post` ({printed(name)})"
        yield where.exceeds(text, (where.base("pfedgate-0.5"), f"pfedgate-0.5-{name}"))
    yield where.exceeds(
        f"Table 4: {where}: the first norm matters more: without the second above without the first, weighted, `post`",
        ("pfedgate-0.5-no-post-norm", "pfedgate-0.5-no-pre-norm"),
    )


def ablation_speeds(where: ClaimScope) -> Iterator[Claim]:
    """Claims: without a part the gate learns more slowly, except for the gate that is the same for all samples of a
    client.
    """
    for name in ABLATIONS:
        pair = ("pfedgate-0.5", f"pfedgate-0.5-{name}")
        word, order = ("faster", pair) if name == "client-wise" else ("slower", pair[::-1])

        def check(data: str, order: Sequence[str] = order) -> Iterator[Check]:
            yield combined(ratio, *(RowAt(where.row(data, row), "pre", rounds_to(0.8)) for row in order), least=1.0)

        told = f"{name} is {word} than the whole gate: rounds to 80 % of its best score, weighted, `pre`"
        yield where.claim(f"Table 4: {where}: {told}", check, *pair)


def speed(where: ClaimScope, densities: Sequence[str], rivals: Sequence[str], most: float) -> Claim:
    """Claim: the rounds to nine tenths of the best score are at most a multiple of the rivals'."""

    def checks(data: str) -> Iterator[Check]:
        for density, rival in product(densities, rivals):
            pair = (where.row(data, name) for name in (f"pfedgate-{density}", rival))
            yield combined(ratio, *(RowAt(row, "pre", rounds_to(0.9)) for row in pair), most=most)

    names = " and ".join({"fedavg": "FedAvg", "fedem": "FedEM"}[rival] for rival in rivals)
    who = f"densities {' and '.join(densities)} take" if len(densities) > 1 else f"density {densities[0]} takes"
    rounds = "no more rounds than" if most == 1 else f"at most {most} times the rounds of"
    return where.claim(
        f"Theorem 2, Table 9: {where}: to 90 % of its best score {who} {rounds} {names}, weighted, `pre`",
        checks,
        *rivals,
        *(f"pfedgate-{density}" for density in densities),
    )


def five_blocks(where: ClaimScope) -> Claim:
    """Claim: two blocks per tensor are too few."""
    text = f"C5: {where}: five blocks a tensor above two, weighted, `post`"
    return where.exceeds(text, (where.base("pfedgate-0.5"), "pfedgate-0.5-blocks-2"))


def ten_blocks(where: ClaimScope) -> Claim:
    """Claim: five blocks per tensor are enough."""
    five, ten = where.base("pfedgate-0.5"), "pfedgate-0.5-blocks-10"
    text = f"C5: {where}: ten blocks a tensor gain less than a point on five, weighted, `post`"
    return where.claim(text, lambda data: [loses(where.end(data, ten), where.end(data, five), 0.01)], five, ten)


def new_clients(where: ClaimScope, epochs: int) -> Iterator[Claim]:
    """Claims: clients that join at the end score nearly as well as the others, and better than with FedAvg."""
    row = f"pfedgate-0.5-new-{epochs}"
    yield newcomers_near(where, f"C6: {where}: new clients are less than a point behind, `post`, epochs: {epochs}", row)
    text = f"C6: {where}: new clients are less far behind than FedAvg's, `post`, epochs: {epochs}"
    yield where.above(text, "fedavg-new", row, of=lag)


def newcomers_near(where: ClaimScope, text: str, *names: str) -> Claim:
    """In these rows the clients that join at the end are less than a point behind the others."""

    def checks(data: str) -> Iterator[Check]:
        for row in (where.row(data, name) for name in names):
            yield loses(RowAt(row, "post"), RowAt(row, "post", newcomers), 0.01)

    return where.claim(text, checks, *names)


def sent_up(where: ClaimScope) -> Claim:
    """At density 0.5 more than half of the model goes up."""
    text, row = f"C10: {where}: two thirds of the model go up at density 0.5", "pfedgate-0.5"
    return where.claim(text, lambda data: [sent(where.row(data, row))], row)


def local_epochs(where: ClaimScope, eight: Cost) -> Iterator[Claim]:
    """Claims: up to four local epochs change nothing, and eight are too many; eight have their own command."""
    names = (where.base("pfedgate-0.5"), "pfedgate-0.5-epochs-2", "pfedgate-0.5-epochs-4")
    yield where.claim(
        f"C8: {where}: 1, 2 and 4 local epochs are within a point, `post`",
        lambda data: [within(0.01, *(where.row(data, name) for name in names), point="post")],
        *names,
    )
    text = f"C8: {where}: 8 local epochs are at least a point below one (paper: 2.5), weighted, `post`"
    yield replace(where, cost=eight).exceeds(text, (where.base("pfedgate-0.5"), "pfedgate-0.5-epochs-8"), by=0.01)


def with_server(where: ClaimScope, data: str, density: str, reading: str) -> tuple[RowAt, RowAt]:
    """Return the weighted scores of a density's personal models and of the server's model: as it is, or after another
    epoch.
    """
    personal = where.end(data, f"pfedgate-{density}")
    return personal, RowAt(personal.row, "pre", accuracy(reading))


def skewed_labels(where: ClaimScope, density: str, fall: str) -> Claim:
    """Accuracy falls where clients have few labels each; `fall` are the paper's points."""
    return where.exceeds(
        f"C9: {where}: accuracy falls from alpha = 0.4 to 0.01 at density {density}, weighted, `post`"
        f" (paper: by {fall})",
        (where.base(f"pfedgate-{density}"), f"pfedgate-{density}-alpha-0.01"),
    )


def gates_alike(where: ClaimScope, what: str = "gates have moved alike", reading: str = "gates alike") -> Claim:
    """Clients with like labels have like gates."""
    row = "pfedgate-0.3-shards"
    return where.claim(
        f"Figure 4: {where}: where ten clients with two shards each share labels their {what}, density 0.3",
        lambda data: [combined(float, RowAt(where.row(data, row), "post", extra(reading)), least=0.0)],
        row,
    )
