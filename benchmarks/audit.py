"""Attack our own messages: is the epsilon that can be measured below the one that is claimed?

    python benchmarks/audit.py [--methods fedavg,fedpse,fedspa,spfl] [--epsilons inf,8,2,1] [--canaries 200]

One-run auditing (Steinke, Nasr, Jagielski 2023): each row of a client's training part is a canary with probability one
half, else it is replaced by a blank row. After the run an attacker, who has all frames that the server sees, guesses
for each canary whether it was there. With `right` of `guesses` correct, (epsilon, delta) cannot be below a bound at 95
percent confidence (their theorem 5.2, in its simple form for delta as slack). A canary that is replaced by a blank row
is one row replaced, so the bound is for the relation that the accountant claims.

The attacker is given more than a server has: it knows all canaries, and each lights up a pixel of its own, so that no
other row moves the same weights of the first layer. Its score for a canary is the inner product of the canary's clipped
gradient, at the weights that each turn starts from, with the update that the reply tells; where a part of the update is
sent, also how much of the gradient stands at the positions that are. The membership attack reports the same scores as a
rate of true positives at one percent false positives.

Deliberately broken builds must be caught: `no noise` trains without it, `noise after top-k` adds noise only to the
entries that are sent (whose choice leaks), and `wrong rate` takes all rows where one in twenty is accounted for.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import binom
from torch import nn

from sparsona.chance import Chance
from sparsona.data.dataset import ClientSplit, Dataset, Federation
from sparsona.engines.inprocess import InProcess
from sparsona.experiment import make_method
from sparsona.federation.budget import mechanisms
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import assemble
from sparsona.federation.schedule import EVERYONE
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.message import Message, Sparse, Vector
from sparsona.method import Task
from sparsona.privacy import PrivacySettings
from sparsona.privacy.accountant import epsilon_of
from sparsona.privacy.mechanism import Mechanism
from sparsona.training.config import TrainConfig
from sparsona.training.objective import classification
from sparsona.training.runner import ModelRunner
from sparsona.training.vector import FlatModule
from sparsona.wire import decode

Doubles = npt.NDArray[np.float64]
SIDE, CLASSES, DELTA, BRIGHT = 20, 10, 1e-5, 10.0
PIXELS = SIDE * SIDE
CLIENT = "audited"


def federation_of(canaries: int, seed: int) -> tuple[Federation, Federation, npt.NDArray[np.bool_]]:
    """All canaries; the same with about half of them blank, which is trained on; and which canaries are there."""
    rng = np.random.default_rng(seed)
    rows = BRIGHT * np.eye(PIXELS, dtype=np.float32)[:canaries].reshape(-1, 1, SIDE, SIDE)
    labels, there = rng.integers(0, CLASSES, canaries), rng.random(canaries) < 0.5
    split = ClientSplit(CLIENT, np.arange(canaries), np.zeros(0, np.int64), np.zeros(0, np.int64))
    full = Dataset("canaries", rows, labels, CLASSES)
    blank = replace(full, inputs=np.where(there[:, None, None, None], rows, np.float32(0)))
    return Federation(full, {CLIENT: split}), Federation(blank, {CLIENT: split}), there


def setup_of(method: str, rounds: int, federation: Federation, share: float = 0.5) -> Setup:
    """One client alone with the server, a small net, batches of a share of the rows."""
    chance = Chance(1)
    with chance.torch("initial weights"):
        module = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    flat = FlatModule(module)
    task = Task(flat.layout, flat.read(), (CLIENT,), rounds, (1, SIDE, SIDE), CLASSES, chance)
    config = TrainConfig(steps=2, batch=int(share * len(federation.splits[CLIENT].train)), lr=0.5)
    return Setup(make_method(method, {}), task, federation, module, classification(), config, trainer="fused")


@dataclass(frozen=True)
class Turn:
    """The weights that a turn starts from, as the server sent them, and the update that its reply tells."""

    start: Vector
    update: Vector


class Server(InProcess):
    """An engine that notes the frames that the server sees."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.seen: list[tuple[Message, Message]] = []
        self._sizes = setup.limit(), setup.task.layout.lengths

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            (outcome,) = super().run([job])
            if outcome.kind == "fit" and outcome.frame.data:
                found = (
                    decode(data, *self._sizes, references=self.references.find)
                    for data in (b"".join(job.down), outcome.frame.data)
                )
                down, up = found
                self.seen.append((down, up))
            yield outcome


def turns_of(engine: Server, setup: Setup) -> list[Turn]:
    """What the messages of all turns say about their starts and updates; entries that do not travel are zero."""
    turns, start, size = list[Turn](), setup.task.initial, setup.task.layout.size
    mask = setup.method.first_mask(setup.task, CLIENT) if hasattr(setup.method, "first_mask") else None
    for down, up in engine.seen:
        update = np.zeros(size, np.float32)
        if "weights" in down:
            start = down.vector("weights", size)
        if mask is not None:
            start, known = start.copy(), down.vector("values", int(mask.sum()))
            start[mask], update[mask] = known, up.vector("values", len(known)) - known
            mask = mask ^ up.positions("change").mask()
        elif "update" in up:
            part = up.parts["update"]
            update = np.asarray(part.dense() if isinstance(part, Sparse) else part, np.float32)
        else:
            update = up.vector("weights", size) - start
        turns.append(Turn(start, update))
    return turns


def scores(turns: list[Turn], setup: Setup, full: Federation, clip: float) -> Doubles:
    """For each canary, how much the updates go along its clipped gradient, in the weights of its own pixel."""
    first = setup.task.layout.tensors[0].slice
    runner = ModelRunner(setup.module, full.data, setup.objective, setup.task.chance)
    found = np.zeros(len(full.data.targets))
    for turn in turns:
        runner.flat.load(turn.start)
        runner.flat.module.train()
        gradients = runner.example_gradients(np.arange(len(found)))
        norms = gradients.norm(dim=1).clamp(min=1e-12)
        clipped = (gradients * (clip / norms).clamp(max=1.0)[:, None])[:, first]
        moved = torch.from_numpy(turn.update[first])
        sent = (moved != 0).float()
        along = -(clipped * sent) @ moved / moved.norm().clamp(min=1e-12)
        if sent.mean() < 0.4:  # a choice of entries, not a mask that everyone knows
            along += clipped.abs() @ sent / clipped.abs().sum(1).clamp(min=1e-12)
        found += along.double().numpy()
    return found


def lower_bound(there: npt.NDArray[np.bool_], told: Doubles, delta: float) -> float:
    """The largest epsilon that is refuted at 95 percent confidence, over several numbers of guesses (Bonferroni)."""
    order, count, best = np.argsort(told), len(told), 0.0
    shares = (0.05, 0.1, 0.2, 0.4, 0.6, 1.0)
    for share in shares:
        guesses = max(2, 2 * int(share * count / 2))
        low, high = order[: guesses // 2], order[-(guesses // 2) :]
        right = int(there[high].sum() + (~there[low]).sum())
        epsilons = np.linspace(0, 20, 401)
        p = 1 / (1 + np.exp(-epsilons))
        # Correct guesses are dominated by a binomial, but for a mass of at most 2 * canaries * delta.
        chance = binom.sf(right - 1, guesses, p) + 2 * count * delta
        refuted = epsilons[chance < 0.05 / len(shares)]
        best = max(best, float(refuted.max()) if len(refuted) else 0.0)
    return best


def members_found(there: npt.NDArray[np.bool_], told: Doubles) -> float:
    """The share of canaries that are found where one percent of the absent ones are, too."""
    threshold = np.quantile(told[~there], 0.99)
    return float((told[there] > threshold).mean())


Break = Callable[[Mechanism], Mechanism]
BROKEN: dict[str, tuple[float, Break]] = {
    "no noise": (0.5, lambda m: replace(m, noise=1e-6)),
    "wrong rate": (0.05, lambda m: replace(m, rate=1.0)),
}
"""The share of rows in a batch, and what a broken build does in the place of the mechanism that was planned."""


def audited(
    method: str, epsilon: float, canaries: int, rounds: int, share: float = 0.5, broken: Break | None = None
) -> dict[str, Any]:
    """Run one client with half of the canaries, attack its frames, and bound epsilon from below."""
    full, trained, there = federation_of(canaries, seed=3)
    setup = setup_of(method, rounds, trained, share)
    claimed = epsilon
    if math.isfinite(epsilon):
        planned = mechanisms(setup, PrivacySettings(epsilon=epsilon, delta=DELTA, clip=1.0), LAST_ROUND)[CLIENT]
        claimed = epsilon_of(planned.rate, planned.noise, planned.most, DELTA)
        setup = dataclasses.replace(setup, privacy={CLIENT: planned if broken is None else broken(planned)})
    engine = Server(setup)
    rounds_of = assemble(setup, engine, EVERYONE, LAST_ROUND)
    rounds_of.run()
    told = scores(turns_of(engine, setup), setup, full, clip=1.0)
    return {
        "claimed": claimed,
        "bound": lower_bound(there, told, DELTA if setup.privacy is not None else 0.0),
        "found": members_found(there, told),
    }


def late_noise(epsilon: float, canaries: int, rounds: int) -> dict[str, Any]:
    """A broken build: the largest entries of the true sum are chosen, and noise is added to these alone."""
    full, trained, there = federation_of(canaries, seed=3)
    setup = setup_of("fedavg", rounds, trained)
    planned = mechanisms(setup, PrivacySettings(epsilon=epsilon, delta=DELTA), LAST_ROUND)[CLIENT]
    runner = ModelRunner(setup.module, trained.data, setup.objective, setup.task.chance)
    rng, weights, turns = np.random.default_rng(5), setup.task.initial.copy(), list[Turn]()
    for _ in range(planned.most):
        runner.flat.load(weights)
        gradients = runner.example_gradients(np.flatnonzero(rng.random(canaries) < planned.rate))
        scale = (1 / gradients.norm(dim=1).clamp(min=1e-12)).clamp(max=1.0)
        total = (scale @ gradients).numpy()
        kept = np.argsort(-np.abs(total))[: len(total) // 10]
        sent = np.zeros_like(total)
        sent[kept] = total[kept] + rng.normal(0, planned.noise, len(kept))
        turns.append(Turn(weights.copy(), -sent))
        weights = weights - np.float32(0.5 / (planned.rate * canaries)) * sent
    told = scores(turns, setup, full, clip=1.0)
    return {"claimed": epsilon, "bound": lower_bound(there, told, DELTA), "found": members_found(there, told)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="fedavg,fedpse,fedspa,spfl")
    parser.add_argument("--epsilons", default="inf,8,2,1")
    parser.add_argument("--canaries", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'build':<28}{'claimed':>9}{'measured, at least':>20}{'found at 1 % false':>20}")

    def show(name: str, found: dict[str, Any]) -> None:
        print(f"{name:<28}{found['claimed']:>9.2f}{found['bound']:>20.2f}{found['found']:>19.1%}", flush=True)

    for method in given.methods.split(","):
        for epsilon in map(float, given.epsilons.split(",")):
            show(f"{method}", audited(method, epsilon, given.canaries, given.rounds))
    for name, (share, broken) in BROKEN.items():
        show(f"fedavg, broken: {name}", audited("fedavg", 1.0, given.canaries, given.rounds, share, broken))
    show("broken: noise after top-k", late_noise(1.0, given.canaries, given.rounds))


if __name__ == "__main__":
    main()
