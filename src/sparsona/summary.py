"""The summary of a finished run, the same whichever engine ran it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sparsona.data.schema import Agreement
from sparsona.experiment import Experiment
from sparsona.federation.rounds import Rounds
from sparsona.federation.setup import Setup
from sparsona.method import ClientId
from sparsona.metrics._named import known
from sparsona.runs.about import environment
from sparsona.runs.clients import ClientScores, scored
from sparsona.runs.records import RunLog
from sparsona.runs.scores import POINTS
from sparsona.runs.state import digest
from sparsona.version import __version__
from sparsona.wire import Ledger


def summary_of(
    experiment: Experiment,
    setup: Setup,
    rounds: Rounds,
    agreed: Agreement,
    clients: Sequence[ClientScores],
    whole: str,
    peak_rss_mb: float,
) -> dict[str, Any]:
    """What summary.json holds. `whole` is the digest of the run, `agreed` what its owners agreed on before round 1."""
    run_log = rounds.run_log
    up = sum((report.up for report in run_log.rounds), agreed.up)
    down = sum((report.down for report in run_log.rounds), agreed.down)
    summary: dict[str, Any] = {
        "sparsona": __version__,
        "method": experiment.method,
        "options": experiment.options,
        "data": experiment.data,
        "model": experiment.model,
        "weights": setup.task.layout.size,
        "clients": len(setup.task.clients),
        "partition": experiment.partition,
        "rounds": rounds.done,
        "seed": experiment.seed,
        "metric": setup.objective.metric_name,
        "metrics": list(setup.objective.metric_names),
        **_scores(setup.objective.metric_names, run_log),
        "picked": _picked(run_log),
        "loss": run_log.losses.told(),
        "bytes": {
            "up": up.total,
            "down": down.total,
            "agreement": {"up": agreed.up.total, "down": agreed.down.total},
            "parts": {"up": _parts(up), "down": _parts(down)},
        },
        "paper_bytes": {
            "up": sum(r.paper_up for r in run_log.rounds),
            "down": sum(r.paper_down for r in run_log.rounds),
        },
        "flops": sum(r.flops for r in run_log.rounds),
        "simulated_seconds": round(rounds.clock, 3),
        "seconds": round(rounds.seconds, 3),
        "peak_rss_mb": round(peak_rss_mb, 1),
        "environment": environment(),
        "digest": whole,
    }
    small = [one.client for one in clients if one.test < experiment.split.fewest]
    if small:
        summary["too_few_test_rows"] = {"fewest": experiment.split.fewest, "clients": small}
    if undefined := _undefined(setup.objective.metric_names, clients):
        summary["undefined"] = undefined
    return summary


def _scores(metrics: Sequence[str], run_log: RunLog) -> dict[str, Any]:
    """The scores at each point of the models that clients keep, by every metric."""
    named = {metric: metric if number else None for number, metric in enumerate(metrics)}
    return {
        metric: {point: found for point in POINTS if (found := run_log.kept(point, other))}
        for metric, other in named.items()
    }


def _undefined(metrics: Sequence[str], clients: Sequence[ClientScores]) -> dict[str, Any]:
    """By metric, the clients that have enough test rows and yet no score, and why."""
    found = {}
    for number, metric in enumerate(metrics):
        scores = {one.client: (one.others.get(metric, {}) if number else one.scores).get("pre") for one in clients}
        without = [client for client, score in scores.items() if score is not None and math.isnan(score.value)]
        one = known(metric)
        if without:
            found[metric] = {"clients": without, "reason": one.undefined if one else "its metric gives no number"}
    return found


def whole_digest(server: Any, clients: Mapping[ClientId, str]) -> str:
    """sha256 over the server's state and those of all clients, of which the digests are given."""
    whole = hashlib.sha256(digest(server).encode())
    for client, value in sorted(clients.items()):
        whole.update(f"\n{client} {value}".encode())
    return whole.hexdigest()


def client_scores(setup: Setup, run_log: RunLog, fewest: int) -> tuple[ClientScores, ...]:
    """Every client's rows and its last scores; no score where it has fewer than `fewest` test rows."""
    first, *_ = setup.objective.metric_names
    out = []
    for client in setup.task.clients:
        split = setup.federation.splits[client]
        rows = len(split.test)
        found = {first: run_log.scores, **run_log.others} if rows >= fewest else {}
        by_metric = {
            metric: {point: scored(value, rows, metric == "accuracy") for point, value in of.get(client, {}).items()}
            for metric, of in found.items()
        }
        scores = by_metric.pop(first, {})
        out.append(ClientScores(client, len(split.train), len(split.validation), rows, scores, by_metric))
    return tuple(out)


def _parts(ledger: Ledger) -> dict[str, float]:
    return {kind: value for kind, value in asdict(ledger).items() if value}


def _picked(run_log: RunLog) -> dict[str, Any]:
    picks = {point: run_log.picked(point) for point in POINTS}
    return {p: {"round": r.round, **r.scores[p]} for p, r in picks.items() if r is not None}
