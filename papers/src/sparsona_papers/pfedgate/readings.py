"""Further numbers for pFedGate's claims: the server's model, rounds to a share of the best score, single clients'
scores, and the likeness of gates.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from sparsona.errors import Diverged
from sparsona.methods.pfedgate import ServerState
from sparsona.ops.mean import weighted_mean
from sparsona.prepare import Prepared
from sparsona.runs.about import read_about
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import by_round
from sparsona.runs.scores import summarise
from sparsona.training.local import Local
from sparsona_papers._differences import Reading, Summary, extra
from sparsona_papers._runs import runner_of, scores_of, server_scores, server_state
from sparsona_papers.pfedgate.gates import likeness

log = logging.getLogger(__name__)

SHARES = (0.8, 0.9)
"""The shares of the best score whose rounds tables 4 and 9 count."""
EACH = ("cifar-10-fedem", "cifar-10-pfedgate-0.5")
"""The rows of figure 3, of which every client's score is kept."""
CLIENT = "client "
"""Prefix of the names of single clients' scores."""


def read_run(folder: RunDirectory, prepared: Prepared) -> dict[str, float]:
    """Return all further numbers of a finished run."""
    found: dict[str, float] = {}
    experiment = prepared.experiment
    if experiment.method == "pfedgate":
        found |= _server(folder, prepared)
        if experiment.partition.startswith("shards"):
            found |= likeness(folder, prepared.setup.task.chance)
    if experiment.evaluation.every == 1:
        found |= _speed(folder)
    if folder.path.name.rpartition("-")[0] in EACH:
        found |= _each(folder)
    return found


def rounds_to(share: float) -> Reading:
    """The first round after which a share of the run's best score is reached, the clients weighted by their sizes."""

    def read(summary: Summary, point: str) -> float | None:
        return extra(_rounds(share, point))(summary, point)

    return read


def _rounds(share: float, point: str) -> str:
    return f"rounds to {share:g}, {point}"


def _speed(folder: RunDirectory) -> dict[str, float]:
    sizes = {name: client.test for name, client in read_about(folder.path).clients.items()}
    found: dict[str, float] = {}
    for point in ("pre", "post"):
        curve: dict[int, float] = {}
        for number, lines in by_round(folder.lines()).items():
            scores = {line.client: line.test[point] for line in lines if point in line.test}
            weighted = summarise(scores, sizes)["weighted"]
            if weighted is not None:
                curve[number] = weighted
        for share in SHARES if curve else ():
            enough = share * max(curve.values())
            found[_rounds(share, point)] = min(number for number, score in curve.items() if score >= enough)
    return found


def _each(folder: RunDirectory) -> dict[str, float]:
    """Every client's last score after local training."""
    lines = folder.lines()
    last = [line for line in lines if line.round == lines[-1].round and "post" in line.test]
    return {f"{CLIENT}{line.client}": line.test["post"] for line in last if not math.isnan(line.test["post"])}


def _server(folder: RunDirectory, prepared: Prepared) -> dict[str, float]:
    """Return the score of the server's model as it is and, as in the paper's table 10, after another epoch.

    The epoch is one round of FedAvg: every client trains the model without a gate, the server takes the mean.
    """
    setup, weights = prepared.setup, server_state(folder.path, ServerState).weights
    splits, task, runner = setup.federation.splits, setup.task, runner_of(prepared)
    config = replace(setup.config, epochs=1, steps=None)
    found: dict[str, float | None] = dict(server_scores(folder, prepared, ServerState))
    locals_ = (Local(client, task.rounds - 1, task, config, splits[client], runner) for client in task.clients)
    try:
        replies = ((own.examples, own.train(weights, stream="server").weights) for own in locals_ if own.examples)
        trained = scores_of(weighted_mean(replies), runner, prepared)
        found |= {"trained_weighted": trained["weighted"], "trained_bottom": trained["bottom_decile"]}
    except Diverged:
        log.warning("%s: the server's model cannot be trained on without a gate", folder.path)
    return {name: value for name, value in found.items() if value is not None}
