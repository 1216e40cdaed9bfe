"""A report as one HTML file that needs no network: page, style, drawing library and numbers in one.

All drawings are computed here, not in the browser.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from sparsona.data.doubts import listed
from sparsona.errors import InputError, RunError
from sparsona.files import write_named
from sparsona.method import ClientId
from sparsona.metrics import in_percent
from sparsona.registry import GIVEN
from sparsona.report.artefacts import drawn_answers, drawn_findings
from sparsona.report.command import compare_command, run_command
from sparsona.report.comparison import LOCAL, Comparison, ComparisonRow, compare, group_runs
from sparsona.report.measured import (
    MeasuredRun,
    Measurement,
    bottom_decile,
    find_runs,
    mean_score,
    measure,
    same_clients,
)
from sparsona.report.statistics import Interval
from sparsona.report.words import Answer, answer, chosen_rates, constant_advice, no_better_than_constant, runaway
from sparsona.runs.budget import Budget
from sparsona.version import __version__
from sparsona.words import counted

KINDS = ("header", "positions", "values")
ENTRIES = 400
"""Largest number of clients that are listed; if each seed has other clients, the first seeds that fit."""
MARK = b"<title>Sparsona report</title>"
"""Bytes that every report contains, by which it is recognised."""


def write_report(
    folders: Sequence[Path], to: Path, budget: Budget | None = None, notes: Sequence[str] = (), raced: int = 0
) -> Answer:
    """Write the report of the runs in `folders`, finished or not; return its answer.

    `notes` stand below the answer and say how the runs came about. `raced` is the number of methods at first; methods
    that left a race are not among the runs.
    """
    if to.suffix not in (".html", ".htm"):
        raise InputError(f"cannot write a report to {to}: give --out a name that ends in .html")
    runs = [measure(folder) for folder in find_runs(folders)]
    if not any(run.measurements for run in runs):
        where = ", ".join(map(str, folders))
        raise RunError(
            f"no run with a measured round is in {where}: give the folders that sparsona run or compare made"
        )
    data, answer = page_data(runs, budget or Budget(), notes, raced)
    write_named(to, render(data), "a report", lambda there: MARK in there)
    return answer


def render(data: dict[str, Any]) -> str:
    """Return the page that shows `data`."""
    page = asset("page.html")
    parts = {
        "TITLE": escape(data["title"]),
        "VERSION": escape(__version__),
        "STYLE": asset("report.css"),
        "DATA": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "LIBRARY": asset("echarts/echarts.min.js").replace("</script", "<\\/script"),
        "SCRIPT": asset("report.js"),
    }
    for name, text in parts.items():
        head, mark, tail = page.partition(f"<!--{name}-->")
        assert mark, f"page.html has no place for {name}"
        page = head + text + tail
    return page


def asset(name: str) -> str:
    """Return the text of a file in report/assets."""
    return (files("sparsona.report") / "assets" / name).read_text(encoding="utf-8")


def page_data(
    runs: Sequence[MeasuredRun], budget: Budget, notes: Sequence[str] = (), raced: int = 0
) -> tuple[dict[str, Any], Answer]:
    """Return everything that the page shows, and its answer in words. `raced`: the number of methods at first."""
    groups = group_runs([run for run in runs if run.measurements or run.diverged])
    found = compare(groups, budget)
    first = groups[found.best.label][0]
    settings, sign = first.settings, -1 if found.higher_is_better else 1
    best_first = sorted(found.rows, key=lambda row: sign * row.pre.mean if row.pre else math.inf)
    others = list(next((row.others for row in found.rows if row.others), ()))
    joined = found.best_joined or next((row for row in found.rows if not row.alone), found.best)
    rates = chosen_rates(groups)
    advice = answer(
        found,
        found.best.gains,
        len(first.traffic),
        first.rounds,
        (
            run_command(settings, "my-run"),
            f"sparsona export my-run --client {quote(min(first.traffic))} --to model.safetensors",
        ),
        _compare_command(groups[joined.label][0], any(row.diverged for row in found.rows)),
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
        "joined": found.best_joined.label if found.best_joined else "",
        "ways": [row.label for row in found.rows if row.alone],
        "equalBytes": found.equal_bytes,
        "methods": [_method(row, groups[row.label], found) for row in best_first],
        "entries": _entries(groups),
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
    """Return the diverged runs, the methods near a constant answer, and the doubts about tables, each once.

    Each seed splits the rows anew, so a doubt may count other rows: the line of the first seed stands for all.
    """
    diverged = [f"{run.path.name}: {told}" for run in runs if (told := run.diverged or runaway(run.loss))]
    near = [run for run in runs if run.method != "naive" and run.summary and no_better_than_constant(run.summary)]
    names = ", ".join(dict.fromkeys(run.method for run in near))
    advice = [f"{names}: no better than a constant answer; {constant_advice(near[0].about.metric)}"] if near else []
    doubts: dict[str, str] = {}
    for line in (line for run in runs for line in run.about.doubts):
        doubts.setdefault(re.sub(r"\d+ (test )?rows", "rows", line), line)
    return diverged + advice + listed(doubts.values())


def _compare_command(run: MeasuredRun, wild: bool) -> str:
    """Return the command that adds training alone, or other methods, to the run: in Python for data given there.

    A learning rate that the run has chosen, or that was too high (`wild`), is left out.
    """
    training = {key: value for key, value in run.settings.get("training", {}).items() if key != "lr"}
    settings = run.settings if run.about.rate is None and not wild else {**run.settings, "training": training}
    if GIVEN in (settings["data"], settings["model"]):
        return run_command({**settings, "method": LOCAL, "options": {}}, LOCAL)
    return compare_command(settings)


def _number(value: float | None) -> float | None:
    """Return the value with six digits; None for NaN, which JSON lacks."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [_number(value) for value in values]


def _interval(found: Interval | None) -> dict[str, float | None] | None:
    return None if found is None else {"mean": _number(found.mean), "half": _number(found.half)}


def _method(row: ComparisonRow, group: Sequence[MeasuredRun], found: Comparison) -> dict[str, Any]:
    intervals = {name: _interval(getattr(row, name)) for name in ("pre", "post", "gain", "validation", "at_equal")}
    plain = ("decile", "worse_off", "up", "down", "flops", "simulated", "seconds")
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
        "ledger": {
            way: {kind: _mean([getattr(getattr(run, way), kind) for run in group]) for kind in KINDS}
            for way in ("up", "down")
        },
        **drawn_findings(group[0]),
        "answers": drawn_answers(group[0]),
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
