"""A dishonest organiser against one owner: how many rows of its table can be read by the settings of experiments?

    python benchmarks/organiser.py [--proposals 400]

The owner's node runs in this process and is asked as a server asks it (`Node.answer`). Each attack turns other knobs:
seeds and splits, columns and targets, batches and steps, repeated rounds, restarts. A row counts if all of its numbers
are found to four digits, a name if it appears in any answer. 0 is the bar for all attacks but the one that sends
crafted weights to an owner without a privacy budget: what updates tell is closed by noise, not by rules. The last row
is the same attack, as often as the owner answers, against a node with --epsilon 8 (docs/privacy.md).

The script also runs against versions without these rules (PYTHONPATH), where the attacks succeed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import knobs
import numpy as np
import numpy.typing as npt

from sparsona.chance import Chance
from sparsona.data.dataset import Dataset
from sparsona.data.schema.exchange import LIMIT, agree, schema_of
from sparsona.data.schema.limits import text_in, unpack_doubles
from sparsona.data.schema.schema import Number
from sparsona.engines.network import node as node_module
from sparsona.engines.network.consent import Rules
from sparsona.engines.network.node import Node
from sparsona.engines.network.setup import setup_of, without_data
from sparsona.errors import SparsonaError
from sparsona.experiment import build, to_toml
from sparsona.federation.setup import Setup
from sparsona.message import Message, Stamp
from sparsona.partition._split import federate
from sparsona.wire import decode, encode

Numbers = npt.NDArray[np.float64]

OWNER = "hospital"
NUMBERS = ("age", "pressure", "dose")
ROWS = 150
HONEST: dict[str, Any] = {
    "method": "fedavg",
    "model": "mlp",
    "rounds": 3,
    "packing": "plain",
    "columns": {"target": ["ill"], "drop": ["name"], "categorical": ["ward", "ill"]},
}
DECLARED: dict[str, Any] = {
    "task": "classification",
    "classes": ["no", "yes"],
    "bounds": ["age=0:100", "pressure=60:180", "dose=0:20", "ward=a/b"],
}
"""What the owner declares of its columns where it has a privacy budget."""
RATE = 10.0
"""A learning rate with which the update of one step is read without loss; a ratio of two updates has no rate in it."""


@dataclass
class Found:
    """What an attack has read."""

    rows: list[Numbers] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    answered: int = 0
    """Proposals that got statistics or a reply."""


class Owner:
    """A node with a table of patients, whose owner has agreed on the honest experiment."""

    def __init__(self, folder: Path, rows: int = ROWS, epsilon: float | None = None) -> None:
        self.epsilon = epsilon
        rng = np.random.default_rng(7)
        self.numbers = np.round(rng.normal((50, 120, 10), (15, 12, 3), (rows, 3)), 4)
        self.names = [f"Patient {number:04d}" for number in range(rows)]
        ill = np.where(self.numbers[:, 0] + rng.normal(0, 9, rows) > 50, "yes", "no")
        ward = np.where(rng.random(rows) < 0.02, "isolation", rng.choice(["a", "b"], rows))
        lines = [
            f"{name},{','.join(map(str, row))},{w},{i}"
            for name, row, w, i in zip(self.names, self.numbers.tolist(), ward, ill, strict=True)
        ]
        self.folder, self.file = folder, folder / "hospital.csv"
        folder.mkdir(parents=True, exist_ok=True)
        self.lines = ["name,age,pressure,dose,ward,ill", *lines]
        self.file.write_text("\n".join(self.lines) + "\n")
        self.start()

    def start(self) -> None:
        """Start the node, or start it again."""
        more: dict[str, Any] = {}
        if hasattr(node_module, "Terms"):
            experiment, _ = build(self.honest)
            more["terms"] = node_module.Terms(experiment.split, experiment.columns)
        rules = Rules() if self.epsilon is None else Rules(epsilon=self.epsilon, scores=False)
        self.node = Node(OWNER, self.file, self.folder / "state", rules, **more)

    @property
    def honest(self) -> dict[str, Any]:
        """The experiment that the owner has agreed on: with a budget, all columns are declared."""
        return HONEST if self.epsilon is None else merged(HONEST, {"columns": DECLARED})

    def found(self, found: Found) -> tuple[int, int]:
        """How many of the rows and of the rare texts an attack has read are true."""
        true = {tuple(row) for row in np.round(self.numbers, 2).tolist()}
        near = {tuple(np.round(row[:3], 2).tolist()) for row in found.rows if np.isfinite(row[:3]).all()}
        text = " ".join(found.texts)
        return len(true & near), sum(name in text for name in (*self.names, "isolation"))


def merged(*settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an experiment, later ones first."""
    out: dict[str, Any] = {}
    for one in settings:
        for key, value in one.items():
            out[key] = {**out.get(key, {}), **value} if isinstance(value, Mapping) else value
    return out


class Organiser:
    """Sends proposals and turns, and reads the answers."""

    def __init__(self, owner: Owner) -> None:
        self.owner, self.found = owner, Found()
        self._number = 0

    def ask(self, head: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        answer, data = self.owner.node.answer(head, lambda most: body)
        self.found.texts |= {str(answer), data.decode("latin-1")}
        self.found.answered += answer["kind"] not in ("error", "waits")
        return answer, data

    def hello(self, **settings: Any) -> tuple[str, str, Message | None]:
        """Propose an experiment; returns the run, the experiment and the description."""
        self._number += 1
        run = f"{self._number:032d}"
        try:
            text = to_toml(build(merged(self.owner.honest, settings))[0])
        except SparsonaError:
            return run, "", None
        answer, body = self.ask({"kind": "hello", "run": run, "experiment": text})
        if answer["kind"] != "hello":
            return run, text, None
        message = decode(body, LIMIT)
        self.found.texts |= {
            str(json.loads(text_in(message, part))) for part in ("categories", "classes") if part in message
        }
        return run, text, message

    def joined(self, **settings: Any) -> Run | None:
        """Propose an experiment and agree on it with the owner alone."""
        run, text, description = self.hello(**settings)
        if description is None:
            return None
        frame = encode(agree({OWNER: description})).data
        return self.agreed(run, text, frame)

    def agreed(self, run: str, text: str, frame: bytes) -> Run | None:
        answer, _ = self.ask({"kind": "agreed", "run": run, "experiment": text, "clients": [OWNER]}, frame)
        if answer["kind"] != "ready":
            return None
        experiment, method = build(tomllib.loads(text))
        schema = schema_of(decode(frame, LIMIT))
        federation = without_data(schema, {OWNER: (100, 10, 20)})
        setup = setup_of(experiment, method, schema, (OWNER,), federation)
        scale = np.array([[f.mean, f.std] for f in schema.features if isinstance(f, Number)])
        return Run(self, run, text, frame, setup, scale)


@dataclass
class Run:
    """A run that the owner takes part in."""

    organiser: Organiser
    run: str
    text: str
    frame: bytes
    setup: Setup
    scale: Numbers

    def fit(self, round: int, weights: Numbers | None = None) -> Numbers | None:
        """The update of a turn, from the first weights or from those given."""
        start = self.setup.task.initial if weights is None else weights.astype(np.float32)
        down = Message(weights=start).stamped(Stamp(round, 0, (round - 1, 0) if round else None))
        lengths = self.setup.task.layout.lengths
        body = encode(down, lengths, packing="plain").data
        head = {"kind": "turn", "run": self.run, "job": "fit", "round": round, "phase": 0}
        answer, data = self.organiser.ask(head, body)
        if answer["kind"] != "turn":
            return None
        found = decode(data, self.setup.limit(), lengths)
        return found.vector("weights", len(start)).astype(np.float64) - start

    def inverted(self, update: Numbers | None) -> None:
        """Take an update for the gradient of one row: of a first layer, weights by bias are the inputs."""
        if update is None:
            return
        layout = self.setup.task.layout
        first = layout.named(update.astype(np.float32))
        weight, bias = (np.asarray(first[f"fc1.{part}"], np.float64) for part in ("weight", "bias"))
        for unit in np.argsort(-np.abs(bias))[:3]:
            if bias[unit]:
                inputs = weight[unit] / bias[unit]
                self.organiser.found.rows.append(inputs[: len(self.scale)] * self.scale[:, 1] + self.scale[:, 0])


def means(message: Message, names: int) -> tuple[Numbers, Numbers]:
    return message.numbers("inputs.known").astype(float), unpack_doubles(message, "inputs.mean", names)


def tiny_splits(organiser: Organiser, proposals: int) -> None:
    """Many seeds, with a training part of one row: its mean is the row."""
    for seed in range(proposals):
        _, _, told = organiser.hello(seed=seed, split={"test": 0.98, "validation": 0.6})
        if told is not None and told.integer("rows") <= 2:
            organiser.found.rows.append(means(told, 3)[1])


def differences(organiser: Organiser, proposals: int) -> None:
    """Ordinary splits: the organiser knows which rows a seed takes, and solves for all of them."""
    columns = {"target": ["dose"], "task": "regression", "categorical": [], "drop": ["name", "ward", "ill"]}
    taken, sums = [], []
    for seed in range(max(proposals, 2 * ROWS)):
        _, _, told = organiser.hello(seed=seed, columns=columns)
        if told is None:
            continue
        data = Dataset("", np.zeros((ROWS, 1), np.float32), np.zeros(ROWS, np.float32), 0, groups=np.zeros(ROWS, int),
                       group_names=(OWNER,))  # fmt: skip
        chosen = np.zeros(ROWS)
        chosen[federate(data, "groups", 0, Chance(seed)).splits[OWNER].train] = 1
        known, mean = means(told, 2)
        target = unpack_doubles(told, "target.mean", 1)
        taken.append(chosen)
        sums.append(np.concatenate([known * mean, known[:1] * target]))
    if len(taken) >= ROWS:
        organiser.found.rows.extend(np.linalg.lstsq(np.array(taken), np.array(sums), rcond=None)[0])


def other_columns(organiser: Organiser, proposals: int) -> None:
    """Targets, clients, categories, features, missing values, tasks and scalings that were not agreed on."""
    texts = ("ward", "ill")
    for target in ("name", *texts, *NUMBERS):
        for task in ("auto", "classification", "regression"):
            drop, named = ([], ("name", *texts)) if target == "name" else (["name"], {*texts, target})
            organiser.hello(columns={"target": [target], "task": task, "drop": drop, "categorical": [*named]})
    for client in ("name", *texts, *NUMBERS):
        drop = [] if client == "name" else ["name"]
        organiser.hello(columns={"client": client, "drop": drop, "categorical": [t for t in texts if t != client]})
    for several in itertools.combinations(NUMBERS, 2):
        organiser.hello(columns={"categorical": [*texts, *several]})
    for feature in ("name", "ward"):
        organiser.hello(columns={"features": [feature], "drop": [], "categorical": [feature, "ill"]})
    for value in range(40, 60):
        organiser.hello(columns={"missing": [value]})
    for scaling, spelling, inputs in itertools.product(("own", "none"), ("alike", "exact"), ("table", "tokens")):
        organiser.hello(columns={"scaling": scaling, "spelling": spelling, "inputs": inputs})
    for by in ("time:age", "group:name", "group:ward", "time:age:5"):
        organiser.hello(split={"by": by})


def one_row_batches(organiser: Organiser, proposals: int) -> None:
    """Turns of one step on one row, in stored or shuffled order, with every way to ask for that."""
    kinds: Iterable[dict[str, Any]] = (
        {"batch": 1, "steps": 1, "order": "stored"},
        {"batch": 1, "steps": 1},
        {"batch": 1, "drop_last": True, "steps": 1, "optimizer": "adam"},
        {"batch": 2, "steps": 1, "clip": 1e-6},
    )
    for training in kinds:
        run = organiser.joined(rounds=20, training={**training, "lr": 0.1})
        for round in range(20 if run is not None else 0):
            assert run is not None
            run.inverted(run.fit(round))


def left_out(organiser: Organiser, proposals: int) -> None:
    """Turns that leave one row out, or give it a batch of its own, less a turn with all rows."""
    _, _, told = organiser.hello()
    rows = ROWS if told is None else told.integer("rows")
    whole = organiser.joined(training={"batch": 10**4, "lr": RATE})
    total = None if whole is None else whole.fit(0)
    for training in ({"drop_last": True}, {}, {"steps": 1}):
        run = organiser.joined(rounds=20, training={"batch": rows - 1, "lr": RATE, **training})
        for round in range(20 if run is not None else 0):
            assert run is not None
            part = run.fit(round)
            if part is not None and total is not None:
                run.inverted(rows * total - (rows - 1) * part)


def changed_rounds(organiser: Organiser, proposals: int) -> None:
    """The same round again and again: with batches of one row more each time, from other weights, after restarts."""
    run = organiser.joined(training={"batch": 64, "lr": RATE})
    if run is None:
        return
    before: Numbers | None = None
    for number in range(60):
        batch = 30 + number
        settings = build(merged(HONEST, {"training": {"batch": batch, "steps": 1, "lr": RATE}}))[0]
        again = organiser.agreed(run.run, to_toml(settings), run.frame) or run
        if number % 10 == 0:
            organiser.owner.start()
        weights = run.setup.task.initial.copy()
        weights[-1] += 1e-6 * number
        update = again.fit(0, weights.astype(np.float64))
        if update is not None and before is not None:
            run.inverted(batch * update - (batch - 1) * before)
        before = update


def nested_batches(organiser: Organiser, proposals: int) -> None:
    """Runs alike but for the batch, which has one row more each time: in the same order, the sums differ by a row."""
    before: Numbers | None = None
    for batch in range(30, 70):
        run = organiser.joined(training={"batch": batch, "steps": 1, "lr": RATE})
        update = None if run is None else run.fit(0)
        if run is not None and update is not None and before is not None:
            run.inverted(batch * update - (batch - 1) * before)
        before = update


def changed_file(organiser: Organiser, proposals: int) -> None:
    """The owner adds one row to its file between two runs: the statistics differ by it."""
    owner = organiser.owner
    for columns in ({"features": ["age", "pressure", "dose"], "drop": [], "categorical": ["ill"]}, {}):
        seen: list[tuple[float, Numbers]] = []
        for count in range(ROWS - 10, ROWS + 1):
            owner.file.write_text("\n".join(owner.lines[: count + 1]) + "\n")
            owner.start()
            split = {"by": "time:age", "test": 0.01, "validation": 0.0} if columns else {}
            _, _, told = organiser.hello(columns=columns, split=split)
            if told is not None:
                seen.append((float(told.integer("rows")), means(told, 3)[1]))
        for (n, before), (m, after) in itertools.pairwise(seen):
            if m == n + 1:
                organiser.found.rows.append(m * after - n * before)


def imprinted(organiser: Organiser, proposals: int) -> None:
    """Crafted weights: every unit of the first layer fires from another age on, so that differences are few rows."""
    run = organiser.joined(training={"batch": 10**3, "lr": 1000.0}, model="mlp:400")
    for round in range(3 if run is not None and organiser.owner.epsilon is not None else 1 if run is not None else 0):
        assert run is not None
        _imprint(organiser, run, round)


def _imprint(organiser: Organiser, run: Run, round: int) -> None:
    layout, size = run.setup.task.layout, run.setup.task.layout.size
    weights = np.zeros(size, np.float32)
    named = layout.named(weights)
    named["fc1.weight"][:, 0] = 1.0
    named["fc1.bias"][:] = np.linspace(2.5, -2.5, 400)
    named["fc2.weight"][0, :] = 1e-3
    update = run.fit(round, weights.astype(np.float64))
    if update is None:
        return
    found = layout.named(update.astype(np.float32))
    for unit in range(399):
        bias = found["fc1.bias"][unit] - found["fc1.bias"][unit + 1]
        if abs(bias) > 1e-9:
            inputs = (found["fc1.weight"][unit] - found["fc1.weight"][unit + 1]) / bias
            organiser.found.rows.append(inputs[:3] * run.scale[:, 1] + run.scale[:, 0])


def every_knob(organiser: Organiser, proposals: int) -> None:
    """Each method and each setting at its ends, two whole rounds each; an owner answers to 50 of them."""
    several = list(knobs.knobs())
    chosen = several[:: max(1, len(several) // proposals)]
    raw = organiser.owner.numbers
    for number, (_, settings) in enumerate(chosen):
        folder = organiser.owner.folder / f"organiser-{number}"
        if number % 50 == 0:
            owner = Owner(folder / "owner")
        try:
            proposed = merged(
                owner.honest, {"rounds": 2, "training": {"batch": 20}, "schedule": {"deadline": 5}}, settings
            )
            heard = knobs.answers(owner.node, OWNER, proposed, folder)
        except SparsonaError:
            continue
        scaled = raw
        with contextlib.suppress(SparsonaError, IndexError):
            told = decode(heard[0][1], LIMIT)
            known, mean = means(told, 3)
            scaled = (raw - mean) / np.sqrt(unpack_doubles(told, "inputs.squares", 3) / known)
        organiser.found.answered += sum(bool(body) for _, body in heard)
        for head, body in heard:
            organiser.found.texts |= {head, body.decode("latin-1")}
            organiser.found.rows.extend(knobs.rows_in(body, scaled, raw))


ATTACKS: Mapping[str, Callable[[Organiser, int], None]] = {
    "every knob": every_knob,
    "tiny splits": tiny_splits,
    "differences of splits": differences,
    "other columns": other_columns,
    "one-row batches": one_row_batches,
    "one row left out": left_out,
    "changed rounds": changed_rounds,
    "nested batches": nested_batches,
    "changed file": changed_file,
}
REMAINING: Mapping[str, Callable[[Organiser, int], None]] = {"crafted weights": imprinted}


def attacked(
    attack: Callable[[Organiser, int], None], folder: Path, proposals: int, epsilon: float | None = None
) -> tuple[int, int, int]:
    """Rows and names that an attack reads from a fresh owner, and the answers that it got."""
    owner = Owner(folder, epsilon=epsilon)
    organiser = Organiser(owner)
    attack(organiser, proposals)
    return *owner.found(organiser.found), organiser.found.answered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proposals", type=int, default=400, help="proposals of the attacks by seeds")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(f"{'attack':<24}{'rows of ' + str(ROWS):>14}{'rare texts':>12}{'answers':>10}")
    cases = [(name, attack, None) for name, attack in (*ATTACKS.items(), *REMAINING.items())]
    budgeted = [(f"{name}, epsilon 8", attack, 8.0) for name, attack in REMAINING.items()]
    for name, attack, epsilon in [*cases, *budgeted]:
        with tempfile.TemporaryDirectory() as folder:
            rows, texts, answered = attacked(attack, Path(folder), given.proposals, epsilon)
        note = "  (not closed by rules)" if name in REMAINING else ""
        print(f"{name:<24}{rows:>14}{texts:>12}{answered:>10}{note}", flush=True)


if __name__ == "__main__":
    main()
