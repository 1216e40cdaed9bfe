"""Further numbers of a finished run of SPFL: the similarity of the clients' gradients, and the gain of fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sparsona.methods.spfl import ServerState
from sparsona.ops.pairwise import Matrix
from sparsona.prepare import Prepared
from sparsona.runs.directory import RunDirectory
from sparsona.training.local import Local
from sparsona_papers._differences import Reading, Summary, accuracy, extra
from sparsona_papers._runs import runner_of, server_state


@dataclass(frozen=True)
class Tuning:
    """A column of Table 8: the share of the training's rate, what its batch is divided by, and the steps."""

    rate: float
    divisor: int = 1
    steps: int = 10


TABLE_8 = {
    "full rate": Tuning(1.0),
    "tenth": Tuning(0.1),
    "hundredth": Tuning(0.01),
    "20 steps": Tuning(0.1, steps=20),
    "100 steps": Tuning(0.1, steps=100),
    "half batch": Tuning(0.1, divisor=2),
}
"""The paper has 0.01, 0.001 and 0.0001 after a training at 0.01, and batches of 128 and 64 after one of 128."""
FINE_TUNED = "-base-"
"""Text in the names of runs that are fine-tuned at the end."""


def tuned(column: str) -> Reading:
    """The mean accuracy after fine-tuning as a column of Table 8 says."""
    return accuracy(f"tuned, {column}")


def best_tuned(summary: Summary, point: str) -> float | None:
    """Return the best accuracy of a column of Table 8."""
    found = [value for column in TABLE_8 if (value := tuned(column)(summary, point)) is not None]
    return max(found, default=None)


def cosine(stage: str) -> Reading:
    """The mean cosine between two clients' gradients, over a stage of the net, in the last pass that measured it."""
    return extra(f"cosine, {stage}")


def read_extra(folder: RunDirectory, prepared: Prepared) -> Mapping[str, float]:
    """Return the cosines of a run of SPFL and, for some runs, the accuracy after fine-tuning."""
    if prepared.experiment.method != "spfl":
        return {}
    server: ServerState = server_state(folder.path, ServerState)
    found = {f"cosine, {stage}": mean_cosine(matrix) for stage, matrix in server.similarity.stages.items()}
    return found | (fine_tuned(server, prepared) if FINE_TUNED in folder.path.name else {})


def mean_cosine(matrix: Matrix) -> float:
    """The mean over all pairs of different clients.

    >>> mean_cosine(np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.2], [0.2, 0.2, 1.0]]))
    0.3
    """
    return round(float(matrix[~np.eye(len(matrix), dtype=bool)].mean()), 9)


def fine_tuned(server: ServerState, prepared: Prepared) -> dict[str, float]:
    """The mean test accuracy of the clients' models after each of Table 8's trainings, one step a batch."""
    setup = prepared.setup
    runner = runner_of(prepared)
    scores: dict[str, list[float]] = {column: [] for column in TABLE_8}
    for client in setup.task.clients:
        split = setup.federation.splits[client]
        local = Local(client, setup.task.rounds, setup.task, setup.config, split, runner)
        for column, tuning in TABLE_8.items():
            config = replace(
                setup.config,
                lr=tuning.rate * setup.config.lr,
                batch=max(1, setup.config.batch // tuning.divisor),
                steps=tuning.steps,
            )
            trained = local.train(server.model(client), config, stream="table 8")
            scores[column].append(runner.score(trained.weights, split.test))
    return {f"tuned, {column}": float(np.mean(own)) for column, own in scores.items()}
