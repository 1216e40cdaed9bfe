"""The experiments that pFedNet's draft does not have: lambda between local and consensus, bytes against accuracy, and
which sketch finds the right neighbours.

Logistic regression on covtype (its four wilderness areas; twenty clients by k-means; the areas cut into five clients
each), on heart disease with its four hospitals, and on Fashion-MNIST with three classes a client. covtype is an
excerpt: few samples to train on, many to test on. Differences are small, so there are several seeds; `quick` takes
fewer. Where methods are compared (`tuned-*`), each chooses among six settings on validation samples: six learning
rates, or two of them by three values of lambda or of the number of clusters. The sweeps are for the drawings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data import describe, load, roots
from sparsona.data.dataset import Array, Dataset
from sparsona.method import ClientGraph
from sparsona.methods.pfednet.cluster import clustered, typical
from sparsona.methods.pfednet.server import ServerState
from sparsona.report.drawings import plot_network
from sparsona.reproduce import PAPERS, Case, Grid, Paper, Runs, Summary, finished, score, server_state
from sparsona.reproduce._verdicts import At, Check, Claim, above, fact, loses, never
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import by_round

LAMBDAS = (0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 2.0)
GAMMAS = (0.01, 0.03, 0.1, 0.3, 1.0)
FREE = (0.03, 0.1, 0.3)
"""In units of median |g| sqrt(d), zeros left out; the latter are run with a free end, too."""
LEVELS = (2, 4, 8, 16)
QSGD = (1, 3, 7, 31)
SKETCHES = ("label", "shares", "mean", "cov", "kernel", "model")
AREAS = ("rawah", "neota", "comanche-peak", "cache-la-poudre")
RATE = 0.05
BATCHES = {"heart": 10.75, "kmeans": 3, "parts": 6}
"""Where there are rivals: the mean number of batches in a client's epoch. L2GD's 1/p, so that it trains as much."""
PULLS = (0.1, 0.4, 1.6)
"""L2GD's lambda: the specification's, and larger ones."""
SEEDS = {
    "heart": (10, 20),
    "areas-60": (3, 10),
    "areas-250": (3, 10),
    "kmeans": (5, 10),
    "parts": (5, 10),
    "fashion": (1, 5),
}
"""Of `quick`, and of the whole."""
SAME = {"joining": "parts"}
"""`joining`: five of the twenty clients of `parts` come after training."""
COST = {"areas-250": 3.0, "parts": 4.0, "joining": 4.0, "twins": 5.0, "kmeans": 6.0, "fashion": 9.0, "heads": 30.0}
"""About the seconds of a run; the others' are 1."""
BEST = {"kmeans": 0.01, "fashion": 0.01}
"""The lambda under which bytes are saved: the search's best but 0."""
TWO = (0.05, 0.2)
"""Learning rates for methods that have a strength to choose, too; the others choose among six rates."""


def _pairs(*strengths: float, twice: bool = False) -> tuple[tuple[float, ...], ...]:
    return tuple((rate, rate, s) if twice else (rate, s) for rate in TWO for s in strengths)


SIX = (0.05, 0.02, 0.1, 0.2, 0.4, 0.8)
TUNED: dict[str, tuple[str, tuple[float | tuple[float, ...], ...]]] = {
    # what is chosen on validation samples, among six
    "pfednet": ("training.lr,options.eta,options.lam", _pairs(0.03, 0.01, 0.1, twice=True)),
    "local": ("training.lr", SIX),
    "fedavg": ("training.lr", SIX),
    "ditto": ("training.lr,options.lam", _pairs(0.5, 0.1, 1.0)),
    "pfedme": ("training.lr,options.lambda_", _pairs(15, 5, 2)),
    "l2gd": ("training.lr,options.lam", (*((0.05, lam) for lam in PULLS), *((0.2, lam / 4) for lam in PULLS))),
    "ifca": ("training.lr,options.clusters", _pairs(2, 3, 4)),
}
COMPARED = ("heart", "kmeans", "parts")
DEFAULT = 32
"""The levels of pFedNet as it comes."""
ROUNDED = (0, 4, 8, 16, 32)
"""Levels of an update with all seeds, for pFedNet's default: at `tuned-pfednet`'s first lambda."""


def excerpt(name: str) -> str:
    """Some samples of covtype or Fashion-MNIST dealt out to clients, as a data set of its own; made once."""
    path = roots()[0] / "excerpts" / f"pfednet-{name}.npz"
    source = "fashion-mnist" if name == "twins" else "covtype"
    if not path.exists() and describe(source).present:
        data, rng = load(source), np.random.default_rng(0)
        train, test, owner = _owners(name, data, rng)
        chosen: dict[str, list[Array]] = {"train": [], "test": []}
        for client in np.unique(owner[owner >= 0]):
            mine = rng.permutation(np.flatnonzero(owner == client))
            chosen["train"].append(mine[:train])
            chosen["test"].append(mine[train : train + test])
        t, v = (np.concatenate(chosen[part]) for part in ("train", "test"))
        x, names = _normalised(data), np.array([f"{c:02d}" for c in range(100)])
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            path, x=x[t], y=data.targets[t], client=names[owner[t]],
            x_test=x[v], y_test=data.targets[v], client_test=names[owner[v]],
        )  # fmt: skip
    return f"npz:{path}"


def _owners(name: str, data: Dataset, rng: np.random.Generator) -> tuple[int, int, Array]:
    """TrainJob and test samples of a client, and whose each sample is (-1: nobody's)."""
    if name == "twins":  # five groups of four clients with the same two classes
        return 40, 200, data.targets // 2 * 4 + rng.integers(0, 4, len(data))
    assert data.groups is not None
    if name == "kmeans":
        from sklearn.cluster import MiniBatchKMeans

        x = _normalised(data)
        means = MiniBatchKMeans(20, random_state=0, n_init=3).fit(x[rng.choice(len(x), 60_000, replace=False)])
        return 50, 500, means.predict(x)
    if name == "parts":  # each area cut into five clients
        return 100, 400, data.groups * 5 + rng.integers(0, 5, len(data))
    return int(name.rpartition("-")[2]), 2000, data.groups


def _normalised(data: Dataset) -> Array:
    if data.inputs.dtype == np.uint8:
        return data.inputs
    return (data.inputs - np.array(data.mean, np.float32)) / np.array(data.std, np.float32)


@PAPERS.add
def pfednet(quick: bool) -> Paper:
    """Every setting with all values of lambda; gamma, levels and sketches where they tell something."""
    return Paper(
        "pFedNet: Communication Efficient Training of Federated Model Over Unbalanced Labels",
        list(_cases(quick)),
        list(_claims()),
        {
            "pfednet-means.md": _means,
            "pfednet-lambda.png": _draw_lambda,
            "pfednet-bytes.png": _draw_bytes,
            "pfednet-elements.png": _draw_elements,
            "pfednet-graphs.png": _draw_graphs,
        },
    )


def _settings(data: str, quick: bool) -> dict[str, Any]:
    dealt = data in ("fashion", "heads")
    out: dict[str, Any] = {
        "data": "heart-disease" if data == "heart" else "fashion-mnist" if dealt else excerpt(SAME.get(data, data)),
        "model": "convnet2" if data == "heads" else "logistic",
        "partition": "classes:3" if dealt else "groups",
        "clients": 20 if dealt else 0,
        "rounds": 20 if dealt and quick else 40 if quick else 100,
        "engine": "inprocess",
        "training": {"lr": RATE, "batch": 16},
        "evaluation": {"every": 0, "post": "participants"},
    }
    if out["data"].startswith("npz:"):
        out["columns"] = {"scaling": "none"}  # an excerpt is normalised when it is made
    if dealt:
        out["training"]["steps"] = 10
    if data == "joining":
        out["new_clients"] = 0.25
    return out


def _cases(quick: bool) -> Iterator[Case]:
    for data in COMPARED:
        for seed in range(5 if quick else 10):
            for name, (key, choices) in TUNED.items():
                more: dict[str, Any] = {"p": round(1 / BATCHES[data], 4)} if name == "l2gd" else {}
                if name == "pfednet":
                    more = {"levels": DEFAULT}
                grid = Grid(key, choices, 20)
                yield _case(data, f"tuned-{name}", name, {**more, **_sketch(data, name)}, seed, quick, grid)
    for data in (*COMPARED, "fashion"):
        for seed in range(1 if quick and data == "fashion" else 5):
            for levels in ROUNDED:
                options = {"lam": 0.03, "levels": levels, **_sketch(data)}
                yield _case(data, f"rounded-{levels}", "pfednet", options, seed, quick)
    for data, counts in SEEDS.items():
        for seed in range(counts[0 if quick else 1]):
            yield _case(data, "local", "local", {}, seed, quick)
            yield _case(data, "fedavg", "fedavg", {}, seed, quick)
            for lam in LAMBDAS:
                yield _case(data, f"lam-{lam:g}", "pfednet", {"lam": lam, **_sketch(data)}, seed, quick)
            for name, method, options in (*_rivals(data), *_variants(data)):
                yield _case(data, name, method, options, seed, quick)
    for seed in range(5 if quick else 10):
        yield _case("joining", "fedavg", "fedavg", {}, seed, quick)
        for kind in ("label", "mean"):
            yield _case("joining", kind, "pfednet", {"lam": 0.03, "sketch": kind}, seed, quick)
    for data, lam in BEST.items():
        for gamma in GAMMAS:
            options = {"lam": lam, "gamma": gamma, "gamma_unit": "median"}
            yield _case(data, f"gamma-{gamma:g}", "pfednet", options, 0, quick)
            if gamma in FREE:
                yield _case(data, f"free-{gamma:g}", "pfednet", {**options, "pin_end": False}, 0, quick)
        for levels in LEVELS:
            yield _case(data, f"levels-{levels}", "pfednet", {"lam": lam, "levels": levels}, 0, quick)
            both = {"lam": lam, "levels": levels, "gamma": 0.1, "gamma_unit": "median"}
            yield _case(data, f"both-{levels}", "pfednet", both, 0, quick)
        for levels in QSGD:
            yield _case(data, f"qsgd-{levels}", "qsgd", {"levels": levels}, 0, quick)
    for data in ("twins", "heads"):
        yield _case(data, "local", "local", {}, 0, quick)
        yield _case(data, "fedavg", "fedavg", {}, 0, quick)
    for lam in (0.0, 0.01, 0.1):
        yield _case("heads", f"split-{lam:g}", "pfednet", {"lam": lam, "layout": "split"}, 0, quick)
    for layout in ("personal", "additive"):
        yield _case("heads", f"{layout}-0.01", "pfednet", {"lam": 0.01, "layout": layout}, 0, quick)
    for data in ("parts", "twins"):
        for kind in SKETCHES:
            yield _case(data, kind, "pfednet", {"lam": 0.03, "sketch": kind}, 0, quick)
            yield _case(data, f"{kind}-noise", "pfednet", {"lam": 0.03, "sketch": kind, "noise": 0.5}, 0, quick)


def _sketch(data: str, method: str = "pfednet") -> dict[str, Any]:
    """The sketch under which lambda is looked for: on `parts` one that finds the areas, else the default."""
    return {"sketch": "mean"} if data == "parts" and method == "pfednet" else {}


def _rivals(data: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if data in BATCHES:
        yield "ifca", "ifca", {"clusters": 2}
        for lam in PULLS:
            yield f"l2gd-{lam:g}", "l2gd", {"lam": lam, "p": round(1 / BATCHES[data], 4)}
        yield "ditto", "ditto", {}
        yield "pfedme", "pfedme", {}


def _variants(data: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What else pFedNet may be, at the lambda that was best: other norms, step sizes, neighbours, layouts."""
    if data == "heart":
        for lam in (0.004, 0.0125):
            yield f"l1-{lam:g}", "pfednet", {"lam": lam, "p": 1}
        for lam in (0.06, 0.2):
            yield f"inf-{lam:g}", "pfednet", {"lam": lam, "p": "inf"}
        yield "paper-0.06", "pfednet", {"lam": 0.06, "z_step": "paper"}
        yield "alone-0.05", "pfednet", {"lam": 0.0, "decay": "sqrt"}
    if data in ("heart", "kmeans"):
        lam = 0.06 if data == "heart" else 0.01
        for eta in (0.05, 0.1, 0.2):
            yield f"sqrt-{eta:g}", "pfednet", {"lam": lam, "decay": "sqrt", "eta": eta}
    if data in ("kmeans", "parts"):
        lam = 0.01 if data == "kmeans" else 0.03
        for k in (1, 5):
            yield f"k-{k}", "pfednet", {"lam": lam, "k": k, **_sketch(data)}
        yield "additive", "pfednet", {"lam": lam, "layout": "additive", **_sketch(data)}
        for weight in (0.0, lam):  # an additive model takes two steps for one: is it the sharing or the rate?
            yield f"twice-{weight:g}", "pfednet", {"lam": weight, "eta": 2 * RATE, **_sketch(data)}


def name_of(data: str, variant: str, seed: int) -> str:
    """The run of a variant on some data.

    >>> name_of("heart", "lam-0.1", 3)
    'heart-lam-0.1-3'
    """
    return f"{data}-{variant}-{seed}"


def _case(
    data: str, variant: str, method: str, options: dict[str, Any], seed: int, quick: bool, grid: Grid | None = None
) -> Case:
    settings = {**_settings(data, quick), "method": method, "options": options, "seed": seed}
    if method == "pfednet":
        settings["options"] = {"eta": RATE, "levels": 0, **options}
        settings["training"]["lr"] = settings["options"]["eta"]
    if method == "fedavg":
        settings["evaluation"] = {**settings["evaluation"], "ft": True}
    if grid is not None:
        del settings["training"]["lr"]
        settings["options"].pop("eta", None)
    name, cost = name_of(data, variant, seed), COST.get(data, 1.0)
    return Case(name, data, settings, cost=cost, row=f"{data}-{variant}", grid=grid)


def _done(runs: Path) -> dict[str, Summary]:
    """All that is finished, of the quick study and of the whole."""
    return finished(pfednet(False), runs) | finished(pfednet(True), runs)


def averages(done: Mapping[str, Summary], data: str, variant: str, point: str = "pre") -> Array:
    """The scores of the seeds that are finished, in their order."""
    found = [done.get(name_of(data, variant, seed)) for seed in range(100)]
    return np.array([score(one, point) for one in found if one is not None and score(one, point) is not None])


def _falls(data: str, kind: str, amounts: tuple[float, ...], way: int) -> Check:
    """Whether bytes up change one way from value to value."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        rows = [runs.get(f"{data}-{kind}-{amount:g}") for amount in amounts]
        if not all(rows):
            return None
        sent = [row[min(row)]["bytes"]["up"] for row in rows if row]
        falls = [way * count for count in sent]
        return falls == sorted(falls), ", ".join(f"{a:g}: {n:,}" for a, n in zip(amounts, sent, strict=True))

    return fact(test, *(f"{data}-{kind}-{amount:g}" for amount in amounts))


def _saved(one: str, other: str, at_most: float, *ways: str) -> Check:
    """Whether a row takes at most so much of another's bytes, all `ways` together."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        few, plain = runs.get(one), runs.get(other)
        if not plain or not few:
            return None
        counts = [sum(run["bytes"][way] for way in ways) for run in (few[min(few)], plain[min(plain)])]
        return counts[0] <= at_most * counts[1], f"{counts[0] / counts[1]:.3f} of the bytes"

    return fact(test, one, other)


SWEPT = "`sparsona reproduce pfednet --quick`: half a CPU hour for all sweeps"
TUNING = "`sparsona reproduce pfednet --quick --only '*-tuned-*'`: half a CPU hour"
ROUNDING = "`sparsona reproduce pfednet --quick --only '*-rounded-*'`: ten CPU minutes"


def _claims() -> Iterator[Claim]:
    rivals = [name for name in TUNED if name != "pfednet"]
    for data in COMPARED:
        mine = f"{data}-tuned-pfednet"
        for others in (("local",), ("fedavg",), rivals):
            who = " and ".join(f"`{name}`" for name in others) if len(others) == 1 else "all of its rivals"
            yield Claim(
                f"{data}: pFedNet above {who} at `pre`, all tuned on validation samples",
                above(mine, *(f"{data}-tuned-{name}" for name in others)),
                TUNING,
            )
        yield Claim(
            f"{data}: pFedNet as it comes takes at most 40 % of FedAvg's bytes up",
            _saved(mine, f"{data}-tuned-fedavg", 0.4, "up"),
            TUNING,
        )
        yield Claim(
            f"{data}: pFedNet as it comes takes at most 40 % of FedAvg's bytes, both ways together",
            _saved(mine, f"{data}-tuned-fedavg", 0.4, "up", "down"),
            TUNING,
        )
    for data in (*COMPARED, "fashion"):
        plain = f"{data}-rounded-0"
        for levels in ROUNDED[1:]:
            few = f"{data}-rounded-{levels}"
            yield Claim(
                f"(b) {data}: {levels} levels lose less than half a point at `pre`",
                loses(At(plain), At(few), 0.005),
                ROUNDING,
            )
            yield Claim(
                f"(b) {data}: {levels} levels take less than a quarter of the bytes up",
                _saved(few, plain, 0.25, "up"),
                ROUNDING,
            )
    for data in SEEDS:
        yield Claim(f"{data}: lambda = 0 is `local`", loses(At(f"{data}-local"), At(f"{data}-lam-0"), 0.01), SWEPT)
    for data in BEST:
        yield Claim(f"(a) {data}: the larger gamma, the fewer bytes up", _falls(data, "gamma", GAMMAS, -1), SWEPT)
        yield Claim(f"(b) {data}: the fewer levels, the fewer bytes up", _falls(data, "levels", LEVELS, 1), SWEPT)
        yield Claim(
            f"(c) {data}: gamma = 0.1 loses less than a point at `pre`",
            loses(At(f"{data}-lam-{BEST[data]:g}"), At(f"{data}-gamma-0.1"), 0.01),
            SWEPT,
        )
    yield Claim(
        "pFedNet's abstract: best accuracy among its baselines on medical images",
        never("the private data of its experiments are not public"),
        "nothing that we could run",
    )


def _validation(folder: Path) -> float:
    """The clients' mean score on their validation samples after the last round."""
    last = list(by_round(RunDirectory(folder).lines()).values())[-1]
    return float(np.nanmean([line.validation.get("pre", np.nan) for line in last]))


def _means(runs: Path, to: Path) -> bool:
    """Mean over the seeds, standard error, and the paired difference to the better of `local` and `fedavg`."""
    done = _done(runs)
    lines = []
    for data in (*SEEDS, "twins", "heads"):
        prefix = f"{data}-"
        mine = [name[len(prefix) :].rpartition("-")[0] for name in done if name.startswith(prefix)]
        alone, together = averages(done, data, "local"), averages(done, data, "fedavg")
        if not len(alone) or not len(together):
            continue
        name, better = max((("local", alone), ("fedavg", together)), key=lambda pair: float(pair[1].mean()))
        lines += [
            f"## {data}",
            "",
            f"| run | lambda | seeds | pre | against {name} | post | validation | Mflop | up | down |",
        ]
        lines += ["|---|---|---|---|---|---|---|---|---|---|"]
        checked: dict[str, float] = {}
        for variant in dict.fromkeys(mine):
            pre, post = averages(done, data, variant), averages(done, data, variant, "post")
            gap = pre - better[: len(pre)]
            first = done[name_of(data, variant, 0)]
            checked[variant] = float(np.mean([_validation(runs / name_of(data, variant, s)) for s in range(len(pre))]))
            lines.append(
                f"| {variant} | {first['options'].get('lam', '')} | {len(pre)} | {_spread(pre)} "
                f"| {_spread(gap, sign=True)} | {post.mean():.4f} | {checked[variant]:.4f} "
                f"| {first['flops'] / 1e6:,.1f} | {first['bytes']['up']:,} | {first['bytes']['down']:,} |"
            )
        tuned = averages(done, data, "fedavg", "ft")
        lines += [f"| fedavg-ft | | {len(tuned)} | {_spread(tuned)} | | | | | | |"] if len(tuned) else []
        grid = {k: v for k, v in checked.items() if k in ("local", "fedavg") or k.startswith("lam-")}
        chosen = max(grid, key=grid.__getitem__)
        lines += ["", f"By validation one would choose {chosen} among local, fedavg and lambda.", ""]
    lines += _joined(done)
    for data in ("parts", "twins"):
        lines += [f"## {data}: edges that join the same group", "", "| sketch | edges | same group |", "|---|---|---|"]
        for kind, network in _networks(runs, data).items():
            lines.append(f"| {kind} | {len(network.edges)} | {purity(network, data):.2f} |")
        lines.append("")
    to.write_text("\n".join(lines), encoding="utf-8")
    return bool(lines)


def _joined(done: Mapping[str, Summary]) -> list[str]:
    """What clients score that join after training, before and after an epoch of their own, and what joining costs."""
    lines = ["## joining", "", "| run | seeds | new clients, pre | post | up | down |", "|---|---|---|---|---|---|"]
    for variant in ("fedavg", "label", "mean"):
        found = [s["new_clients"] for k in range(100) if (s := done.get(name_of("joining", variant, k)))]
        if found:
            pre, post = (np.array([one["accuracy"][point]["mean"] for one in found]) for point in ("pre", "post"))
            sent = f"{found[0]['bytes']['up']:,} | {found[0]['bytes']['down']:,}"
            lines.append(f"| {variant} | {len(found)} | {_spread(pre)} | {_spread(post)} | {sent} |")
    return [*lines, ""]


def _spread(values: Array, sign: bool = False) -> str:
    mean = f"{values.mean():+.4f}" if sign else f"{values.mean():.4f}"
    return f"{mean} ± {_error(values):.4f}" if len(values) > 1 else mean


def _error(values: Array) -> float:
    """The standard error of the mean; none of a single value."""
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def _networks(runs: Path, data: str) -> dict[str, ClientGraph]:
    kinds = [f"{kind}{noise}" for noise in ("", "-noise") for kind in SKETCHES]
    folders = {kind: runs / name_of(data, kind, 0) for kind in kinds}
    return {
        k: server_state(f, ServerState).network.artefact() for k, f in folders.items() if (f / "summary.json").exists()
    }


def purity(network: ClientGraph, data: str) -> float:
    """The share of edges between clients of the same area, or with the same classes."""
    size = 5 if data == "parts" else 4
    groups = np.array([int(client) // size for client in network.clients])
    ends = np.array(network.edges, np.int64).reshape(-1, 2)
    return float((groups[ends[:, 0]] == groups[ends[:, 1]]).mean())


def _draw_lambda(runs: Path, to: Path) -> bool:
    from matplotlib.figure import Figure

    done = _done(runs)
    there = [data for data in SEEDS if all(len(averages(done, data, f"lam-{lam:g}")) for lam in LAMBDAS)]
    if not there:
        return False
    rows = -(-len(there) // 3)
    figure = Figure(figsize=(10, 3.2 * rows), layout="constrained")
    for axes, data in zip(figure.subplots(rows, 3, squeeze=False).flat, there, strict=False):
        found = [averages(done, data, f"lam-{lam:g}") for lam in LAMBDAS]
        errors = [_error(one) for one in found]
        places = np.array([max(lam, 0.001) for lam in LAMBDAS])
        axes.errorbar(places, [one.mean() for one in found], errors, fmt="o-", capsize=2, label="pfednet")
        lines = (("local", "pre", ":"), ("fedavg", "pre", "--"), ("fedavg", "ft", "-."))
        for colour, (name, point, style) in enumerate(lines, 1):
            label = "fedavg-ft" if point == "ft" else name
            axes.axhline(averages(done, data, name, point).mean(), ls=style, color=f"C{colour}", label=label)
        _dress(axes, data, "lambda")
        axes.set_xticks([0.001, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
    _save(figure, to)
    return True


def _dress(axes: Any, title: str, over: str) -> None:
    axes.set_xscale("log")
    axes.set_title(title)
    axes.set_xlabel(over)
    axes.grid(alpha=0.3)


def _save(figure: Any, to: Path) -> None:
    figure.axes[0].set_ylabel("mean test accuracy, `pre`")
    figure.axes[0].legend(fontsize=7)
    figure.savefig(to, dpi=120)


def _draw_bytes(runs: Path, to: Path) -> bool:
    """Accuracy against bytes up, a curve for each way to save them."""
    from matplotlib.figure import Figure

    done = _done(runs)
    curves: dict[str, tuple[str, tuple[float, ...]]] = {
        "gamma, pinned end": ("gamma", GAMMAS),
        "gamma, free end": ("free", FREE),
        "levels": ("levels", LEVELS),
        "levels, gamma = 0.1": ("both", LEVELS),
        "qsgd under fedavg": ("qsgd", QSGD),
    }
    there = [data for data in BEST if name_of(data, "qsgd-31", 0) in done]
    if not there:
        return False
    figure = Figure(figsize=(5.2 * len(there), 3.8), layout="constrained")
    for axes, data in zip(figure.subplots(1, len(there), squeeze=False)[0], there, strict=True):
        for label, (kind, values) in curves.items():
            found = [
                done[name_of(data, f"{kind}-{v:g}", 0)] for v in values if name_of(data, f"{kind}-{v:g}", 0) in done
            ]
            axes.plot([s["bytes"]["up"] for s in found], [score(s, "pre") for s in found], "o-", ms=4, label=label)
        for label, variant, mark in (("as it is", f"lam-{BEST[data]:g}", "k*"), ("fedavg", "fedavg", "kx")):
            whole = done[name_of(data, variant, 0)]
            axes.plot([whole["bytes"]["up"]], [score(whole, "pre")], mark, label=label)
        axes.axhline(averages(done, data, "local")[0], ls=":", color="grey", label="local")
        _dress(axes, f"{data}, lambda = {BEST[data]:g}", "bytes up, all clients and rounds")
    _save(figure, to)
    return True


def _draw_elements(runs: Path, to: Path) -> bool:
    """The draft's figure 6: a gradient of 55 elements as it is, fused ever more, and fused to four levels."""
    from matplotlib.figure import Figure

    path = Path(excerpt("areas-250").partition(":")[2])
    if not path.exists():
        return False
    with np.load(path) as arrays:
        mine = arrays["client"] == "00"
        x, y = arrays["x"][mine], arrays["y"][mine] == 1  # lodgepole pine or not, at weights of zero
    g = ((0.5 - y)[:, None] * np.column_stack([x, np.ones(len(x))])).mean(0).astype(np.float32)
    unit = typical(g)
    kinds = {f"gamma = {gamma:g}": (gamma * unit, 0) for gamma in (0.0, 0.03, 0.3)}
    kinds["gamma = 0.03, 4 levels"] = (0.03 * unit, 4)
    figure = Figure(figsize=(12, 2.8), layout="constrained")
    for axes, (title, (strength, levels)) in zip(figure.subplots(1, 4, sharey=True), kinds.items(), strict=True):
        u = clustered(g, (len(g),), strength, levels=levels).values
        axes.plot(u, ".", ms=5)
        axes.set_title(f"{title}: {len(np.unique(u))} values")
        axes.set_xlabel("element")
        axes.grid(alpha=0.3)
    figure.savefig(to, dpi=120)
    return True


def _draw_graphs(runs: Path, to: Path) -> bool:
    """The network of each sketch, clients of the same area side by side on a circle and in one colour."""
    from matplotlib.figure import Figure

    found = {kind: network for kind, network in _networks(runs, "parts").items() if "noise" not in kind}
    if not found:
        return False
    figure = Figure(figsize=(3 * len(found), 3.2), layout="constrained")
    for axes, (kind, network) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        plot_network(axes, network, lambda client: f"C{int(client) // 5}")
        axes.set_title(f"{kind}: {purity(network, 'parts'):.0%} within an area", fontsize=9)
    figure.savefig(to, dpi=120)
    return True
