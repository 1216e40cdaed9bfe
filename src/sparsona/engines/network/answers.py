"""A node's answers: the description of its data, the reply to a turn, and the owner's report at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from sparsona.data.schema.schema import Schema
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.heads import LARGEST, TurnReply, told_ledger
from sparsona.engines.network.own_data import OwnData
from sparsona.engines.network.setup import outputs_of
from sparsona.experiment import Experiment
from sparsona.export.card import ModelCard, layers
from sparsona.export.files import model_bytes
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Outcome, Scores
from sparsona.layout import Layout
from sparsona.method import ClientId
from sparsona.runs.clients import ExpertScore, expert_sentence
from sparsona.training.adapters import TrainedPart
from sparsona.wire import Ledger, encode
from sparsona.words import counted


def description_of(own: OwnData) -> tuple[Head, bytes]:
    """Return the head and the frame that describe a node's data at the start."""
    description, published = own.description(), own.published()
    frame = None if description is None else encode(description)
    head: Head = {
        "model": own.model,
        "sizes": own.sizes,
        "published": None if published is None else published.to_json(),
        "ledger": told_ledger(Ledger() if frame is None else frame.ledger),
    }
    return head, b"" if frame is None else frame.data


Tells: TypeAlias = tuple[tuple[bool, bool], ...]
"""Per metric: True if its scores on test rows and on validation rows may be sent."""


def may_tell(setup: Setup, client: ClientId, least: int) -> Tells:
    """Return which scores of a client may be sent: those of at least `least` rows.

    A metric that is computed per class needs at least `least` rows of every class that occurs.
    """
    split, targets = setup.federation.splits[client], setup.federation.data.targets
    parts = split.test, split.validation
    whole = tuple(len(part) >= least for part in parts)
    each = tuple(all((targets[p] == label).sum() >= least for label in np.unique(targets[p])) for p in parts)
    by_class = [one.by_class for one in setup.objective.metrics] or [False]
    return tuple((whole[0] and each[0], whole[1] and each[1]) if own else (whole[0], whole[1]) for own in by_class)


def reply_to_turn(outcome: Outcome, scores: bool, tells: Tells) -> Head:
    """Return the head of the reply to a turn; its body is the frame."""
    told = {
        point: tuple(
            _or_none(value) if allowed else None
            for pair, may in zip(((s.test, s.validation), *s.others.values()), tells, strict=True)
            for value, allowed in zip(pair, may, strict=True)
        )
        for point, s in outcome.scores.items()
    }
    done = TurnReply(
        ledger=told_ledger(outcome.frame.ledger),
        paper=outcome.paper,
        scores=told if scores else {},
        loss=_or_none(outcome.loss) if scores else None,
        seconds=outcome.seconds,
        flops=int(outcome.flops),
        samples=float(outcome.samples),
    )
    return done.head


def _or_none(value: float) -> float | None:
    return float(value) if abs(value) <= LARGEST else None  # excludes NaN, too


def kinds_of_bytes(outcome: Outcome) -> dict[str, float]:
    ledger = outcome.frame.ledger
    kinds = {"header": ledger.header, "positions": ledger.positions, "values": ledger.values}
    return {kind: count for kind, count in kinds.items() if count}


def model_file(
    client: ClientId, data: str, experiment: Experiment, setup: Setup, schema: Schema, outcome: Outcome
) -> bytes:
    """The client's own model as a file, with a card that says what it was trained on."""
    assert outcome.model is not None
    numbers, chain = outputs_of(schema), layers(setup.module)
    card = ModelCard(
        client,
        experiment.method,
        data,
        experiment.model,
        numbers,
        schema,
        chain,
        outcome.threshold,
        setup.objective.positive,
        TrainedPart(experiment.trainable, experiment.lora, experiment.base),
    )
    own = np.zeros(0, np.float32) if outcome.buffers is None else outcome.buffers
    return model_bytes(outcome.model, setup.task.layout, card, Layout.of_buffers(setup.module).named(own))


def report_of(
    client: ClientId,
    experiment: Experiment,
    setup: Setup,
    scores: Mapping[str, Scores],
    file: Path,
    experts: tuple[ExpertScore, ...] = (),
) -> str:
    first = setup.objective.metric_name
    rows = len(setup.federation.splits[client].test)
    pool = [expert_sentence(experts, scores["pre"].test, first, rows)] if experts and "pre" in scores else []
    measured = [
        (metric, point, value)
        for point, found in scores.items()
        for metric, value in ((first, found.test), *((name, test) for name, (test, _) in found.others.items()))
    ]
    lines = [
        f"{client}: {experiment.method}, {counted(experiment.rounds, 'round')}, {time.strftime('%Y-%m-%d %H:%M')}",
        f"model: {file.name}, {setup.task.layout.size} weights ({experiment.model})",
        *(f"{metric} ({point}) on this client's own test rows: {value:.4f}" for metric, point, value in measured),
        *(f"pool: {line}" for line in pool),
    ]
    return "\n".join(lines) + "\n"
