"""One cell of the study: a run, of which a few kilobytes of JSON are kept for the analysis.

Cells are made like any other runs (:mod:`sparsona.many`). A cell that has ended is a file in the folder `cells`, and
its run directory is removed: there are thousands.
"""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sparsona.errors import Diverged
from sparsona.files import write_atomically
from sparsona.many import Loader, Planned, RunEnded, RunPlan, Watcher, run_many
from sparsona.many.processes import place_for
from sparsona.prepare import Prepared
from sparsona.report.measured import measurements
from sparsona.result import load
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import by_round
from sparsona_papers._paper import Kept
from sparsona_papers._results import digest_of, machine
from sparsona_papers._runs import runner_of
from sparsona_papers.fedthin.analysis import Curve, area
from sparsona_papers.fedthin.plan import Cell

CELLS = "cells"


class AnyCell(Protocol):
    """One run of a preregistered study."""

    @property
    def name(self) -> str:
        """Return the name of its file."""

    @property
    def cost(self) -> float:
        """Return a number by which cheap cells come first."""

    def settings(self) -> dict[str, Any]:
        """The experiment."""


C = TypeVar("C", bound=AnyCell)


def read_off(cell: Cell, folder: Path, loader: Loader) -> dict[str, Any]:
    """The numbers of a finished run."""
    settings, run = cell.settings(), RunDirectory(folder)
    prepared = loader.prepare(settings, f"the cell {cell.name}")
    found, done = measurements(by_round(run.lines())), load(folder)
    clients, dense = prepared.setup.task.clients, 4 * prepared.setup.task.layout.size
    spent = [m.bytes / len(clients) / dense for m in found]
    guess = 1 / prepared.setup.federation.data.classes
    checked = Curve(spent, np.array([[m.validation["pre"][k] for k in clients] for m in found]), guess)
    last = found[-1]
    return {
        **about(settings),
        "seconds": done.summary["seconds"],
        "rounds_measured": [m.round for m in found],
        "spent": [float(f"{value:.5g}") for value in spent],
        "up": last.up,
        "down": last.down,
        "flops": last.flops,
        "guess": guess,
        "weights": prepared.setup.task.layout.size,
        "tests": [len(prepared.setup.federation.splits[k].test) for k in clients],
        "right": pack(_right_counts(prepared, [m.test["pre"] for m in found])),
        "correct": pack(_correct(prepared, {k: done.models[k].model for k in clients}).astype(np.uint8)),
        "validation": {"area": float(area(checked).mean()), "accuracy": float(checked.scores[-1].mean())},
    }


def diverged(cell: Cell, error: Diverged) -> dict[str, Any]:
    """Return the numbers of a run that diverged: its score is 0."""
    nothing = dict.fromkeys(("area", "accuracy"), 0.0)
    return {**about(cell.settings()), "diverged": str(error), "validation": nothing}


def about(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, and when and where it was made."""
    return {
        "settings": digest_of(settings),
        "options": settings.get("options", {}),
        "lr": settings["training"].get("lr"),
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
    """Return an array of small numbers as text.

    >>> unpack(pack(np.arange(6, dtype=np.uint16)), np.uint16, 3)
    array([[0, 1, 2],
           [3, 4, 5]], dtype=uint16)
    """
    return base64.b85encode(zlib.compress(array.astype(array.dtype.newbyteorder("<")).tobytes(), 9)).decode()


def unpack(text: str, kind: type[np.unsignedinteger[Any]], width: int) -> npt.NDArray[Any]:
    """Invert :func:`pack`, with rows of this width."""
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


def kept_cells(found: Kept) -> dict[str, dict[str, Any]]:
    """Return the kept form of cells: trials (seed 0) only have their validation scores.

    >>> kept_cells({"x-t0-s0-r30": {"right": "..."}, "x-t0-s1-r100": {"right": "..."}})
    {'x-t0-s0-r30': {}, 'x-t0-s1-r100': {'right': '...'}}
    """
    tested = ("right", "correct")
    return {
        name: {key: value for key, value in run.items() if key not in tested or "-s0-" not in name}
        for name, run in found.items()
    }


@dataclass(frozen=True)
class Reading(Generic[C]):
    """The functions by which a study reads an ended run and a diverged one."""

    ended: Callable[[C, Path, Loader], dict[str, Any]]
    diverged: Callable[[C, Diverged], dict[str, Any]]


def work(
    ready: Callable[[Kept], Sequence[C]],
    out: Path,
    where: Mapping[str, Any],
    say: Callable[[str], None],
    known: Kept,
    reading: Reading[C],
) -> Kept:
    """Make all cells that are ready and not `known`, and those that become ready by them. Returns all finished cells.

    `where` holds the settings of the engine.
    """
    loader = Loader()
    while True:
        found = {**known, **read_cells(out / CELLS)}
        waiting = [cell for cell in ready(found) if cell.name not in found]
        if not waiting:
            return found
        _make(waiting, len(found), out, where, say, loader, reading)


def _make(
    cells: Sequence[C],
    done: int,
    out: Path,
    where: Mapping[str, Any],
    say: Callable[[str], None],
    loader: Loader,
    reading: Reading[C],
) -> None:
    """Make some cells side by side, and keep each as a file when it has ended."""
    waiting, total = {cell.name: cell for cell in cells}, done + len(cells)
    (out / CELLS).mkdir(parents=True, exist_ok=True)

    def plan(cell: C) -> RunPlan:
        return RunPlan(out / cell.name, {**cell.settings(), **where}, f"the cell {cell.name}")

    def ended(one: RunEnded) -> None:
        cell, folder = waiting.pop(one.name), out / one.name
        if one.error is not None and not isinstance(one.error, Diverged):
            raise one.error
        kept = reading.ended(cell, folder, loader) if one.error is None else reading.diverged(cell, one.error)
        write_atomically(out / CELLS / f"{cell.name}.json", json.dumps(kept, sort_keys=True) + "\n")
        shutil.rmtree(folder)
        told = ", ".join(f"{key} {value:.4f}" for key, value in kept["validation"].items())
        say(f"[{total - len(waiting)} of {total} known] {cell.name}: {told} on validation samples")

    planned = [Planned(cell.name, partial(plan, cell)) for cell in cells]
    longest = max(cells, key=lambda cell: cell.cost)
    first = loader.prepare({**longest.settings(), **where}, f"the cell {longest.name}")
    with place_for(first, len(planned), out, str(where["engine"]), loader) as place:
        run_many(planned, place, Watcher(ended=ended))


READING = Reading(read_off, diverged)
