"""What hostile clients cost, and what rules against them cost honest ones.

    python benchmarks/robust.py honest   # the norm bound in honest runs: five data sets, seven methods, seven settings
    python benchmarks/robust.py attacks  # six attacks on seven methods, with and without rules against them
    python benchmarks/robust.py merging  # the merge rules of fedavg

`honest` runs each experiment with a norm bound of 3, and again without it if a reply was refused. A row is a setting:
replies, how many were refused, the longest series of refusals of one client, and the accuracy that the bound costs.
`attacks` has ten clients on digits, two of them bad (of heart-disease's four hospitals, one); a number is the honest
clients' mean accuracy at `pre`. The attacks: `turned`: the update with the other sign, and up to four times as long;
`scaled`: ten times the update; `labels`: trained on the last class - y; `rider`: no update at all; `replay`: the
client's first reply again. Mnist, fashion-mnist and covtype are parts of 2,000 rows. SPARSONA_DATA names their folder.
Everything continues where it was stopped: see --out.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from attacks import scaled

from sparsona.api import execute
from sparsona.data import load
from sparsona.data.dataset import Dataset
from sparsona.federation.setup import Setup
from sparsona.files import write_atomically
from sparsona.message import Message, Part
from sparsona.method import Fit, Method
from sparsona.prepare import Prepared, prepare
from sparsona.result import Result
from sparsona.training.local import Local

DATA = ("digits", "heart-disease", "mnist", "fashion-mnist", "covtype")
METHODS = ("fedavg", "ditto", "fedspa", "spfl", "plga", "fedpse", "fedthin")
MIXED = {"partition": "dirichlet-classes:0.3"}
SETTINGS: dict[str, dict[str, Any]] = {
    "alike (iid)": {"partition": "iid"},
    "skewed (dirichlet-classes:0.1)": {"partition": "dirichlet-classes:0.1"},
    "other sizes (quantity:0.5)": {"partition": "quantity:0.5"},
    "few (3 clients)": {**MIXED, "clients": 3},
    "partial (6 of 20)": {**MIXED, "clients": 20, "schedule": {"sample": 0.3}},
    "late (3 stragglers)": {**MIXED, "schedule": {"stragglers": 3}},
    "lost (3 of 10 replies)": {**MIXED, "schedule": {"loss": 0.3}},
}
ATTACKS = ("none", "turned x4", "turned x2", "turned", "scaled", "labels", "rider", "replay")
BOUND: dict[str, Any] = {"max_update_norm": 3.0}
RULES: dict[str, dict[str, Any]] = {
    "no rule": {},
    "bound": BOUND,
    "agree": {"options": {"merge": "agree"}},
    "median": {"options": {"merge": "median"}},
}
LACKING = {"fedspa": ("agree", "median"), "plga": ("agree", "median"), "spfl": ("median",)}
"""Merge rules that a method does not have."""
MERGES: dict[str, dict[str, Any]] = {
    "mean": {},
    "bound": BOUND,
    "median": {"options": {"merge": "median"}},
    "trimmed:0.2": {"options": {"merge": "trimmed:0.2"}},
    "krum": {"options": {"merge": "krum"}},
    "agree": {"options": {"merge": "agree"}},
}
FACTORS = {"turned x4": -4.0, "turned x2": -2.0, "turned": -1.0, "scaled": 10.0, "rider": 0.0}


class Lies:
    """The method, except that bad clients send something else than what they have learnt."""

    def __init__(self, method: Method[Any, Any], attack: str, bad: tuple[str, ...]) -> None:
        self._method, self._attack, self._bad = method, attack, bad
        self._first: dict[tuple[str, int], Message] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def fit(self, state: Any, down: Message, local: Local) -> Fit[Any]:
        fit = self._method.fit(state, down, local)
        if local.client not in self._bad or not len(fit.reply):
            return fit
        if self._attack == "replay":
            phases = [phase.name for phase in self._method.phases(local.round)]
            first = self._first.setdefault((local.client, phases.index(local.phase.name)), fit.reply)
            return replace(fit, reply=Message(**first.parts))
        factor = np.float32(FACTORS[self._attack])
        parts: dict[str, Part] = {}
        for name, part in fit.reply.parts.items():
            start = down.parts.get(name)
            if isinstance(part, np.ndarray) and isinstance(start, np.ndarray) and part.shape == start.shape:
                parts[name] = start + factor * (part - start)
            else:
                parts[name] = scaled(float(factor))(part)
        return replace(fit, reply=Message(**parts))


@lru_cache(maxsize=2)
def part_of(name: str) -> Dataset:
    """2,000 rows of a large data set."""
    data = load(name)
    rows = np.sort(np.random.default_rng(0).choice(len(data), 2000, replace=False))
    some = replace(data, inputs=data.inputs[rows], targets=data.targets[rows])
    return replace(some, groups=None, group_names=(), official_test=0, model="mlp")


def prepared(method: str, data: str, setting: dict[str, Any], rounds: int, seed: int) -> Prepared:
    """One experiment; heart-disease is always split by hospital."""
    settings = {"method": method, "rounds": rounds, "seed": seed, "engine": "inprocess", "evaluation": {"every": 0}}
    settings |= setting
    if data == "heart-disease":
        return prepare({**settings, "data": data, "partition": "groups", "clients": 0})
    return prepare({**settings, "data": data}) if data == "digits" else prepare(settings, data=part_of(data))


def with_flipped_labels(setup: Setup, bad: tuple[str, ...]) -> Setup:
    data = setup.federation.data
    targets = data.targets.copy()
    for client in bad:
        rows = setup.federation.splits[client].train
        targets[rows] = data.classes - 1 - targets[rows]
    return replace(setup, federation=replace(setup.federation, data=replace(data, targets=targets)))


def attacked(what: Prepared, attack: str, bad: tuple[str, ...]) -> Prepared:
    setup = what.setup
    if attack == "labels":
        setup = with_flipped_labels(setup, bad)
    elif attack != "none":
        setup = replace(setup, method=Lies(setup.method, attack, bad))  # type: ignore[arg-type]
    return replace(what, setup=setup)


def mean_of(result: Result, without: tuple[str, ...] = ()) -> float:
    return float(np.mean([points["pre"] for client, points in result.scores.items() if client not in without]))


def honest_case(method: str, data: str, setting: dict[str, Any], rounds: int, seed: int) -> dict[str, Any]:
    """Replies, refused ones, the longest series of a client, and the accuracies with and without the bound."""
    result = execute(prepared(method, data, {**setting, **BOUND}, rounds, seed))
    refused = result.summary.get("refused", {})
    bounded = mean_of(result)
    replies = sum(report.took_part for report in result.history)
    free = mean_of(execute(prepared(method, data, setting, rounds, seed))) if refused else bounded
    return {"replies": replies, "refused": refused, "bounded": bounded, "free": free}


class Kept:
    """Results that are written as they come, and not measured again."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file
        self._found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def get(self, key: str, measure: Callable[[], Any]) -> Any:
        if key not in self._found:
            self._found[key] = measure()
            write_atomically(self._file, json.dumps(self._found, indent=1))
        return self._found[key]


def table(head: list[str]) -> None:
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)


def honest(kept: Kept, rounds: int, seeds: list[int], data: list[str], methods: list[str]) -> None:
    table(["setting", "runs", "replies", "refused", "most of one client", "accuracy with the bound - without"])
    for name, setting in SETTINGS.items():
        rows = []
        for source in data:
            if source == "heart-disease" and not (setting.get("schedule") or "skewed" in name):
                continue  # its four hospitals are few and skewed already
            for method in methods:
                for seed in seeds:
                    key = f"honest {name} {source} {method} {rounds} {seed}"
                    case = lambda m=method, d=source, s=setting, k=seed: honest_case(m, d, s, rounds, k)  # noqa: E731
                    rows.append((key, kept.get(key, case)))
        gaps = [row["bounded"] - row["free"] for _, row in rows]
        most = max((count for _, row in rows for count in row["refused"].values()), default=0)
        refused = sum(sum(row["refused"].values()) for _, row in rows)
        counts = f"{len(rows)} | {sum(row['replies'] for _, row in rows)} | {refused} | {most} of {rounds}"
        print(f"| {name} | {counts} | {np.mean(gaps):+.4f}, at worst {min(gaps):+.4f} |", flush=True)


def attack(
    kept: Kept, rounds: int, seeds: list[int], source: str, rows: dict[str, tuple[str, dict[str, Any]]], partition: str
) -> None:
    bad = ("switzerland",) if source == "heart-disease" else ("c0", "c1")
    table([f"{source}, {partition}", *ATTACKS])
    for name, (method, setting) in rows.items():
        cells = []
        for lie in ATTACKS:
            found = []
            for seed in seeds:

                def measure(method: str = method, setting: Any = setting, lie: str = lie, seed: int = seed) -> float:
                    what = prepared(method, source, {**setting, "partition": partition}, rounds, seed)
                    return mean_of(execute(attacked(what, lie, bad)), bad)

                found.append(kept.get(f"{source} {partition} {name} {lie} {rounds} {seed}", measure))
            cells.append(f"{np.mean(found):.3f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("honest", "attacks", "merging"))
    parser.add_argument("--rounds", type=int, default=0, help="[10 honest ones, else 20]")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--data", default="", help="names, separated by commas [honest: all five; else digits]")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", type=Path, default=Path("runs/robust.json"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("sparsona").setLevel(logging.ERROR)
    kept, seeds, methods = Kept(given.out), [int(seed) for seed in given.seeds.split(",")], given.methods.split(",")
    rounds = given.rounds or (10 if given.what == "honest" else 20)
    if given.what == "honest":
        honest(kept, rounds, seeds, given.data.split(",") if given.data else list(DATA), methods)
        return
    for source in given.data.split(",") if given.data else ["digits"]:
        if given.what == "attacks":
            known = [(m, rule) for m in methods for rule in RULES if rule not in LACKING.get(m, ())]
            rows = {f"{m}, {rule}": (m, RULES[rule]) for m, rule in known}
            attack(kept, rounds, seeds, source, rows, "dirichlet-classes:0.3")
            continue
        for partition in ("iid", "dirichlet-classes:0.3"):
            attack(kept, rounds, seeds, source, {rule: ("fedavg", one) for rule, one in MERGES.items()}, partition)


if __name__ == "__main__":
    main()
