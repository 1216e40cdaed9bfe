"""The data of a report's page: all drawings are computed here, not in the browser."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from shlex import quote
from typing import Any

import numpy as np

from sparsona.data.doubts import listed
from sparsona.method import ClientId
from sparsona.metrics._named import in_percent
from sparsona.registry import GIVEN
from sparsona.report import artefacts
from sparsona.report.answered import drawn_answers
from sparsona.report.command import run_command
from sparsona.report.comparison import LOCAL, Comparison, ComparisonRow, compare, gains, group_runs, key_of
from sparsona.report.measured import MeasuredRun, Measurement, bottom_decile, mean_score, same_clients
from sparsona.report.statistics import Interval
from sparsona.report.words import Answer, answer, chosen_rates, constant_advice, no_better_than_constant, runaway
from sparsona.runs.budget import Budget
from sparsona.wire import Ledger
from sparsona.words import counted

ENTRIES = 400
"""Largest number of clients that are listed; if each seed has other clients, the first seeds that fit."""


def page_data(
    runs: Sequence[MeasuredRun], budget: Budget, notes: Sequence[str] = (), raced: int = 0
) -> tuple[dict[str, Any], Answer]:
    """Return everything that the page shows, and its answer in words. `raced`: the number of methods at first."""
    groups = group_runs([run for run in runs if run.measurements or run.diverged])
    found = compare(groups, budget)
    best = found.best.label
    first = groups[best][0]
    entries = _entries(groups)
    settings = first.settings
    others = list(next((row.others for row in found.rows if row.others), ()))
    rates = chosen_rates(groups)
    advice = answer(
        found,
        _all_gains(groups, found, budget),
        len(first.traffic),
        first.rounds,
        (
            run_command(settings, "my-run"),
            f"sparsona export my-run --client {quote(min(first.traffic))} --to model.safetensors",
        ),
        _compare_command(_without_rate(_rival(found, groups), any(row.diverged for row in found.rows))),
        raced,
    )
    data = {
        "title": f"{settings['data']}, {counted(settings['clients'], 'client')}, {settings['partition']}",
        "metric": found.metric,
        "percent": in_percent(found.metric),
        "redrawn": found.redrawn,
        "higher": found.higher_is_better,
        "answer": asdict(advice),
        "alone": found.alone,
        "ways": [row.label for row in found.rows if row.alone],
        "equalBytes": found.equal_bytes,
        "methods": [_method(row, groups[row.label], found) for row in _best_first(found)],
        "entries": entries,
        "clients": sum(len(group[0].about.clients) for group in groups.values()) // len(groups),
        "classNames": list(first.about.class_names),
        "environment": dict(first.about.environment),
        "experiments": {
            label: (group[0].path / "experiment.toml").read_text(encoding="utf-8") for label, group in groups.items()
        },
        "notes": [*notes, *([rates] if rates else [])],
        "otherMetrics": others,
        "percents": [metric for metric in others if in_percent(metric)],
        "warnings": _warnings(runs),
    }
    return data, advice


def _warnings(runs: Sequence[MeasuredRun]) -> list[str]:
    """Return the diverged runs, the methods near a constant answer, and the doubts about tables, each line once."""
    diverged = [f"{run.path.name}: {told}" for run in runs if (told := run.diverged or runaway(run.loss))]
    near = [run for run in runs if _near_constant(run)]
    names = ", ".join(dict.fromkeys(run.method for run in near))
    advice = [f"{names}: no better than a constant answer; {constant_advice(near[0].about.metric)}"] if near else []
    return diverged + advice + listed(dict.fromkeys(line for run in runs for line in run.about.doubts))


def _near_constant(run: MeasuredRun) -> bool:
    return run.method != "naive" and bool(run.summary) and bool(no_better_than_constant(run.summary))


def _compare_command(settings: Mapping[str, Any]) -> str:
    """Return the command that adds a rival: a comparison, or for data in Python a run of training alone."""
    if GIVEN in (settings["data"], settings["model"]):
        return run_command({**settings, "method": LOCAL, "options": {}}, LOCAL)
    return run_command(settings).replace("sparsona run", "sparsona compare", 1)


def _rival(found: Comparison, groups: Mapping[str, Sequence[MeasuredRun]]) -> MeasuredRun:
    """Return the run to compare with training alone: the best federated method, or one that has diverged."""
    joined = found.best_joined or next((row for row in found.rows if not row.alone), found.best)
    return groups[joined.label][0]


def _without_rate(run: MeasuredRun, wild: bool) -> Mapping[str, Any]:
    """Return the settings without a learning rate that the run has chosen, or that was too high (`wild`)."""
    training = {key: value for key, value in run.settings.get("training", {}).items() if key != "lr"}
    return run.settings if run.about.rate is None and not wild else {**run.settings, "training": training}


def _number(value: float | None) -> float | None:
    """Return the value with six digits; None for NaN, which JSON lacks."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [_number(value) for value in values]


def _interval(found: Interval | None) -> dict[str, float | None] | None:
    return None if found is None else {"mean": _number(found.mean), "half": _number(found.half)}


def _best_first(found: Comparison) -> list[ComparisonRow]:
    sign = -1 if found.higher_is_better else 1
    return sorted(found.rows, key=lambda row: sign * row.pre.mean if row.pre else math.inf)


def _method(row: ComparisonRow, group: Sequence[MeasuredRun], found: Comparison) -> dict[str, Any]:
    intervals = {name: _interval(getattr(row, name)) for name in ("pre", "post", "gain", "validation", "at_equal")}
    plain = ("decile", "worse_off", "up", "down", "flops", "simulated", "seconds")
    first = group[0]
    graphs, heats = artefacts.json_artefacts(first.path)
    overlap = artefacts.mask_overlap(first.path, list(first.traffic)) if first.finished else None
    tree = artefacts.gate_tree(first.path, list(first.traffic)) if first.finished else None
    return {
        "label": row.label,
        "seeds": [run.seed for run in group],
        **intervals,
        **{name: _number(getattr(row, name)) for name in plain},
        "better_off": _number(row.better_off),
        "verdicts": {f"{one.client} {'' if one.seed is None else one.seed}": one.text() for one in row.verdicts},
        "others": {metric: _interval(one) for metric, one in row.others.items()},
        "curves": {
            point: _curve(() if row.diverged else group, point, found.higher_is_better) for point in ("pre", "post")
        },
        "ledger": {way: _ledger([getattr(run, way) for run in group]) for way in ("up", "down")},
        "graphs": [asdict(graph) for graph in graphs],
        "heats": [_heat(heat) for heat in heats],
        "masks": None if overlap is None else _heat(overlap),
        "answers": drawn_answers(first),
        "gates": None if tree is None else {**asdict(tree), "y": [_numbers(joint) for joint in tree.y]},
        "privacy": _privacy(group),
        "state": row.state,
        "finished": all(run.finished for run in group) or bool(row.diverged),
        "rounds": max(run.rounds for run in group),
    }


def _privacy(group: Sequence[MeasuredRun]) -> dict[str, Any] | None:
    """Return the epsilon that each client has spent, the largest over the seeds; None without a privacy budget."""
    found = [run.summary["privacy"] for run in group if "privacy" in run.summary]
    if not found or len(found) < len(group):
        return None
    clients = sorted({client for one in found for client in one["epsilon"]}, key=_natural)
    return {
        "method": group[0].method,
        "largest": _number(max(one["largest"] for one in found)),
        "delta": max(one["delta"] for one in found),
        "clients": {c: _number(max(one["epsilon"].get(c, 0.0) for one in found)) for c in clients[:ENTRIES]},
    }


def _heat(heat: artefacts.HeatMap) -> dict[str, Any]:
    values = [[None if math.isnan(v) else round(float(v), 3) for v in row] for row in heat.values]
    return {"name": heat.name, "part": heat.part, "clients": list(heat.clients), "values": values}


def _ledger(found: Sequence[Ledger]) -> dict[str, float]:
    """Return the bytes by kind, the mean over the seeds."""
    return {kind: _mean([getattr(one, kind) for one in found]) for kind in ("header", "positions", "values")}


def _curve(group: Sequence[MeasuredRun], point: str, higher: bool) -> dict[str, Any]:
    """Return the mean, lowest and highest score over the seeds per evaluation, with the mean costs."""
    by_round: dict[int, list[Measurement]] = {}
    for run in group:
        for measured in run.measurements:
            if measured.test[point]:
                by_round.setdefault(measured.round, []).append(measured)
    whole = {number: own for number, own in sorted(by_round.items()) if len(own) == len(group)}
    scores = [[mean_score(m.test[point]) for m in own] for own in whole.values()]
    return {
        "round": list(whole),
        "mb": _numbers(_mean([m.bytes for m in own]) / 1e6 for own in whole.values()),
        "seconds": _numbers(_mean([m.seconds for m in own]) for own in whole.values()),
        "mean": _numbers(_mean(own) for own in scores),
        "low": _numbers(min(own) for own in scores),
        "high": _numbers(max(own) for own in scores),
        "decile": _numbers(_mean([bottom_decile(m.test[point], higher) for m in own]) for own in whole.values()),
    }


def _all_gains(groups: Mapping[str, Sequence[MeasuredRun]], found: Comparison, budget: Budget) -> list[float]:
    """Return every client's gain of the best row over the best baseline alone, over all seeds."""
    alone = {key_of(run): run for run in groups.get(found.alone, ())}
    out: list[float] = []
    for run in groups[found.best.label]:
        rival = alone.get(key_of(run))
        mine, theirs = run.last(budget), rival.last(budget) if rival else None
        if mine is not None and theirs is not None:
            out += gains(mine.test["pre"], theirs.test["pre"], found.higher_is_better).values()
    return out


def _entries(groups: Mapping[str, Sequence[MeasuredRun]]) -> list[dict[str, Any]]:
    """Return the clients one by one: samples, classes, and the score with each method.

    If a seed partitions the data anew, its clients are new. If the data come with owners, all seeds have the same
    clients, and scores are means over the seeds (`seed` is None).
    """
    runs = sorted((run for group in groups.values() for run in group), key=lambda run: bool(run.diverged))
    worlds: dict[int, MeasuredRun] = {}
    for run in runs:
        worlds.setdefault(run.seed, run)
    same = same_clients([*worlds.values()])
    out: list[dict[str, Any]] = []
    for seed, world in sorted(worlds.items())[: 1 if same else None]:
        names = sorted(world.traffic, key=_natural)
        if out and len(out) + len(names) > ENTRIES:
            break
        for client in names[:ENTRIES]:
            about = world.about.clients[client]
            out.append(
                {
                    "id": client,
                    "seed": None if same else seed,
                    "train": about.train,
                    "test": about.test,
                    "classes": list(about.classes),
                    "scores": {
                        label: _score([run for run in group if same or run.seed == seed], client)
                        for label, group in groups.items()
                    },
                }
            )
    return out


def _score(runs: Sequence[MeasuredRun], client: ClientId) -> float | None:
    """Return the client's last score at `pre`, the mean over the runs; None if one of them has diverged."""
    if any(run.diverged for run in runs):
        return None
    found = [run.measurements[-1].test["pre"].get(client, math.nan) for run in runs]
    known = [value for value in found if math.isfinite(value)]
    return _number(sum(known) / len(known)) if known else None


def _natural(name: str) -> tuple[str, int, str]:
    """Return a sort key that puts c2 before c10."""
    digits = "".join(ch for ch in name if ch.isdigit())
    return name.rstrip("0123456789"), int(digits) if digits else -1, name
