"""answers.npz of a run: the answers of each client's own model for its test rows.

Intervals and paired tests are computed from them. The file stands beside the models: in the run directory of a
simulation, on each owner's disk on a network.
"""

import io
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from sparsona.data.dataset import Federation
from sparsona.data.folder import read_npz
from sparsona.errors import DataError, RunError
from sparsona.files import write_atomically
from sparsona.method import ClientId
from sparsona.metrics import Answers, TaskName

FILE = "answers.npz"
MOST = 2**23  # limit of numbers in the answers of a run; a run with more keeps none
TASKS: tuple[TaskName, ...] = ("classification", "regression", "multilabel")


def are_kept(federation: Federation, outputs: int) -> bool:
    """True if the answers for all test rows are few enough to be kept."""
    return sum(len(split.test) for split in federation.splits.values()) * max(outputs, 1) <= MOST


def together(answers: Mapping[ClientId, Answers]) -> Answers:
    """Return the answers of all clients, concatenated in the order of their names."""
    found = [one for _, one in sorted(answers.items())]
    return replace(
        found[0],
        predictions=np.concatenate([one.predictions for one in found]),
        probabilities=np.concatenate([one.probabilities for one in found]),
        targets=np.concatenate([one.targets for one in found]),
    )


def write_answers(folder: Path, answers: Mapping[ClientId, Answers]) -> None:
    """Write the answers of all clients: probabilities as float32, classes as whole numbers."""
    if not answers:
        return
    whole, out = together(answers), io.BytesIO()
    classes = whole.task == "classification"
    np.savez_compressed(
        out,
        allow_pickle=False,
        task=np.array(TASKS.index(whole.task)),
        positive=np.array(whole.positive),
        clients=np.array(sorted(answers)),
        bounds=np.cumsum([0, *(len(one) for _, one in sorted(answers.items()))]),
        predictions=whole.predictions.astype(np.int32) if classes else whole.predictions,
        probabilities=whole.probabilities.astype(np.float32),
        targets=whole.targets.astype(np.int32) if classes else whole.targets,
    )
    write_atomically(folder / FILE, out.getvalue())


def read_answers(folder: Path) -> dict[ClientId, Answers]:
    """Return the answers of a run by client; empty if it has kept none."""
    file = folder / FILE
    if not file.exists():
        return {}
    try:
        held = read_npz(file)
        given = held["probabilities"].astype(np.float64)
        whole = Answers(TASKS[int(held["task"])], held["predictions"], given, held["targets"], int(held["positive"]))
        spans = pairwise(held["bounds"].tolist())
        return {
            str(client): whole.take(np.arange(start, stop))
            for client, (start, stop) in zip(held["clients"].tolist(), spans, strict=True)
        }
    except (DataError, ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
        raise RunError(f"{file} is damaged ({error}): run it again into another --out") from None
