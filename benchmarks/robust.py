"""Robust merging against clients that flip labels or signs: accuracy of the honest ones.

    python benchmarks/robust.py [--rounds 20] [--seeds 0,1,2] [--partitions iid,dirichlet-classes:0.3] [--out FILE]

Digits, ten clients, two of them bad (20 %). `labels`: a bad client trains on 9 - y instead of y. `signs`: it sends its
update with the sign turned, four times as long. A number is the honest clients' mean accuracy at `pre`, and the mean of
that over the seeds. `bound` is the mean with --max-update-norm 3. It continues where it was stopped: see --out.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.api import execute
from sparsona.federation.setup import Setup
from sparsona.files import write_atomically
from sparsona.message import Message
from sparsona.method import Fit, Method
from sparsona.prepare import Prepared, prepare
from sparsona.training.local import Local

RULES = ("mean", "bound", "median", "trimmed:0.2", "krum")
ATTACKS = ("none", "labels", "signs")
BAD = ("c0", "c1")


class TurnsSigns:
    """FedAvg, except that bad clients send w - 4 (w_k - w) instead of w_k."""

    def __init__(self, method: Method[Any, Any]) -> None:
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def fit(self, state: Any, down: Message, local: Local) -> Fit[Any]:
        fit = self._method.fit(state, down, local)
        if local.client not in BAD:
            return fit
        start, trained = down.vector("weights"), fit.reply.vector("weights")
        turned = start - np.float32(4) * (trained - start)
        return replace(fit, reply=Message(**{**fit.reply.parts, "weights": turned}))


def with_flipped_labels(setup: Setup) -> Setup:
    data = setup.federation.data
    targets = data.targets.copy()
    for client in BAD:
        rows = setup.federation.splits[client].train
        targets[rows] = data.classes - 1 - targets[rows]
    return replace(setup, federation=replace(setup.federation, data=replace(data, targets=targets)))


def attacked(prepared: Prepared, attack: str) -> Prepared:
    setup = prepared.setup
    if attack == "labels":
        setup = with_flipped_labels(setup)
    if attack == "signs":
        setup = replace(setup, method=TurnsSigns(setup.method))  # type: ignore[arg-type]
    return replace(prepared, setup=setup)


def measured(rule: str, attack: str, partition: str, rounds: int, seed: int) -> tuple[float, float]:
    """The honest clients' mean accuracy, and the seconds of the run."""
    settings: dict[str, Any] = {"method": "fedavg", "rounds": rounds, "seed": seed, "partition": partition}
    settings |= {"engine": "inprocess", "evaluation": {"every": 0}}
    settings |= {"max_update_norm": 3.0} if rule == "bound" else {"options": {"merge": rule}}
    began = time.perf_counter()
    result = execute(attacked(prepare(settings), attack))
    scores = [points["pre"] for client, points in result.scores.items() if client not in BAD]
    return float(np.mean(scores)), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--partitions", default="iid,dirichlet-classes:0.3")
    parser.add_argument("--out", type=Path, default=Path("runs/robust.json"))
    given = parser.parse_args()
    logging.getLogger("sparsona").setLevel(logging.ERROR)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, tuple[float, float]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    seeds, partitions = [int(seed) for seed in given.seeds.split(",")], given.partitions.split(",")
    for partition in partitions:
        print(f"\n{partition}\n\n| merge | {' | '.join(ATTACKS)} |\n|{'---|' * (len(ATTACKS) + 1)}")
        for rule in RULES:
            row = []
            for attack in ATTACKS:
                for seed in seeds:
                    key = f"{partition} {rule} {attack} {given.rounds} {seed}"
                    if key not in found:
                        found[key] = measured(rule, attack, partition, given.rounds, seed)
                        write_atomically(given.out, json.dumps(found, indent=1))
                keys = [f"{partition} {rule} {attack} {given.rounds} {seed}" for seed in seeds]
                row.append(f"{np.mean([found[key][0] for key in keys]):.4f}")
            print(f"| {rule} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
