"""Table 1 of FedSpa, its sparsity sweep, ERK against uniform, and its figures 1, 3 and 4, on nets that a CPU can train.

CIFAR-10 with the small `lenet-cifar` for VGG11, and Fashion-MNIST with the paper's LeNet5 for EMNIST-Letters. As in the
paper: 100 clients, 10 a round, batch 128, learning rate 0.1 * 0.998^t, weight decay 5e-4, gradients clipped at 10, and
CIFAR images cropped and flipped. All methods are measured at `pre` and `post`; fedavg at `ft` is `fedavg-ft`. `quick`
takes one local epoch for five and few rounds; Ditto then trains an epoch for each of its two models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sparsona.methods._masked import ServerState
from sparsona.prepare import Prepared
from sparsona.report.curves import curve
from sparsona.reproduce import PAPERS, Case, Paper, Runs, Summary, finished, score, server_scores
from sparsona.reproduce._verdicts import At, Check, Claim, above, exceeds, extra, fact, never, values
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
ROUNDS = {True: {"fashion-mnist": 30, "cifar-10": 20}, False: {"fashion-mnist": 200, "cifar-10": 200}}
COLOURS = dict(
    zip(METHODS, ("grey", "tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:pink", "tab:red"), strict=True)
)


@PAPERS.add
def fedspa(quick: bool) -> Paper:
    """Two data sets by three settings by seven methods, and the studies of FedSpa under the most skewed labels."""
    return Paper(
        title="FedSpa: Achieving Personalized Federated Learning with Sparse Local Models",
        cases=list(_cases(quick)),
        claims=CLAIMS,
        extra=_server,
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
                    yield _case(data, setting, label, method, options, quick)
        for setting in ("0.3",) if quick else ("iid", "0.3"):
            for study, options in STUDIES.items():
                if not quick or data == "fashion-mnist":
                    yield _case(data, setting, study, "fedspa", options, quick)


def _case(data: str, setting: str, label: str, method: str, options: dict[str, Any], quick: bool) -> Case:
    rounds, epochs = ROUNDS[quick][data], 1 if quick else 5
    length: dict[str, Any] = {"epochs": epochs}
    if method == "ditto":
        options = {**options, "global_epochs": 1 if quick else 2, "personal_epochs": 1 if quick else 3}
    if method == "sub-fedavg" and quick:  # one epoch, counted in steps: it compares two moments of a training
        length = {"steps": -(-SAMPLES[data] // 128)}
    printed = TABLE_1[data].get(label)
    source = "CIFAR-10, VGG11" if data == "cifar-10" else "EMNIST-L, LeNet5, gamma 0.2 and 0.1 for 0.5 and 0.3"
    return Case(
        name=name_of(data, setting, label),
        table=f"{data}, {MODELS[data]}, {SETTINGS[setting]}, {epochs} local epochs (paper: {source})",
        settings={
            "method": method,
            "data": data,
            "model": MODELS[data],
            "clients": 100,
            "partition": SETTINGS[setting],
            "rounds": rounds,
            "seed": 1,
            "options": options,
            "training": {"batch": 128, "lr": 0.1, "decay": 0.998, "weight_decay": 5e-4, "clip": 10.0, **length}
            | ({"augment": True} if data == "cifar-10" else {}),
            "schedule": {"sample": 0.1},
            "split": {"validation": 0.0},
            "evaluation": {"every": rounds // 5, "post": "participants", "ft": label == "fedavg"},
        },
        paper=printed[list(SETTINGS).index(setting)] / 100 if printed else None,
        cost=rounds * epochs * (2 if method == "ditto" and quick else 1) * (2 if data == "cifar-10" else 1),
    )


def _half(data: str) -> Check:
    """Whether FedSpa sends half of FedAvg's numbers, to within a thousandth."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        sparse, dense = (runs.get(name_of(data, "0.3", m)) for m in ("fedspa-dst", "fedavg"))
        if not sparse or not dense:
            return None
        one, other = next(iter(sparse.values())), next(iter(dense.values()))
        ratios = [one["paper_bytes"][way] / other["paper_bytes"][way] for way in ("up", "down")]
        return all(abs(ratio - 0.5) < 1e-3 for ratio in ratios), f"up {ratios[0]:.4f}, down {ratios[1]:.4f}"

    return fact(test)


def _inside(data: str) -> Check:
    """Whether some middle sparsity beats both ends of the sweep, by the means."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        names = {s: f"sparsity-{s:g}" for s in SWEEP} | {0.5: "fedspa-dst"}
        found = {s: values(runs, name_of(data, "0.3", name)) for s, name in sorted(names.items())}
        if not all(found.values()):
            return None
        means = {s: sum(own.values()) / len(own) for s, own in found.items()}
        best = max(means, key=means.__getitem__)
        return best not in (SWEEP[0], SWEEP[-1]), f"best at {best:g}: " + ", ".join(
            f"{s:g}: {m:.4f}" for s, m in means.items()
        )

    return fact(test)


def _server(folder: RunDirectory, prepared: Prepared) -> dict[str, float]:
    return server_scores(folder, prepared, ServerState) if prepared.experiment.method == "fedspa" else {}


FULL = "`sparsona reproduce fedspa`: about 70 CPU hours with these nets"
CLAIMS = [
    claim
    for data in MODELS
    for claim in (
        *(
            Claim(f"C2: {data}, 0.3: FedSpa (DST) above {m} at `{p}`",
                  above(name_of(data, "0.3", "fedspa-dst"), name_of(data, "0.3", m), point=p))
            for m in ("ditto", "sub-fedavg", "fedavg", "fedspa-rsm", "subsampling", "local") for p in ("pre", "post")
        ),
        Claim(f"C2: {data}, IID: FedSpa (RSM) above DST at `pre`",
              above(name_of(data, "iid", "fedspa-rsm"), name_of(data, "iid", "fedspa-dst")), FULL),
        Claim(f"C2: {data}, IID: FedAvg above FedSpa (DST) at `pre`",
              above(name_of(data, "iid", "fedavg"), name_of(data, "iid", "fedspa-dst")), FULL),
        Claim(f"C4: {data}, 0.3: the best sparsity lies inside the sweep at `pre`", _inside(data), FULL),
        *(
            Claim(f"{text}, {data}, 0.3, at `{p}`",
                  above(name_of(data, "0.3", one), name_of(data, "0.3", other), point=p), FULL)
            for text, one, other in (
                ("C5: ERK above uniform", "fedspa-dst", "uniform"),
                ("C6: gradients regrow better than chance", "fedspa-dst", "random"),
                ("C7: RSM is better with different masks", "rsm-different", "fedspa-rsm"),
            ) for p in ("pre", "post")
        ),
        Claim(f"C9: {data}: FedSpa sends half of FedAvg's numbers", _half(data)),
        Claim(f"against it: {data}, 0.3: FedAvg fine-tuned (`ft`) above FedSpa (DST) at `post`",
              above(*(name_of(data, "0.3", m) for m in ("fedavg", "fedspa-dst")), point="ft", other_point="post")),
    )
] + [
    Claim("C1: CIFAR-100 with ResNet18: FedSpa (DST) 66.9 above Ditto 62.5, Sub-FedAvg 55.0, FedAvg 45.0",
          never("neither the data nor a GPU"), "about 4,000 CPU hours"),
    Claim("C2: CIFAR-10 with VGG11, the paper's net", never("lenet-cifar stands in for it"), "about 1,500 CPU hours"),
    Claim("C3: rounds to 80 % on CIFAR-10: DST 270, Ditto 418, FedAvg 584, RSM 614",
          never("needs the paper's 1,000 rounds"), "about 1,500 CPU hours with VGG11"),
    *(
        Claim(f"C8: FedSpa's global model is worse than FedAvg's, {data}, 0.3",
              exceeds(At(name_of(data, "0.3", "fedavg")),
                      At(name_of(data, "0.3", "fedspa-dst"), "pre", extra("server"))),
              "`sparsona reproduce fedspa --quick --only '*-0.3-fed*'`: a CPU hour")
        for data in MODELS
    ),
]  # fmt: skip


def _megabytes(summary: Summary) -> float:
    return float(summary["bytes"]["up"] + summary["bytes"]["down"]) / 1e6


def _draw_communication(runs: Path, to: Path) -> bool:
    """Figure 1: accuracy over the bytes that really travelled, with the sparsity at each of FedSpa's points."""
    done = finished(fedspa(True), runs)
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
    done = finished(fedspa(True), runs)
    grid = [(data, setting) for data in MODELS for setting in SETTINGS if name_of(data, setting, "fedspa-dst") in done]

    def draw(axes: Any, data: str, setting: str) -> None:
        for label in METHODS:
            if name_of(data, setting, label) in done:
                axes.plot(*curve(runs / name_of(data, setting, label), "pre"), color=COLOURS[label], label=label)
        axes.set_xlabel("round")

    return _draw(grid, draw, to)


def _draw_sparsity(runs: Path, to: Path) -> bool:
    """Figure 4: FedSpa (DST) at different sparsities over the rounds."""
    done = finished(fedspa(True), runs)
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
