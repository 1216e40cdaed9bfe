"""SPFL's drawings, from the directories of its runs: similarity of clients, and figure 6, client by client."""

from __future__ import annotations

from pathlib import Path

from sparsona.method import ClientId, ClientMatrices
from sparsona.methods.spfl import ServerState
from sparsona.report.drawings import draw_heat_map
from sparsona.runs.directory import RunDirectory
from sparsona_papers._runs import server_state
from sparsona_papers.spfl.plan import SETTINGS

SHOWN = ("local", "fedavg", "spfl")
"""The rows beside each other in figure 6."""


def draw_similarity(runs: Path, to: Path) -> bool:
    """The similarity matrices of the first finished run of SPFL."""
    folder = next((f for f in sorted(runs.glob("*-noniid-spfl-1")) if (f / "summary.json").exists()), None)
    if folder is None:
        return False
    found = server_state(folder, ServerState).similarity
    draw_heat_map(ClientMatrices(found.clients, found.stages), to)
    return True


def by_client(folder: Path) -> dict[ClientId, float]:
    """Return each client's accuracy at `pre` after the last round; empty for an unfinished run."""
    run = RunDirectory(folder)
    if not run.summary_file.exists():
        return {}
    lines = run.lines()
    return {line.client: line.test["pre"] for line in lines if line.round == lines[-1].round and "pre" in line.test}


def draw_clients(runs: Path, to: Path) -> bool:
    """Figure 6: the clients' accuracies under SPFL, with the first seed, beside FedAvg's and independent training."""
    from matplotlib.figure import Figure

    found = {
        f"{data}, {kind}": {name: own for name in SHOWN if (own := by_client(runs / f"{data}-{kind}-{name}-1"))}
        for data, kind in SETTINGS
    }
    panels = {title: rows for title, rows in found.items() if "spfl" in rows}
    if not panels:
        return False
    figure = Figure(figsize=(1 + 3.6 * len(panels), 3.4), layout="constrained")
    for axes, (title, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for place, (name, own) in enumerate(rows.items()):
            axes.bar([x + 0.27 * place for x in range(len(own))], [own[c] for c in sorted(own)], 0.27, label=name)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("client")
    figure.axes[0].set_ylabel("test accuracy, `pre`")
    figure.axes[0].legend(fontsize=7, loc="lower right")
    figure.savefig(to, dpi=120)
    return True
