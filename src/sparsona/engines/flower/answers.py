"""What a node tells: of its data at the start, of each turn, and in its owner's report at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from sparsona.engines.flower.heads import LARGEST, TurnReply, told_ledger
from sparsona.engines.flower.owned import OwnData
from sparsona.engines.flower.started.sparsona_records import Head
from sparsona.experiment import Experiment
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Outcome
from sparsona.method import ClientId
from sparsona.wire import Ledger, encode
from sparsona.words import counted


def description_of(own: OwnData) -> tuple[Head, bytes]:
    """What a node tells of its data at the start."""
    description, published = own.description(), own.published()
    frame = None if description is None else encode(description)
    head: Head = {
        "model": own.model,
        "sizes": own.sizes,
        "published": None if published is None else published.to_json(),
        "ledger": told_ledger(Ledger() if frame is None else frame.ledger),
    }
    return head, b"" if frame is None else frame.data


def reply_to_turn(outcome: Outcome, scores: bool, tells: tuple[bool, bool]) -> Head:
    """What a node tells of a turn besides the frame."""
    test, validation = tells
    told = {
        point: (_or_none(s.test) if test else None, _or_none(s.validation) if validation else None)
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
    return float(value) if abs(value) <= LARGEST else None  # NaN is not, either


def kinds_of_bytes(outcome: Outcome) -> dict[str, float]:
    ledger = outcome.frame.ledger
    kinds = {"header": ledger.header, "positions": ledger.positions, "values": ledger.values}
    return {kind: count for kind, count in kinds.items() if count}


def report_of(client: ClientId, experiment: Experiment, setup: Setup, scores: Mapping[str, float], file: Path) -> str:
    metric = setup.objective.metric_name
    lines = [
        f"{client}: {experiment.method}, {counted(experiment.rounds, 'round')}, {time.strftime('%Y-%m-%d %H:%M')}",
        f"model: {file.name}, {setup.task.layout.size} weights ({experiment.model})",
        *(f"{metric} ({point}) on this client's own test rows: {value:.4f}" for point, value in scores.items()),
    ]
    return "\n".join(lines) + "\n"
