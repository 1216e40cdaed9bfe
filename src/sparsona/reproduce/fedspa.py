"""Table 1 of FedSpa, its sparsity sweep, ERK against uniform, and its figures 1, 3 and 4, on nets that a CPU can train.

CIFAR-10 with the small `lenet-cifar` for VGG11, and Fashion-MNIST with the paper's LeNet5 for EMNIST-Letters. As in the
paper: 100 clients, 10 a round, batch 128, learning rate 0.1 * 0.998^t, weight decay 5e-4, gradients clipped at 10, and
CIFAR images cropped and flipped. All methods are measured at `pre` and `post`; fedavg at `ft` is `fedavg-ft`. `quick`
takes one local epoch for five and few rounds; Ditto then trains an epoch for each of its two models. The whole has the
paper's five epochs, and every row chooses its learning rate on validation samples, in a tenth of the rounds.
Fashion-MNIST under the most skewed labels has three seeds for the methods, all else one. `day` is the part of the whole
that decides most: there, three seeds of FedSpa and FedAvg, and one of four methods and three studies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sparsona.methods._masked import ServerState
from sparsona.prepare import Prepared
from sparsona.report.curves import curve
from sparsona.reproduce import PAPERS, Case, Grid, Paper, Runs, Size, Summary, finished, score, server_scores
from sparsona.reproduce._verdicts import (
    At,
    Check,
    Claim,
    Verdict,
    above,
    any_of,
    exceeds,
    extra,
    fact,
    first_seeds,
    never,
    values,
    within,
)
from sparsona.runs.directory import RunDirectory

MODELS = {"fashion-mnist": "lenet5", "cifar-10": "lenet-cifar"}
SAMPLES = {"fashion-mnist": 600, "cifar-10": 500}
SETTINGS = {"iid": "iid", "0.5": "dirichlet-clients:0.5", "0.3": "dirichlet-clients:0.3"}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "local": ("local", {}),
    "fedavg": ("fedavg", {}),
    "ditto": ("ditto", {"form": "shrink", "lam": 0.5}),
    "sub-fedavg": ("sub-fedavg", {}),
    "subsampling": ("subsampling", {}),
    "fedspa-rsm": ("fedspa", {"search": "rsm"}),
    "fedspa-dst": ("fedspa", {}),
}
SWEEP = (0.2, 0.4, 0.6, 0.8)
STUDIES: dict[str, dict[str, Any]] = {
    **{f"sparsity-{s:g}": {"density": round(1 - s, 3)} for s in SWEEP},
    "uniform": {"init": "uniform"},
    "rsm-different": {"search": "rsm", "same_init": False},
    "different": {"same_init": False},
    "random": {"regrow": "random"},
    "count": {"agg": "count"},
}
TABLE_1 = {
    # IID, setting A, setting B: CIFAR-10 with VGG11 has gamma 0.5 and 0.3, EMNIST-L with LeNet5 0.2 and 0.1
    "cifar-10": {
        "fedspa-dst": (83.4, 86.6, 88.2),
        "fedspa-rsm": (84.5, 82.1, 80.9),
        "ditto": (83.5, 86.4, 87.8),
        "fedavg": (84.8, 82.0, 81.4),
        "sub-fedavg": (71.8, 78.3, 79.6),
        "local": (42.5, 63.6, 69.4),
        "subsampling": (83.0, 78.9, 76.7),
    },
    "fashion-mnist": {
        "fedspa-dst": (92.2, 95.3, 96.5),
        "fedspa-rsm": (92.9, 91.9, 90.6),
        "ditto": (92.9, 95.9, 97.0),
        "fedavg": (93.5, 92.3, 90.9),
        "sub-fedavg": (90.7, 94.9, 96.4),
        "local": (77.6, 87.8, 91.6),
        "subsampling": (93.3, 92.0, 91.3),
    },
}
SEEDS = (1, 2, 3)
DAY = {
    **dict.fromkeys(("fedspa-dst", "fedavg"), SEEDS),
    **dict.fromkeys(("fedspa-rsm", "ditto", "sub-fedavg", "local", "uniform", "random", "count"), (1,)),
}
"""The rows of the whole that a day of two cores can run, on Fashion-MNIST under the most skewed labels, and their
seeds: three for the headline, one for all else."""
ROUNDS = {True: {"fashion-mnist": 30, "cifar-10": 20}, False: {"fashion-mnist": 150, "cifar-10": 200}}
RATES = (0.1, 0.05)
"""Of the whole; the first is the paper's. All rates fall by 0.998 a round."""
GOALS = (0.80, 0.85)
"""The accuracies at `pre` whose rounds are counted (C3)."""
COLOURS = dict(
    zip(METHODS, ("grey", "tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:pink", "tab:red"), strict=True)
)


@PAPERS.add
def fedspa(size: Size) -> Paper:
    """Two data sets by three settings by seven methods, and the studies of FedSpa under the most skewed labels."""
    day = {name_of("fashion-mnist", "0.3", row): seeds for row, seeds in DAY.items()}
    return Paper(
        title="FedSpa: Achieving Personalized Federated Learning with Sparse Local Models",
        cases=[case for case in _cases(size == "quick") if size != "day" or case.seed in day.get(case.of, ())],
        claims=CLAIMS,
        extra=_read,
        drawings={
            "fedspa-communication.png": _draw_communication,
            "fedspa-rounds.png": _draw_rounds,
            "fedspa-sparsity.png": _draw_sparsity,
        },
    )


def name_of(data: str, setting: str, method: str) -> str:
    """The run of a method, or of a study of FedSpa, in a setting.

    >>> name_of("cifar-10", "0.3", "fedspa-dst")
    'cifar-10-0.3-fedspa-dst'
    """
    return f"{data}-{setting}-{method}"


def _cases(quick: bool) -> Iterator[Case]:
    for data in MODELS:
        for setting in SETTINGS:
            for label, (method, options) in METHODS.items():
                if not quick or data == "fashion-mnist" or setting == "0.3":
                    for seed in SEEDS if (data, setting) == ("fashion-mnist", "0.3") else (1,):
                        yield _case(data, setting, label, method, options, quick, seed)
        for setting in ("iid", "0.3"):
            for study, options in STUDIES.items():
                if not quick or (data == "fashion-mnist" and (setting == "0.3" or study == "rsm-different")):
                    yield _case(data, setting, study, "fedspa", options, quick)


def _case(
    data: str, setting: str, label: str, method: str, options: dict[str, Any], quick: bool, seed: int = 1
) -> Case:
    rounds, epochs = ROUNDS[quick][data], 1 if quick else 5
    length: dict[str, Any] = {"epochs": epochs}
    if method == "ditto":
        options = {**options, "global_epochs": 1 if quick else 2, "personal_epochs": 1 if quick else 3}
    if method == "sub-fedavg" and quick:  # one epoch, counted in steps: it compares two moments of a training
        length = {"steps": -(-SAMPLES[data] // 128)}
    printed = TABLE_1[data].get(label)
    source = "CIFAR-10, VGG11" if data == "cifar-10" else "EMNIST-L, LeNet5, gamma 0.2 and 0.1 for 0.5 and 0.3"
    row = name_of(data, setting, label)
    return Case(
        name=row if seed == 1 else f"{row}-{seed}",
        table=f"{data}, {MODELS[data]}, {SETTINGS[setting]}, {epochs} local epochs (paper: {source})",
        settings={
            "method": method,
            "data": data,
            "model": MODELS[data],
            "clients": 100,
            "partition": SETTINGS[setting],
            "rounds": rounds,
            "seed": seed,
            "options": options,
            "training": {"batch": 128, "lr": 0.1, "decay": 0.998, "weight_decay": 5e-4, "clip": 10.0, **length}
            | ({"augment": True} if data == "cifar-10" else {}),
            "schedule": {"sample": 0.1},
            "split": {"validation": 0.0},
            "evaluation": {"every": rounds // 5 if quick else 5, "post": "participants", "ft": label == "fedavg"},
        },
        paper=printed[list(SETTINGS).index(setting)] / 100 if printed else None,
        cost=rounds * epochs * (2 if method == "ditto" and quick else 1) * (2 if data == "cifar-10" else 1),
        row=row,
        grid=None if quick else Grid("training.lr", RATES, rounds // 10),
    )


def _share(data: str, method: str, count: str, at_most: float, rival: str = "fedavg") -> Check:
    """Whether a row has at most so much of a rival's count: numbers up and down (`paper_bytes`) or operations."""
    rows = tuple(name_of(data, "0.3", m) for m in (method, rival))

    def test(runs: Runs) -> tuple[bool, str] | None:
        pair = first_seeds(runs, *rows)
        if pair is None:
            return None
        one, other = (run[count] for run in pair)
        pairs = {way: one[way] / other[way] for way in one} if isinstance(one, dict) else {"in all": one / other}
        return max(pairs.values()) < at_most, ", ".join(f"{way} {share:.4f}" for way, share in sorted(pairs.items()))

    return fact(test, *rows)


def _inside(data: str, point: str) -> Check:
    """Whether some sparsity between them is above both ends of the sweep."""
    names = {s: name_of(data, "0.3", "fedspa-dst" if s == 0.5 else f"sparsity-{s:g}") for s in (*SWEEP, 0.5)}
    low, high = names[SWEEP[0]], names[SWEEP[-1]]
    middle = [row for row in names.values() if row not in (low, high)]
    return any_of(*(above(row, low, high, point=point) for row in middle))


def _sooner(data: str, rival: str, goal: float) -> Check:
    """Whether FedSpa (DST) gets to an accuracy at `pre` in fewer rounds than a rival, with every seed that both have.
    Who never gets there is later; where neither does with any seed, the runs were too short to tell."""
    rows = tuple(name_of(data, "0.3", m) for m in ("fedspa-dst", rival))

    def check(runs: Runs) -> Verdict:
        mine, other = (values(runs, row, of=extra(_goal(goal))) for row in rows)
        pairs = [(mine[seed], other[seed]) for seed in sorted(mine.keys() & other.keys())]
        if not pairs:
            return Verdict("not run", "nobody has counted the rounds")
        if not any(map(any, pairs)):
            return Verdict("not run", "neither gets there in the rounds that were run")
        sooner = {0 < one < (two or math.inf) for one, two in pairs}
        told = ", ".join(" and ".join(f"{rounds:g}" if rounds else "never" for rounds in pair) for pair in pairs)
        return Verdict("within noise" if len(sooner) > 1 else "yes" if True in sooner else "no", f"rounds: {told}")

    return check


def _goal(goal: float) -> str:
    return f"rounds to {goal:.2f}"


def _read(folder: RunDirectory, prepared: Prepared) -> dict[str, float]:
    """The first measured rounds with an accuracy at `pre`, 0 for never, and what the server's own vector scores under
    FedSpa."""
    rounds, scores = curve(folder.path, "pre")
    reached = {goal: [r for r, score in zip(rounds, scores, strict=True) if score >= goal] for goal in GOALS}
    own = server_scores(folder, prepared, ServerState) if prepared.experiment.method == "fedspa" else {}
    return own | {_goal(goal): float(found[0]) if found else 0.0 for goal, found in reached.items()}


FULL = "`sparsona reproduce fedspa`: about 60 CPU hours with these nets"
SHORT = "`sparsona reproduce fedspa --size quick`: two CPU minutes a run"
PAPERS_NET = {"fashion-mnist": "EMNIST-L, LeNet5", "cifar-10": "CIFAR-10, VGG11"}


def _printed(data: str, setting: str, rival: str) -> str:
    """The paper's two numbers for a comparison; on EMNIST-L it has Ditto, and on IID data FedAvg, above FedSpa."""
    place = list(SETTINGS).index(setting)
    mine, other = (TABLE_1[data][m][place] for m in ("fedspa-dst", rival))
    return f"paper, {PAPERS_NET[data]}: {mine:g} and {other:g}"


def _of(data: str) -> Iterator[Claim]:
    """The claims that are tested on one data set."""

    def at(setting: str, *methods: str) -> tuple[str, ...]:
        return tuple(name_of(data, setting, method) for method in methods)

    for setting in ("0.3", "0.5"):
        for rival in ("ditto", "sub-fedavg", "fedavg", "fedspa-rsm", "subsampling", "local"):
            printed = _printed(data, setting, rival)
            place = list(SETTINGS).index(setting)
            rows = sorted(("fedspa-dst", rival), key=lambda row: -TABLE_1[data][row][place])
            for point in ("pre", "post"):
                yield Claim(
                    f"C2: {data}, {setting}: {rows[0]} above {rows[1]} at `{point}` ({printed})",
                    above(*at(setting, *rows), point=point),
                    FULL,
                )
    for better in ("fedspa-rsm", "fedavg"):
        yield Claim(
            f"C2: {data}, IID: {better} above FedSpa (DST) at `pre` ({_printed(data, 'iid', better)})",
            above(*at("iid", better, "fedspa-dst")),
            FULL,
        )
    for point in ("pre", "post"):
        yield Claim(
            f"C4: {data}, 0.3: some sparsity inside the sweep above both of its ends at `{point}`",
            _inside(data, point),
            FULL,
        )
    for text, setting, one, other in (
        ("C5: ERK above uniform", "0.3", "fedspa-dst", "uniform"),
        ("C6: gradients regrow better than chance", "0.3", "fedspa-dst", "random"),
        ("C7: RSM is better with different masks", "0.3", "rsm-different", "fedspa-rsm"),
        ("C7: RSM is worse with different masks", "iid", "fedspa-rsm", "rsm-different"),
        ("C7: RSM with different masks stays below DST", "0.3", "fedspa-dst", "rsm-different"),
        ("C7: DST is slightly better with different masks", "0.3", "different", "fedspa-dst"),
    ):
        for point in ("pre", "post"):
            check = above(*at(setting, one, other), point=point)
            yield Claim(f"{text}, {data}, {'IID' if setting == 'iid' else setting}, at `{point}`", check, FULL)
    for rival in ("ditto", "fedavg"):
        for goal in GOALS if data == "fashion-mnist" else ():
            yield Claim(
                f"C3: {data}, 0.3: FedSpa (DST) has {goal:.0%} at `pre` in fewer rounds than {rival}"
                f" (paper: to 80 % on CIFAR-10 DST 270, Ditto 418, FedAvg 584)",
                _sooner(data, rival, goal),
                FULL,
            )
    yield Claim(
        f"C8: FedSpa's global model is worse than FedAvg's, {data}, 0.3",
        exceeds(At(name_of(data, "0.3", "fedavg")), At(name_of(data, "0.3", "fedspa-dst"), "pre", extra("server"))),
        SHORT,
    )
    yield Claim(
        f"C8: FedSpa's global model is worse than its own personal ones, {data}, 0.3",
        exceeds(At(name_of(data, "0.3", "fedspa-dst")), At(name_of(data, "0.3", "fedspa-dst"), "pre", extra("server"))),
        SHORT,
    )
    yield Claim(
        f"5.2: {data}, IID: RSM within 1.5 points of FedAvg at `pre`",
        within(0.015, *at("iid", "fedspa-rsm", "fedavg")),
        FULL,
    )
    for better in ("fedspa-rsm", "fedavg"):
        yield Claim(
            f"5.2: {data}, IID: {better} above the personal methods (Ditto, Sub-FedAvg, DST) at `pre`",
            above(*at("iid", better, "ditto", "sub-fedavg", "fedspa-dst")),
            FULL,
        )
    yield Claim(
        f"5.2: {data}: FedSpa sends at least 13 % fewer numbers than Sub-FedAvg (paper: 13.0 to 28.2 %)",
        _share(data, "fedspa-dst", "paper_bytes", 0.87, "sub-fedavg"),
        SHORT,
    )
    yield Claim(
        f"5.2: {data}: Sub-FedAvg takes fewer operations than FedSpa (DST)",
        _share(data, "sub-fedavg", "flops", 1.0, "fedspa-dst"),
        SHORT,
    )
    yield Claim(
        f"C9: {data}: FedSpa sends half of FedAvg's numbers", _share(data, "fedspa-dst", "paper_bytes", 0.5001), SHORT
    )
    saved, net = (0.246, "VGG11") if data == "cifar-10" else (0.4, "LeNet5, where it is 42.9 %")
    for search in ("rsm", "dst"):
        yield Claim(
            f"C9: {data}: at least {saved:.1%} fewer operations than FedAvg, {search.upper()}, its search included"
            f" (paper: {net}, five epochs; with one the search weighs five times as much)",
            _share(data, f"fedspa-{search}", "flops", 1 - saved),
            SHORT,
        )
    for point in ("pre", "post"):
        yield Claim(
            f"ours: {data}, 0.3: averaging a weight over those who hold it (`agg=count`) above the paper's mean,"
            f" `{point}`",
            above(*at("0.3", "count", "fedspa-dst"), point=point),
            FULL,
        )
    yield Claim(
        f"against it: {data}, 0.3: FedAvg fine-tuned (`ft`) above FedSpa (DST) at `post`",
        above(*at("0.3", "fedavg", "fedspa-dst"), point="ft", other_point="post"),
        SHORT,
    )


CLAIMS = [
    *(claim for data in MODELS for claim in _of(data)),
    Claim("C1: CIFAR-100 with ResNet18, gamma 0.1: FedSpa (DST) 66.9 above Ditto 62.5, Sub-FedAvg 55.0, FedAvg 45.0",
          never("neither the data nor a GPU"), "about 4,000 CPU hours"),
    Claim("C1: CIFAR-100 with ResNet18, gamma 0.2 and IID: DST 59.0 above Ditto 56.8; FedAvg 55.7 above DST 41.5",
          never("neither the data nor a GPU"), "about 8,000 CPU hours"),
    Claim("C2: CIFAR-10 with VGG11, the paper's net", never("lenet-cifar stands in for it"), "about 1,500 CPU hours"),
    Claim("C2: EMNIST-Letters: Ditto 95.9 and 97.0 above DST 95.3 and 96.5",
          never("the data are not on this machine: Fashion-MNIST stands in for them"),
          "about 40 CPU hours, once `sparsona data get emnist` has run"),
    Claim("C3: rounds to 80 % on CIFAR-10: DST 270, Ditto 418, FedAvg 584; to 55 % on CIFAR-100: DST 408, Ditto 679",
          never("needs the paper's 1,000 rounds"), "about 1,500 CPU hours with VGG11"),
    Claim("C3: IID: DST is slower than FedAvg (312 and 229 rounds); Sub-FedAvg is faster to 70 % (137 against 164)",
          never("needs the paper's 1,000 rounds"), "about 1,500 CPU hours with VGG11"),
    Claim("C4: gamma 0.2: the sparser the worse, so that the best sparsity is inside for gamma 0.1 only",
          never("neither the data nor a GPU"), "about 6,000 CPU hours"),
    Claim("C4: CIFAR-100: best at a sparsity of 0.4 (67.2; 65.5 at 0.2, 56.7 at 0.8); IID: the sparser the worse",
          never("neither the data nor a GPU"), "about 6,000 CPU hours"),
    Claim("C5: CIFAR-100 with ResNet18: ERK 66.9, uniform 56.3 with 34 % fewer operations",
          never("neither the data nor a GPU; ERK's counts for ResNet18 are tested"), "about 1,200 CPU hours"),
]  # fmt: skip


def _megabytes(summary: Summary) -> float:
    return float(summary["bytes"]["up"] + summary["bytes"]["down"]) / 1e6


def _draw_communication(runs: Path, to: Path) -> bool:
    """Figure 1: accuracy over the bytes that really travelled, with the sparsity at each of FedSpa's points."""
    done = finished(fedspa("quick").cases, runs)
    grid = [(d, point) for d in MODELS if name_of(d, "0.3", "fedspa-dst") in done for point in ("pre", "post")]

    def draw(axes: Any, data: str, point: str) -> None:
        for label in METHODS:
            found = done.get(name_of(data, "0.3", label))
            if found is not None:
                axes.plot(_megabytes(found), score(found, point), "o", color=COLOURS[label], label=label)
        swept = {0.5: "fedspa-dst", **{s: f"sparsity-{s:g}" for s in SWEEP}}
        points = {s: done.get(name_of(data, "0.3", name)) for s, name in sorted(swept.items())}
        known = {s: (_megabytes(f), score(f, point)) for s, f in points.items() if f is not None}
        axes.plot(*zip(*known.values(), strict=True), "-", color=COLOURS["fedspa-dst"], marker=".")
        for sparsity, where in known.items():
            axes.annotate(f"{sparsity:g}", where, (0, 5), textcoords="offset points", ha="center", fontsize=8)
        axes.set_xlabel("MB sent, up and down")

    return _draw(grid, draw, to)


def _draw_rounds(runs: Path, to: Path) -> bool:
    """Figure 3: accuracy of the clients' models over the rounds."""
    done = finished(fedspa("quick").cases, runs)
    grid = [(data, setting) for data in MODELS for setting in SETTINGS if name_of(data, setting, "fedspa-dst") in done]

    def draw(axes: Any, data: str, setting: str) -> None:
        for label in METHODS:
            if name_of(data, setting, label) in done:
                axes.plot(*curve(runs / name_of(data, setting, label), "pre"), color=COLOURS[label], label=label)
        axes.set_xlabel("round")

    return _draw(grid, draw, to)


def _draw_sparsity(runs: Path, to: Path) -> bool:
    """Figure 4: FedSpa (DST) at different sparsities over the rounds."""
    done = finished(fedspa("quick").cases, runs)
    grid = [(data, "0.3") for data in MODELS if name_of(data, "0.3", "sparsity-0.2") in done]

    def draw(axes: Any, data: str, setting: str) -> None:
        for sparsity in sorted((*SWEEP, 0.5)):
            name = name_of(data, setting, "fedspa-dst" if sparsity == 0.5 else f"sparsity-{sparsity:g}")
            if name in done:
                axes.plot(*curve(runs / name, "pre"), label=f"sparsity {sparsity:g}")
        axes.set_xlabel("round")

    return _draw(grid, draw, to)


def _draw(grid: Sequence[tuple[str, str]], draw: Callable[[Any, str, str], None], to: Path) -> bool:
    """One panel a cell of `grid`; nothing where there is none."""
    from matplotlib.figure import Figure

    if not grid:
        return False
    figure = Figure(figsize=(1 + 3.6 * len(grid), 3.4), layout="constrained")
    for axes, cell in zip(figure.subplots(1, len(grid), squeeze=False)[0], grid, strict=True):
        draw(axes, *cell)
        axes.set_title(f"{cell[0]}, {cell[1]}", fontsize=10)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("mean test accuracy")
    figure.axes[-1].legend(fontsize=7)
    figure.savefig(to, dpi=120)
    return True
