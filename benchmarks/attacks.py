"""All attacks at full size: mutants, a dishonest organiser, an evil owner on a real network, hostile replies.

    python benchmarks/attacks.py [mutants] [organiser] [owners] [replies] [--out runs/attacks.json]

The first three are scripts of their own, beside this one. In `replies` one of four clients replaces its reply in every
round of three. A row is a method, a column an attack. Verdicts:

- refused: the gate or the method has left every such reply out, the sender is named, the others go on
- harmless: the reply counts, and the server's numbers stay where those of an honest run are
- poisoned: the server's numbers are not finite, or a hundred times those of an honest run
- crashed: the run has ended with an error

Without names all four run. Each continues where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.engines.inprocess import InProcess
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.rounds import assemble
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.files import write_atomically
from sparsona.message import Blocks, Levels, Message, Part, Positions, Sparse, Ternary
from sparsona.method import Fit, Method
from sparsona.methods import METHODS
from sparsona.testing import tiny_setup
from sparsona.training.determinism import make_deterministic
from sparsona.training.local import Local

SCRIPTS = ("mutants", "organiser", "owners")
PARTS = (*SCRIPTS, "replies")
BAD = "c1"
CLIENTS, ROUNDS = 4, 3


def everywhere(value: float) -> Callable[[Part], Part]:
    """Every float of a part is this value."""
    return lambda part: _with_floats(part, lambda floats: np.full_like(floats, value))


def somewhere(value: float) -> Callable[[Part], Part]:
    """One float of a part is this value."""

    def change(floats: Any) -> Any:
        out = floats.copy()
        out[len(out) // 2 : len(out) // 2 + 1] = value
        return out

    return lambda part: _with_floats(part, change)


def scaled(factor: float) -> Callable[[Part], Part]:
    return lambda part: _with_floats(part, lambda floats: (floats * np.float32(factor)).astype(floats.dtype))


def _with_floats(part: Part, change: Callable[[Any], Any]) -> Part:
    if isinstance(part, np.ndarray):
        return change(part) if part.dtype.kind == "f" else part
    if isinstance(part, Sparse | Blocks | Levels):
        return replace(part, values=change(part.values))
    if isinstance(part, Ternary):
        return replace(part, magnitudes=change(part.magnitudes))
    return float(change(np.array([part]))[0]) if isinstance(part, float) else part


def resized(by: int) -> Callable[[Part], Part]:
    """Parts of another length than the model has."""

    def change(part: Part) -> Part:
        if isinstance(part, np.ndarray):
            return np.resize(part, max(0, len(part) + by)).astype(part.dtype)
        if isinstance(part, Positions):
            size = max(1, part.size + by)
            return Positions(size, part.indices[part.indices < size])
        if isinstance(part, Sparse):
            size = max(1, part.size + by)
            keep = part.indices < size
            return Sparse(size, part.indices[keep], part.values[keep])
        if isinstance(part, Blocks):
            return replace(part, values=np.resize(part.values, max(0, len(part.values) + by)))
        if isinstance(part, Levels):
            return Levels((len(part.values) + by,), np.resize(part.values, len(part.values) + by))
        if isinstance(part, Ternary):
            keep = part.indices < part.sizes[0]
            return Ternary(part.sizes[:1], part.indices[keep], part.negative[keep], part.magnitudes[:1])
        return part

    return change


def as_integers(part: Part) -> Part:
    """Parts of another kind under their names."""
    if isinstance(part, np.ndarray):
        return np.full(len(part), 2**62, np.int64)
    return 7 if not isinstance(part, int) else np.zeros(3, np.float32)


def each(change: Callable[[Part], Part]) -> Callable[[Message], Message]:
    return lambda reply: Message(**{name: change(part) for name, part in reply.parts.items()})


def claiming(examples: int) -> Callable[[Message], Message]:
    return lambda reply: Message(**{**reply.parts, "examples": examples})


MESSAGES: dict[str, Callable[[Message], Message]] = {
    "all NaN": each(everywhere(math.nan)),
    "one NaN": each(somewhere(math.nan)),
    "all Inf": each(everywhere(math.inf)),
    "one -Inf": each(somewhere(-math.inf)),
    "all 1e30": each(everywhere(1e30)),
    "x 1e6": each(scaled(1e6)),
    "examples 2^62": claiming(2**62),
    "examples 0": claiming(0),
    "examples -5": claiming(-5),
    "too short": each(resized(-1)),
    "too long": each(resized(1)),
    "no parts but one": lambda reply: Message(**dict(list(reply.parts.items())[-1:])),
    "other kinds": each(as_integers),
}
BYTES: dict[str, Callable[[bytes], bytes]] = {
    "noise": lambda frame: np.random.default_rng(len(frame)).bytes(max(40, len(frame))),
    "cut off": lambda frame: frame[: len(frame) // 2],
    "first reply again": lambda frame: frame,
}
ATTACKS = (*MESSAGES, *BYTES)


class Attacker:
    """The method, except that one client's replies are replaced."""

    def __init__(self, method: Method[Any, Any], change: Callable[[Message], Message]) -> None:
        self._method = method
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def fit(self, state: Any, down: Message, local: Local) -> Fit[Any]:
        fit = self._method.fit(state, down, local)
        return replace(fit, reply=self._change(fit.reply)) if local.client == BAD and len(fit.reply) else fit


class Tampered(InProcess):
    """The engine, except that one client's frames are replaced on their way."""

    change: Callable[[bytes], bytes] = staticmethod(lambda frame: frame)
    first: bytes | None = None

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for outcome in super().run(jobs):
            if outcome.kind != "fit" or outcome.client != BAD or not outcome.frame.data:
                yield outcome
                continue
            data = type(self).change(outcome.frame.data)
            if type(self).change is BYTES["first reply again"]:
                self.first = data = self.first or data
            yield replace(outcome, frame=replace(outcome.frame, pieces=(data,)))


def run(setup: Setup, engine: InProcess) -> tuple[Any, set[str], int]:
    """The server's state at the end, who was refused, and how often."""
    rounds = assemble(setup, engine, evaluation=Evaluation(every=0, post="participants"))
    rounds.run()
    return rounds.server, {client for _, client, _ in rounds.refused}, len(rounds.refused)


def largest(state: Any) -> float:
    """The largest number of a state; infinite where one is not finite."""
    if isinstance(state, np.ndarray) and state.dtype.kind == "f" and state.size:
        value = float(np.abs(state).max())
        return value if math.isfinite(value) else math.inf
    if isinstance(state, float):
        return abs(state) if math.isfinite(state) else math.inf
    if is_dataclass(state):
        return max((largest(getattr(state, f.name)) for f in fields(state)), default=0.0)
    if isinstance(state, dict):
        return max(map(largest, state.values()), default=0.0)
    return max(map(largest, state), default=0.0) if isinstance(state, tuple | list) else 0.0


def verdict(name: str, attack: str, honest: float) -> str:
    method = METHODS.get(name)()
    if type(method).alone:
        return "nothing travels"
    setup = tiny_setup(method, clients=CLIENTS, rounds=ROUNDS)
    if attack in MESSAGES:
        setup = replace(setup, method=Attacker(method, MESSAGES[attack]))  # type: ignore[arg-type]
    kind = type("Engine", (Tampered,), {"change": staticmethod(BYTES.get(attack, lambda frame: frame))})
    try:
        server, refused, count = run(setup, kind(setup))
    except Exception as error:  # noqa: BLE001  (that is what is measured)
        return f"crashed: {type(error).__name__}: {error}"
    if refused - {BAD}:
        return f"blames {', '.join(sorted(refused - {BAD}))}"
    if largest(server) > 100 * max(1.0, honest):
        return "poisoned"
    return f"refused {count} x" if refused else "harmless"


def replies(names: list[str], out: Path) -> None:
    """Print the verdict of each method under each attack, and a row per attack."""
    out.parent.mkdir(parents=True, exist_ok=True)
    table: dict[str, dict[str, str]] = json.loads(out.read_text()) if out.exists() else {}
    for name in names:
        row = table.setdefault(name, {})
        if len(row) < len(ATTACKS):
            setup = tiny_setup(METHODS.get(name)(), clients=CLIENTS, rounds=ROUNDS)
            honest = largest(run(setup, InProcess(setup))[0])
            for attack in ATTACKS:
                if attack not in row:
                    row[attack] = verdict(name, attack, honest)
                    write_atomically(out, json.dumps(table, indent=1))
        print(f"{name}: {', '.join(f'{attack}: {row[attack]}' for attack in ATTACKS)}", flush=True)
    print("| attack | refused | harmless | poisoned, crashed or an honest client blamed |\n|---|---|---|---|")
    for attack in ATTACKS:
        cells = [table[name][attack] for name in names if table[name][attack] != "nothing travels"]
        refused = sum(cell.startswith("refused") for cell in cells)
        harmless = cells.count("harmless")
        print(f"| {attack} | {refused} | {harmless} | {len(cells) - refused - harmless} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"{', '.join(PARTS)} [all]")
    parser.add_argument("--methods", default="", help="for replies: names, separated by commas [all]")
    parser.add_argument("--out", type=Path, default=Path("runs/attacks.json"))
    given = parser.parse_args()
    if unknown := set(given.what) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: choose of {', '.join(PARTS)}")
    wanted = given.what or PARTS
    warnings.simplefilter("ignore")
    logging.getLogger("sparsona").setLevel(logging.ERROR)
    make_deterministic()
    scripts = [Path(__file__).with_name(f"{part}.py") for part in SCRIPTS if part in wanted]
    failed = [script.stem for script in scripts if subprocess.run([sys.executable, str(script)]).returncode]
    if "replies" in wanted:
        replies(given.methods.split(",") if given.methods else METHODS.names(), given.out)
    sys.exit(", ".join(failed) or 0)


if __name__ == "__main__":
    main()
