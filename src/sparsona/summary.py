"""The summary of a finished run, the same whichever engine ran it."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sparsona.data.schema.exchange import Agreement
from sparsona.experiment import Experiment
from sparsona.federation.rounds import Rounds
from sparsona.federation.setup import Setup
from sparsona.method import ClientId
from sparsona.metrics import Answers, Metric, known
from sparsona.metrics._resampling import bootstrap
from sparsona.runs.about import RateSearch, environment
from sparsona.runs.answers import together
from sparsona.runs.clients import ClientScores, ExpertScore, Score, scored
from sparsona.runs.records import RunLog
from sparsona.runs.scores import POINTS, summarise
from sparsona.runs.state import digest
from sparsona.training.objective import constant_answers
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
    answers: Mapping[ClientId, Answers] | None = None,
    search: RateSearch | None = None,
) -> dict[str, Any]:
    """Return the content of summary.json. `whole` is the digest of the run, `agreed` the agreement of its owners before
    round 1.

    `answers` are those of the clients' models for their test rows, where the engine has them. `search` is how the
    learning rate was chosen: its bytes and seconds are in the totals, like those of the agreement.
    """
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
        **({"base": experiment.base} if experiment.base else {}),
        "clients": len(setup.task.clients),
        "partition": experiment.partition,
        "rounds": rounds.done,
        "seed": experiment.seed,
        "metric": setup.objective.metric_name,
        "metrics": list(setup.objective.metric_names),
        **_scores(setup.objective.metric_names, run_log),
        "validation": {point: score for point in POINTS if (score := run_log.validated(point)) is not None},
        "picked": {p: {"round": r.round, **r.scores[p]} for p in POINTS if (r := run_log.picked(p)) is not None},
        "loss": run_log.losses.told(),
        "bytes": {
            "up": up.total + (search.up if search else 0),
            "down": down.total + (search.down if search else 0),
            **({"search": {"up": search.up, "down": search.down}} if search else {}),
            "agreement": {"up": agreed.up.total, "down": agreed.down.total},
            "parts": {"up": _parts(up), "down": _parts(down)},
        },
        "paper_bytes": {way: sum(getattr(r, f"paper_{way}") for r in run_log.rounds) for way in ("up", "down")},
        "flops": sum(r.flops for r in run_log.rounds),
        "simulated_seconds": round(rounds.clock, 3),
        "seconds": round(rounds.seconds + (search.seconds if search else 0.0), 3),
        **({"rate": asdict(search)} if search else {}),
        "peak_rss_mb": round(peak_rss_mb, 1),
        "environment": environment(),
        "digest": whole,
    }
    small = [one.client for one in clients if one.test < experiment.split.fewest]
    if small:
        summary["too_few_test_rows"] = {"fewest": experiment.split.fewest, "clients": small}
    if run_log.refused:
        summary["refused"] = dict(sorted(run_log.refused.items()))
    if setup.privacy is not None:
        summary["privacy"] = _privacy(setup, rounds)
    _add_pooled(summary, setup, run_log, answers or {})
    if (constant := _constant(setup, experiment.split.fewest)) is not None:
        summary["constant"] = constant
    if undefined := _undefined(setup.objective.metric_names, clients):
        summary["undefined"] = undefined
    return summary


def unfinished_summary(experiment: Experiment, metric: str, run_log: RunLog) -> dict[str, Any]:
    """Return the summary of an unfinished run: its rounds so far, without a digest."""
    return {
        "finished": False,
        "method": experiment.method,
        "data": experiment.data,
        "rounds": len(run_log.rounds),
        "seed": experiment.seed,
        "metric": metric,
        "metrics": [metric],
        **_scores([metric], run_log),
        "validation": {point: score for point in POINTS if (score := run_log.validated(point)) is not None},
        "bytes": {way: sum(getattr(report, way).total for report in run_log.rounds) for way in ("up", "down")},
        "flops": sum(report.flops for report in run_log.rounds),
    }


def _privacy(setup: Setup, rounds: Rounds) -> dict[str, Any]:
    """Return each client's spent epsilon, including the use of its last model; `largest` is the maximum."""
    spent = {}
    for client, one in sorted((setup.privacy or {}).items()):
        queries = min(one.most, (rounds.engine.store.get(client).queries or 0) + one.use)
        spent[client] = round(one.epsilon(queries), 4)
    deltas = {mechanism.delta for mechanism in (setup.privacy or {}).values()}
    return {"largest": max(spent.values()), "delta": max(deltas), "epsilon": spent}


def _scores(metrics: Sequence[str], run_log: RunLog) -> dict[str, Any]:
    named = {metric: metric if number else None for number, metric in enumerate(metrics)}
    return {
        metric: {point: found for point in POINTS if (found := run_log.kept(point, other))}
        for metric, other in named.items()
    }


def _constant(setup: Setup, fewest: int) -> dict[str, float | None] | None:
    """Return the score of the constant answer by the deciding metric; None if the engine lacks the rows."""
    objective, data = setup.objective, setup.federation.data
    one = _metric_of(objective.metric_name, objective.metrics)
    if one is None or objective.task is None or not len(data):
        return None
    scores = {}
    for client in setup.task.clients:
        split = setup.federation.splits[client]
        if len(split.test) >= fewest:
            said = constant_answers(objective, data.targets, split.train, split.test, data.classes)
            scores[client] = one.value(said)
    return summarise(scores, setup.test_rows, objective.higher_is_better)


def _add_pooled(summary: dict[str, Any], setup: Setup, run_log: RunLog, answers: Mapping[ClientId, Answers]) -> None:
    """Add the score over the test rows of all clients together, `pooled`, at `pre`.

    Without the rows it is known for metrics that are means over rows alone.
    """
    first, *_ = names = setup.objective.metric_names
    whole = together(answers) if answers.keys() == set(setup.task.clients) else None
    sizes = setup.test_rows
    for metric in names:
        one = _metric_of(metric, setup.objective.metrics)
        found = run_log.scores if metric == first else run_log.others.get(metric, {})
        scores = {client: points["pre"] for client, points in found.items() if "pre" in points}
        rows = sum(sizes[client] for client in scores)
        pooled = math.nan
        if one is not None and whole is not None:
            pooled = one.value(whole)
        elif one is not None and one.additive and rows:
            pooled = sum(score * sizes[client] for client, score in scores.items() if sizes[client]) / rows
        if "pre" in summary[metric]:
            summary[metric]["pre"] = {**summary[metric]["pre"], "pooled": None if math.isnan(pooled) else pooled}


def _undefined(metrics: Sequence[str], clients: Sequence[ClientScores]) -> dict[str, Any]:
    """Return, per metric, the clients that have enough test rows but no score, and the reason."""
    found = {}
    for number, metric in enumerate(metrics):
        scores = {one.client: (one.others.get(metric, {}) if number else one.scores).get("pre") for one in clients}
        without = [client for client, score in scores.items() if score is not None and math.isnan(score.value)]
        one = known(metric)
        if without:
            found[metric] = {"clients": without, "reason": one.undefined if one else "its metric gives no number"}
    return found


def whole_digest(server: Any, clients: Mapping[ClientId, str], base: str = "") -> str:
    """sha256 over the server's state, those of all clients, of which the digests are given, and the base's hash."""
    whole = hashlib.sha256(digest(server).encode())
    if base:
        whole.update(f"\nbase {base}".encode())
    for client, value in sorted(clients.items()):
        whole.update(f"\n{client} {value}".encode())
    return whole.hexdigest()


def client_scores(
    setup: Setup,
    run_log: RunLog,
    fewest: int,
    answers: Mapping[ClientId, Answers] | None = None,
    experts: Mapping[ClientId, tuple[ExpertScore, ...]] | None = None,
) -> tuple[ClientScores, ...]:
    """Every client's rows and its last scores; no score where it has fewer than `fewest` test rows.

    An accuracy has Wilson's interval, and so have the shares of positive and negative cases that two classes' models
    find, with `answers`. Another score at `pre` has that of a bootstrap.
    `experts` are those of the clients' pools.
    """
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
        for metric, points in by_metric.items():
            one = _metric_of(metric, setup.objective.metrics)
            if "pre" in points and metric != "accuracy" and one is not None and client in (answers or {}):
                own = (answers or {})[client]
                cases = _cases(metric, own)
                if cases:
                    points["pre"] = scored(points["pre"].value, cases, True)
                elif not math.isnan(points["pre"].value):
                    rng = setup.task.chance.rng("bootstrap", client=client)
                    points["pre"] = Score(points["pre"].value, *bootstrap(one, own, rng))
        scores = by_metric.pop(first, {})
        sizes = len(split.train), len(split.validation), rows
        out.append(ClientScores(client, *sizes, scores, by_metric, (experts or {}).get(client, ())))
    return tuple(out)


def _cases(metric: str, answers: Answers) -> int:
    """Return the number of rows of which a metric is the share; 0 if it is no share."""
    if metric not in ("sensitivity", "specificity") or answers.probabilities.shape[1] != 2:
        return 0
    return int(((answers.targets == answers.positive) == (metric == "sensitivity")).sum())


def _metric_of(name: str, measured: Sequence[Metric]) -> Metric | None:
    """The metric of a name: one of those that are measured, or a registered one."""
    return next((one for one in measured if one.name == name), known(name))


def _parts(ledger: Ledger) -> dict[str, float]:
    return {kind: value for kind, value in asdict(ledger).items() if value}
