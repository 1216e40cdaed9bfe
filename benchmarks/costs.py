"""What each method costs: bytes, operations, memory and what its messages hold, in one setting for all.

    python benchmarks/costs.py [--methods fedavg fedpse] [--rounds 20] [--write docs/methods/costs.json]

Digits among ten clients, dirichlet-classes:0.3, an mlp 64-50-10, one epoch a round at the methods' defaults; one seed.
Bytes are those of frames, a client and round; kept states are measured after the last round, as they are written to
disk. With --write the methods named replace what the file holds of them, and the others stay.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.engines.inprocess import InProcess
from sparsona.federation.rounds import assemble
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.message import Message, Part
from sparsona.methods import METHODS
from sparsona.prepare import prepare
from sparsona.runs.state import pack
from sparsona.wire import decode

SETTING = "digits, 10 clients, dirichlet-classes:0.3, mlp:50, one epoch a round, the methods' defaults, seed 0"
MORE = {"sub-fedavg": {"training": {"epochs": 2}}}
"""Settings without which a method does nothing of its own."""


class Reading(InProcess):
    """Reads every frame of the protocol and notes the kinds of its parts."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.parts: dict[str, dict[str, str]] = {"up": {}, "down": {}}
        self._limit, self._lengths = setup.limit(), setup.task.layout.lengths

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            (outcome,) = super().run([job])
            if job.kind == "fit":
                self._note("down", b"".join(job.down))
                self._note("up", outcome.frame.data)
            yield outcome

    def _note(self, way: str, data: bytes) -> None:
        if data:
            message: Message = decode(data, self._limit, self._lengths, references=self.references.find)
            self.parts[way] |= {_general(name): kind_of(part) for name, part in message.parts.items()}


def _general(name: str) -> str:
    """Numbered parts under one name: ``model0``, ``model1`` are ``model*``."""
    return name.rstrip("0123456789") + "*" if name[-1:].isdigit() else name


def kind_of(part: Part) -> str:
    """What a part is, in a word."""
    if isinstance(part, np.ndarray):
        return "vector" if part.dtype == np.float32 else f"{part.dtype} array"
    return {"int": "integer", "float": "number"}.get(type(part).__name__, type(part).__name__)


def measure(name: str, rounds: int) -> dict[str, Any]:
    """One run of a method, in this process."""
    settings = {"method": name, "rounds": rounds, "model": "mlp:50", "evaluation": {"every": 0}, **MORE.get(name, {})}
    prepared = prepare(settings)
    setup = prepared.setup
    engine = Reading(setup)
    try:
        experiment = prepared.experiment
        loop = assemble(setup, engine, prepared.schedule, experiment.evaluation, fewest=experiment.split.fewest)
        loop.run()
        clients = setup.task.clients
        turns = rounds * len(clients)
        states = [len(pack({"state": engine.store.get(client).state})) for client in clients]
        scores = {point: (loop.run_log.kept(point) or {}).get("mean") for point in ("pre", "post")}
        return {
            "up": sum(r.up.total for r in loop.run_log.rounds) / turns,
            "down": sum(r.down.total for r in loop.run_log.rounds) / turns,
            "flops": sum(r.flops for r in loop.run_log.rounds) / turns,
            "client_state": sum(states) / len(states),
            "server_state": len(pack({"state": loop.server})),
            "parts": engine.parts,
            "weights": setup.task.layout.size,
            **scores,
        }
    finally:
        engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS.names())
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    kept: dict[str, Any] = {"methods": {}}
    if given.write is not None and given.write.exists():
        kept = json.loads(given.write.read_text(encoding="utf-8"))
    for name in given.methods:
        found = measure(name, given.rounds)
        kept["weights"] = found.pop("weights")
        kept["methods"][name] = found
        shown = {key: value for key, value in found.items() if key != "parts"}
        print(name, json.dumps(shown), json.dumps(found["parts"]), flush=True)
        kept |= {"command": "python benchmarks/costs.py", "date": str(datetime.date.today())}
        kept |= {"setting": f"{SETTING}, {given.rounds} rounds"}
        if given.write is not None:
            kept["methods"] = dict(sorted(kept["methods"].items()))
            given.write.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
