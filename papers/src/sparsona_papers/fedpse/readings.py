"""Further numbers for FedPSE's claims: correlation distances, and the shape of a curve."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean

import numpy as np

from sparsona.experiment import build, read
from sparsona.methods.fedpse import ServerState
from sparsona.prepare import Prepared
from sparsona.report.curves import curve
from sparsona.runs.directory import RunDirectory
from sparsona_papers._runs import server_state

OVER_ROUNDS, SWING = "mean over rounds", "swing"
"""Of a curve at `pre`: its mean over all rounds, and the mean change from round to round in the second half of them."""


def read_extra(folder: RunDirectory, prepared: Prepared) -> dict[str, float]:
    """Return the distances of the last round and, if every round was measured, the shape of the curve."""
    every_round = prepared.experiment.evaluation.every == 1
    return read_distances(folder) | (_read_curve(folder) if every_round else {})


def read_distances(folder: RunDirectory) -> dict[str, float]:
    """The mean and the variance of the clients' correlation distances in the last round."""
    if build(read(folder.experiment_file))[0].method != "fedpse":
        return {}
    found = np.array(list(server_state(folder.path, ServerState).distance.values()))
    return {"distance": float(found.mean()), "distance_variance": float(found.var())} if len(found) else {}


def _read_curve(folder: RunDirectory) -> dict[str, float]:
    _, scores = curve(folder.path, "pre")
    late = scores[len(scores) // 2 :]
    changes = [abs(after - before) for before, after in pairwise(late)]
    return {OVER_ROUNDS: mean(scores)} | ({SWING: mean(changes)} if changes else {})
