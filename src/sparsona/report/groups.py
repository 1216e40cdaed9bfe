"""Runs that differ in nothing but their seeds are one method in a report, under one label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparsona.errors import InputError
from sparsona.experiment import flatten
from sparsona.report.command import MACHINE
from sparsona.report.measured import MeasuredRun


def group_runs(runs: Sequence[MeasuredRun]) -> dict[str, list[MeasuredRun]]:
    """The runs by label: the method's name, with the settings that tell it from others of the same name."""
    first = runs[0]
    for run in runs:
        for what, one, other in (
            ("data set", first.settings["data"], run.settings["data"]),
            ("metric", first.about.metric, run.about.metric),
        ):
            if one != other:
                raise InputError(f"{first.path} and {run.path} differ in their {what}: report them apart")
    groups: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        groups.setdefault(repr(sorted(_work(run.settings).items())), []).append(run)
    settings = [_work(group[0].settings) for group in groups.values()]
    labels = [_label(own, settings) for own in settings]
    return {
        label if labels.count(label) == 1 else f"{label} ({group[0].path.name})": sorted(group, key=lambda r: r.seed)
        for label, group in zip(labels, groups.values(), strict=True)
    }


def _work(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that decide what is computed, apart from chance."""
    return {key: value for key, value in flatten(settings).items() if key not in (*MACHINE, "seed")}


def _label(own: Mapping[str, Any], among: Sequence[Mapping[str, Any]]) -> str:
    """The method, and where it is there several times, in what it differs from the others of its name.

    >>> one, other = {"method": "fedprox", "options.mu": 0.1}, {"method": "fedprox", "options.mu": 0.5}
    >>> _label(one, [one, other]), _label(one, [one])
    ('fedprox:mu=0.1', 'fedprox')
    """
    alike = [settings for settings in among if settings["method"] == own["method"]]
    keys = sorted({key for one in alike for key in one if any(one.get(key) != other.get(key) for other in alike)})
    told = [f"{key.rpartition('.')[2]}={own[key]}" for key in keys if key in own]
    return f"{own['method']}:{','.join(told)}" if told else str(own["method"])
