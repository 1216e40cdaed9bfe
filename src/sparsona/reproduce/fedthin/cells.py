"""One cell of the study: run it in memory, and keep what the analysis needs in a few kilobytes of JSON.

Several processes may work on one folder: a cell is claimed by a lock on a file, which ends with its process.
"""

from __future__ import annotations

import base64
import fcntl
import json
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sparsona.engines.inprocess import InProcess
from sparsona.errors import Diverged
from sparsona.federation.rounds import Rounds
from sparsona.files import write_atomically
from sparsona.prepare import Prepared, prepare
from sparsona.report.measured import measurements
from sparsona.reproduce import Kept, runner_of
from sparsona.reproduce._results import digest_of, machine
from sparsona.reproduce.fedthin.analysis import Curve, area
from sparsona.reproduce.fedthin.plan import Cell
from sparsona.runs.records import RunLog, by_round, read_records


def carry_out(cell: Cell) -> dict[str, Any]:
    """The numbers of one run. A run that diverges scores nothing at all."""
    settings = cell.settings()
    prepared = prepare(settings, origin=f"the cell {cell.name}")
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records.jsonl"
        try:
            rounds = _run(prepared, records)
        except Diverged as error:
            return {
                **_about(cell, settings, began),
                "diverged": str(error),
                "validation": dict.fromkeys(("area", "accuracy"), 0.0),
            }
        found = measurements(by_round(read_records(records)))
        models = {outcome.client: outcome.model for outcome in rounds.finish("personal", prepared.setup.task.clients)}
    clients, dense = prepared.setup.task.clients, 4 * prepared.setup.task.layout.size
    spent = [m.bytes / len(clients) / dense for m in found]
    guess = 1 / prepared.setup.federation.data.classes
    checked = Curve(spent, np.array([[m.validation["pre"][k] for k in clients] for m in found]), guess)
    last = found[-1]
    return {
        **_about(cell, settings, began),
        "rounds_measured": [m.round for m in found],
        "spent": [float(f"{value:.5g}") for value in spent],
        "up": last.up,
        "down": last.down,
        "flops": last.flops,
        "guess": guess,
        "weights": prepared.setup.task.layout.size,
        "tests": [len(prepared.setup.federation.splits[k].test) for k in clients],
        "right": pack(_right_counts(prepared, [m.test["pre"] for m in found])),
        "correct": pack(_correct(prepared, models).astype(np.uint8)),
        "validation": {"area": float(area(checked).mean()), "accuracy": float(checked.scores[-1].mean())},
    }


def _run(prepared: Prepared, records: Path) -> Rounds:
    """The run, without checkpoints: a cell that is interrupted is begun anew."""
    torch.set_num_threads(1)
    setup, experiment = prepared.setup, prepared.experiment
    sizes = {client: len(split.test) for client, split in setup.federation.splits.items()}
    rounds = Rounds(setup, InProcess(setup), prepared.schedule, experiment.evaluation, RunLog(sizes, True, records))
    rounds.run()
    return rounds


def _about(cell: Cell, settings: Mapping[str, Any], began: float) -> dict[str, Any]:
    return {
        "settings": digest_of(settings),
        "options": settings.get("options", {}),
        "lr": settings["training"]["lr"],
        "cpu_seconds": round(time.process_time() - began, 2),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
    }


def _right_counts(prepared: Prepared, scores: list[Mapping[str, float]]) -> npt.NDArray[np.uint16]:
    """How many test samples each client gets right at each evaluation: evaluations x clients."""
    clients, splits = prepared.setup.task.clients, prepared.setup.federation.splits
    return np.array([[round(own[k] * len(splits[k].test)) for k in clients] for own in scores], np.uint16)


def _correct(prepared: Prepared, models: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
    """Which test samples the final models get right, client after client."""
    setup, runner, found = prepared.setup, runner_of(prepared), []
    for client in setup.task.clients:
        test = setup.federation.splits[client].test
        data = setup.federation.data
        found.append(runner.predict(models[client], data.inputs[test]) == data.targets[test])
    return np.concatenate(found)


def pack(array: npt.NDArray[np.unsignedinteger[Any]]) -> str:
    """An array of small numbers as text.

    >>> unpack(pack(np.arange(6, dtype=np.uint16)), np.uint16, 3)
    array([[0, 1, 2],
           [3, 4, 5]], dtype=uint16)
    """
    return base64.b85encode(zlib.compress(array.astype(array.dtype.newbyteorder("<")).tobytes(), 9)).decode()


def unpack(text: str, kind: type[np.unsignedinteger[Any]], width: int) -> npt.NDArray[Any]:
    """What :func:`pack` has written, with rows of this width."""
    raw = zlib.decompress(base64.b85decode(text))
    return np.frombuffer(raw, np.dtype(kind).newbyteorder("<")).astype(kind).reshape(-1, width)


def curve_of(kept: Mapping[str, Any]) -> Curve:
    """The curve of a kept run; one that diverged stays at the guess."""
    tests = np.array(kept["tests"])
    return Curve(kept["spent"], unpack(kept["right"], np.uint16, len(tests)) / tests, kept["guess"])


def correct_of(kept: Mapping[str, Any]) -> list[npt.NDArray[np.bool_]]:
    """Which test samples each client's final model gets right."""
    flat = unpack(kept["correct"], np.uint8, 1).reshape(-1).astype(np.bool_)
    return np.split(flat, np.cumsum(kept["tests"])[:-1])


def read_cells(folder: Path) -> dict[str, dict[str, Any]]:
    """All finished cells of a folder, by name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def without_tests_of_trials(found: Kept) -> dict[str, dict[str, Any]]:
    """Cells as they are kept: trials (seed 0) only have their validation scores, since nothing is chosen by others.

    >>> without_tests_of_trials({"x-t0-s0-r30": {"right": "..."}, "x-t0-s1-r100": {"right": "..."}})
    {'x-t0-s0-r30': {}, 'x-t0-s1-r100': {'right': '...'}}
    """
    tested = ("right", "correct")
    return {
        name: {key: value for key, value in run.items() if key not in tested or "-s0-" not in name}
        for name, run in found.items()
    }


@contextmanager
def claimed(folder: Path, name: str) -> Iterator[bool]:
    """Whether this process has the cell for itself, for as long as the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.claim").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def work(ready: Callable[[Kept], list[Cell]], folder: Path, say: Callable[[str], None], known: Kept) -> Kept:
    """Carry out all cells that are ready, and those that become ready by them; returns all that are finished."""
    while True:
        found = {**known, **read_cells(folder)}
        waiting = [cell for cell in ready(found) if cell.name not in found]
        if not waiting:
            return found
        count = len(found) + len(waiting)
        if not any(_attempt(cell, folder, say, len(found), count) for cell in waiting):
            time.sleep(5)  # others are at work on all of them


def _attempt(cell: Cell, folder: Path, say: Callable[[str], None], done: int, known: int) -> bool:
    """Carry out a cell unless it is done or another process has it."""
    file = folder / f"{cell.name}.json"
    with claimed(folder / "claims", cell.name) as mine:
        if not mine or file.exists():
            return False
        kept = carry_out(cell)
        write_atomically(file, json.dumps(kept, sort_keys=True) + "\n")
        told = f"{kept['validation']['accuracy']:.4f} on validation samples, {kept['cpu_seconds']:.0f} s"
        say(f"[{done + 1} of {known} known] {cell.name}: {told}")
        return True
