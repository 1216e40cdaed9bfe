"""Claims of the FedSpa paper that are tested both on its own data and nets and on those that a CPU can train: one
function of the testbed each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparsona_papers._checks import grows
from sparsona_papers._differences import RowAt, accuracy
from sparsona_papers._verdicts import Claim, above, exceeds, level, within
from sparsona_papers.fedspa.checks import fewer_and_above, fewer_numbers, fewer_operations, inside, sooner_to_best
from sparsona_papers.fedspa.plan import COMMAND, DENSER, PERSONAL, SWEEP, name_of


@dataclass(frozen=True)
class RowPair:
    """Makes the check that the first row is above the second."""

    text: str
    one: str
    other: str


ERK = RowPair("C5: ERK above uniform", "fedspa-dst", "uniform")
REGROWTH = RowPair("C6: gradients regrow better than chance", "fedspa-dst", "random")
RSM_GAINS = RowPair("C7: RSM is better with different masks", "rsm-different", "fedspa-rsm")
RSM_LOSES = RowPair("C7: RSM is worse with different masks", "fedspa-rsm", "rsm-different")
RSM_BELOW = RowPair("C7: RSM with different masks stays below DST", "fedspa-dst", "rsm-different")
DST_GAINS = RowPair("C7: DST is slightly better with different masks", "different", "fedspa-dst")
SWEPT = {s: "fedspa-dst" if s == 0.5 else f"sparsity-{s:g}" for s in sorted((*SWEEP, 0.5))}
"""The rows of the sweep by sparsity."""


@dataclass(frozen=True)
class Testbed:
    """The data set on which a claim is tested.

    `told` is its name in claims, and `prefix` begins the names of its rows. `settings` are IID and two skews of the
    labels, the stronger one last; `skewed` is a pattern for the two. `printed` are the paper's numbers of a row in the
    three settings, and `source` says where they stand. `at` names the evaluation point, if a claim needs it.

    >>> printed = {"local": (42.5, 63.6, 69.4)}
    >>> where = Testbed("cifar-10", "CIFAR-10", "paper-", ("iid", "A", "B"), "[AB]", printed, "paper", "")
    >>> where.only(("A", "B"), "local"), where.only(("iid", "A"), "local")
    (['paper-cifar-10-[AB]-local*'], ['paper-cifar-10-iid-local*', 'paper-cifar-10-A-local*'])
    >>> where.row("B", "local"), where.numbers("B", "local")
    ('paper-cifar-10-B-local', 'paper: 69.4')
    """

    data: str
    told: str
    prefix: str
    settings: tuple[str, str, str]
    skewed: str
    printed: Mapping[str, tuple[float, float, float]]
    source: str
    at: str

    def row(self, setting: str, method: str) -> str:
        """The row of a method, or of a study of FedSpa, in a setting."""
        return f"{self.prefix}{name_of(self.data, setting, method)}"

    def rows(self, setting: str, *methods: str) -> tuple[str, ...]:
        """Several rows of a setting."""
        return tuple(self.row(setting, method) for method in methods)

    def only(self, settings: tuple[str, ...], *methods: str) -> list[str]:
        """Return patterns that match exactly these rows in these settings."""
        one = {self.settings[1:]: self.skewed, self.settings: "*"}.get(settings)
        return [f"{self.row(setting, method)}*" for method in methods for setting in ([one] if one else settings)]

    def number(self, setting: str, method: str) -> float:
        """The paper's number."""
        return self.printed[method][self.settings.index(setting)]

    def numbers(self, setting: str, *methods: str, between: str = ", ") -> str:
        """Return the paper's numbers as text for a claim."""
        return f"{self.source}: {between.join(f'{self.number(setting, method):g}' for method in methods)}"

    def best_first(self, setting: str, *methods: str) -> list[str]:
        """Methods in the order of the paper's numbers."""
        return sorted(methods, key=lambda method: -self.number(setting, method))

    def lead(self, setting: str, one: str, other: str) -> float:
        """By how many points a row is above another in the paper."""
        return self.number(setting, one) - self.number(setting, other)

    def above(self, text: str, setting: str, *methods: str, point: str = "pre") -> Claim:
        """The first row of a setting is above all others."""
        rows = self.rows(setting, *methods)
        return Claim(text, above(*rows, point=point), COMMAND.of_rows(*rows))


def setting_name(setting: str) -> str:
    """Return the name of a setting in claims."""
    return "IID" if setting == "iid" else setting


def ranked(where: Testbed, mark: str, setting: str, order: Sequence[str], ending: str, point: str = "pre") -> Claim:
    """Claim: the row that is best in the paper is above the others."""
    first, *others = order
    text = f"{mark}: {where.told}, {setting}: {first} above {', '.join(others)}{ending}"
    return where.above(text, setting, *order, point=point)


def lead_grows_with_skew(where: Testbed, larger: str) -> Iterator[Claim]:
    """Claim: the lead of DST grows with the skew of the labels; `larger` is the check for the two settings."""
    _, less, more = where.settings
    for rival in ("fedavg", "ditto"):
        strong, weak = ((where.row(skew, "fedspa-dst"), where.row(skew, rival)) for skew in (more, less))
        leads = [where.lead(skew, "fedspa-dst", rival) for skew in (more, less)]
        yield Claim(
            f"5.2: {where.told}: DST's lead on {rival}{where.at} is {larger} ({where.source}: {leads[0]:.1f} and"
            f" {leads[1]:.1f} points)",
            grows([[weak], [strong]]),
            COMMAND.of_rows(*strong, *weak, only=where.only((less, more), "fedspa-dst", rival)),
        )


def harder(testbeds: Sequence[Testbed], skew: str, printed: Callable[[Sequence[float]], str]) -> Iterator[Claim]:
    """Claims: from the easiest to the hardest data set, the lead of DST grows, and so does the loss of personal methods
    on IID data. `printed` has the paper's points.
    """
    easy, hard = testbeds[0], testbeds[-1]
    leads = [(skew, "fedspa-dst", rival, f"DST's lead on {rival}{hard.at} is larger") for rival in ("fedavg", "ditto")]
    losses = [("iid", "fedavg", loser, f"{loser} is further below FedAvg{hard.at}") for loser in PERSONAL]
    for setting, one, other, text in (*leads, *losses):
        more, less = ((where.row(setting, one), where.row(setting, other)) for where in (hard, easy))
        points = printed([where.lead(setting, one, other) for where in testbeds])
        every = [f"*-{setting}-{row}*" for row in (one, other)]  # holds no other row where there are two data sets
        yield Claim(
            f"5.2: {setting_name(setting)}: {text} on {hard.data} than on {easy.data} ({points})",
            grows([[less], [more]]),
            COMMAND.of_rows(*more, *less, only=every if len(testbeds) == 2 else ()),
        )


def rsm_as_fedavg(where: Testbed, setting: str, subject: str, ending: str) -> Claim:
    """One random mask for all neither helps nor harms; `subject` begins the text."""
    rows = where.rows(setting, "fedspa-rsm", "fedavg")
    return Claim(f"{subject} within 1.5 points of FedAvg{ending}", within(0.015, *rows), COMMAND.of_rows(*rows))


def personal_lose_on_iid(where: Testbed, numbers: Callable[[Sequence[str]], str]) -> Iterator[Claim]:
    """On IID data personal models are worse than one for all, and Ditto is the best of them. `numbers` tells the
    paper's behind the methods' names."""
    for better in ("fedspa-rsm", "fedavg"):
        rows = (better, *PERSONAL)
        text = f"{better} above the personal methods (Ditto, Sub-FedAvg, DST{numbers(rows)}){where.at}"
        yield where.above(f"5.2: {where.told}, IID: {text}", "iid", *rows)
    yield where.above(
        f"5.2: {where.told}, IID: Ditto above the compression-based Sub-FedAvg and DST{where.at}"
        f" ({where.numbers('iid', *PERSONAL)})",
        "iid",
        *PERSONAL,
    )


def swept(where: Testbed, setting: str) -> dict[float, str]:
    """The rows of the sweep by their sparsity."""
    return {s: where.row(setting, study) for s, study in SWEPT.items()}


def sweep_cost(where: Testbed, setting: str) -> str:
    """The command for the whole sweep."""
    return COMMAND.of_rows(*swept(where, setting).values(), only=where.only((setting,), "sparsity-", "fedspa-dst"))


def sparsity_inside(where: Testbed, setting: str, ending: str, point: str = "pre") -> Claim:
    """Neither the densest nor the sparsest net is the best."""
    return Claim(
        f"C4: {where.told}, {setting}: some sparsity inside the sweep above both of its ends{ending}",
        inside(list(swept(where, setting).values()), point),
        sweep_cost(where, setting),
    )


def best_sparsity(where: Testbed, mark: str, setting: str, best: float, ending: str) -> Claim:
    """One sparsity is above all others."""
    rows = swept(where, setting)
    return Claim(
        f"{mark}: {where.told}, {setting}: {best:g} is the best sparsity{ending}",
        above(rows[best], *(row for s, row in rows.items() if s != best)),
        sweep_cost(where, setting),
    )


def sparsity_gains(where: Testbed, less: str, more: str, ending: str, only: Sequence[str] = ()) -> Claim:
    """Claim: with more skew the sparser net gains on the denser one."""
    even, skewed = ((where.row(s, "sparsity-0.4"), where.row(s, "sparsity-0.2")) for s in (less, more))
    return Claim(
        f"abstract and B.4: {where.told}: a sparsity of 0.4 gains on 0.2{where.at} {ending}",
        grows([[even], [skewed]]),
        COMMAND.of_rows(*skewed, *even, only=only),
    )


def fewer_numbers_and_above(where: Testbed, setting: str) -> Claim:
    """Claim: methods that send more are worse."""
    rows = where.rows(setting, "fedspa-dst", *DENSER)
    return Claim(
        f"Figure 1: {where.told}, {setting}: DST sends fewer numbers than {', '.join(DENSER)} and is above"
        f" them{where.at}",
        fewer_and_above(*rows),
        COMMAND.of_rows(*rows),
    )


def beside_sub_fedavg(where: Testbed, subject: str, setting: str, percent: int, printed: str) -> Iterator[Claim]:
    """FedSpa sends less than Sub-FedAvg, by so many per cent, and computes more; `subject` says where."""
    mine, other = where.rows(setting, "fedspa-dst", "sub-fedavg")
    yield Claim(
        f"5.2: {subject}: FedSpa sends at least {percent} % fewer numbers than Sub-FedAvg (paper: {printed})",
        fewer_numbers(mine, other, 1 - percent / 100),
        COMMAND.of_rows(mine, other),
    )
    yield Claim(
        f"5.2: {subject}: Sub-FedAvg takes fewer operations than FedSpa (DST)",
        fewer_operations(other, mine, 1.0),
        COMMAND.of_rows(other, mine),
    )


def sooner_to_best_of(where: Testbed, setting: str, rival: str) -> Claim:
    """Claim: DST needs fewer rounds than a rival to the rival's best accuracy."""
    saved = {"fedavg": 76.2, "ditto": 38.1}[rival]
    mine, other = where.rows(setting, "fedspa-dst", rival)
    return Claim(
        f"introduction: {where.told}, {setting}: DST gets to the best accuracy of {rival}{where.at} in fewer rounds"
        f" (paper: {saved} % fewer)",
        sooner_to_best(mine, other),
        COMMAND.of_rows(mine, other, seeds=2, at_least="day"),
    )


def global_model(where: Testbed, setting: str, cost: str, own_cost: str) -> Iterator[Claim]:
    """Claims: the server's vector is worse than FedAvg's model and, except on IID data, than the personal models. Each
    claim has its own cost.
    """
    mine, rival = where.rows(setting, "fedspa-dst", "fedavg")
    server, ending = RowAt(mine, "pre", accuracy("server")), f"{where.told}, {setting_name(setting)}"
    yield Claim(f"C8: FedSpa's global model is worse than FedAvg's, {ending}", exceeds(RowAt(rival), server), cost)
    if setting == "iid":
        text = f"C8: FedSpa's global model is within 1.5 points of its own personal ones, {ending}"
        yield Claim(text, level(RowAt(mine), server, 0.015), own_cost)
    else:
        text = f"C8: FedSpa's global model is worse than its own personal ones, {ending}"
        yield Claim(text, exceeds(RowAt(mine), server), own_cost)
