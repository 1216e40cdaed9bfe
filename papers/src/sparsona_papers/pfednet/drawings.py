"""Drawings and a table of pFedNet's runs, from their directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data.dataset import Array
from sparsona.method import ClientGraph
from sparsona.methods.pfednet import ServerState
from sparsona.methods.pfednet.cluster import clustered, typical
from sparsona.report.drawings import plot_network
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import by_round
from sparsona_papers._differences import Summary, score
from sparsona_papers._runs import finished, server_state
from sparsona_papers.pfednet.plan import (
    BEST,
    FREE,
    GAMMAS,
    LAMBDAS,
    LEVELS,
    QSGD,
    SEEDS,
    SKETCHES,
    cases,
    excerpt,
    name_of,
)


def _done(runs: Path) -> dict[str, Summary]:
    """Return all finished runs, of the quick study and of the whole."""
    return finished(cases("whole"), runs) | finished(cases("quick"), runs)


def by_seed(done: Mapping[str, Summary], data: str, variant: str, point: str = "pre") -> dict[int, float]:
    """The scores of the seeds that are finished. Seeds may be missing where a folder holds a part of the runs."""
    found = {seed: done.get(name_of(data, variant, seed)) for seed in range(100)}
    scores = {seed: score(one, point) for seed, one in found.items() if one is not None}
    return {seed: value for seed, value in scores.items() if value is not None}


def averages(done: Mapping[str, Summary], data: str, variant: str, point: str = "pre") -> Array:
    """Return the scores in the order of the seeds."""
    return np.array(list(by_seed(done, data, variant, point).values()))


def _validation(folder: Path) -> float:
    """The clients' mean score on their validation samples after the last round."""
    last = list(by_round(RunDirectory(folder).lines()).values())[-1]
    return float(np.nanmean([line.validation.get("pre", np.nan) for line in last]))


def means(runs: Path, to: Path) -> bool:
    """Mean over the seeds, standard error, and the paired difference to the better of `local` and `fedavg`."""
    done = _done(runs)
    lines = []
    for data in (*SEEDS, "twins", "heads"):
        prefix = f"{data}-"
        mine = [name[len(prefix) :].rpartition("-")[0] for name in done if name.startswith(prefix)]
        ends = {name: by_seed(done, data, name) for name in ("local", "fedavg")}
        if not all(ends.values()):
            continue
        name, better = max(ends.items(), key=lambda pair: float(np.mean(list(pair[1].values()))))
        lines += [
            f"## {data}",
            "",
            f"| run | lambda | seeds | pre | against {name} | post | validation | Mflop | up | down |",
        ]
        lines += ["|---|---|---|---|---|---|---|---|---|---|"]
        checked: dict[str, float] = {}
        for variant in dict.fromkeys(mine):
            own, pre = by_seed(done, data, variant), averages(done, data, variant)
            post = averages(done, data, variant, "post")
            gap = np.array([value - better[seed] for seed, value in own.items() if seed in better])
            first = done[name_of(data, variant, min(own))]
            checked[variant] = float(np.mean([_validation(runs / name_of(data, variant, seed)) for seed in own]))
            lines.append(
                f"| {variant} | {first['options'].get('lam', '')} | {len(own)} | {_spread(pre)} "
                f"| {_spread(gap, sign=True) if len(gap) else '-'} | {post.mean():.4f} | {checked[variant]:.4f} "
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
    """Return scores of clients that join after training, before and after one own epoch, and the joining's cost."""
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


def draw_lambda(runs: Path, to: Path) -> bool:
    """Accuracy over lambda, beside `local`, FedAvg and fine-tuned FedAvg."""
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


def draw_bytes(runs: Path, to: Path) -> bool:
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


def draw_elements(runs: Path, to: Path) -> bool:
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


def draw_graphs(runs: Path, to: Path) -> bool:
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
