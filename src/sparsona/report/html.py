"""A report as one HTML file that needs no network: page, style, drawing library and numbers in one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from sparsona.errors import InputError, RunError
from sparsona.files import write_named
from sparsona.report.measured import find_runs, measure
from sparsona.report.page import page_data
from sparsona.report.words import Answer
from sparsona.runs.budget import Budget
from sparsona.version import __version__


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


MARK = b"<title>Sparsona report</title>"
"""Bytes that every report contains, by which it is recognised."""


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
