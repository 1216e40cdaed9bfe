"""Tables for papers in LaTeX with booktabs: methods in rows, studies in columns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsona.files import write_atomically
from sparsona.report.compared import score, unit, with_half
from sparsona.report.comparison import Comparison, ComparisonRow
from sparsona.report.statistics import Interval, interval

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\^{}", "\\": r"\textbackslash{}"}


def escaped(text: str) -> str:
    """Return the text with LaTeX's special characters escaped.

    >>> print(escaped("fedprox:mu_1=50%"))
    fedprox:mu\\_1=50\\%
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def latex_table(
    columns: Mapping[str, Comparison], notes: Mapping[str, Mapping[str, str]] | None = None, point: str = "pre"
) -> str:
    """Return a tabular with a column of scores and one of MB per comparison; the best score of each is bold.

    A cell is the mean over seeds and half its 95 % interval. `notes` stand behind a score: by column and label.
    """
    labels = list(dict.fromkeys(row.label for found in columns.values() for row in found.rows))
    first = next(iter(columns.values()))
    wide = len(columns) > 1
    head = [r"\multicolumn{2}{c}{" + escaped(name) + "}" for name in columns]
    rules = " ".join(rf"\cmidrule(lr){{{2 + 2 * k}-{3 + 2 * k}}}" for k in range(len(columns)))
    above = [" & ".join(["", *head]) + r" \\", rules] if wide else []
    rows = []
    for label in labels:
        cells = [escaped(label)]
        for name, found in columns.items():
            row = next((one for one in found.rows if one.label == label), None)
            cells += _cells(row, found, point, (notes or {}).get(name, {}).get(label, ""))
        rows.append(cells)
    daggers = any(note for own in (notes or {}).values() for note in own.values())
    meaning = "; intervals: 95 % over seeds" + ("; a dagger: Holm's p < 0.05 against the best" if daggers else "")
    return _tabular(["method", *[escaped(unit(first.metric)), "MB"] * len(columns)], rows, above, meaning)


def _tabular(head: Sequence[str], rows: Sequence[Sequence[str]], above: Sequence[str] = (), meaning: str = "") -> str:
    needs = r"% needs \usepackage{booktabs}" + meaning
    begin = [needs, rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", *above]
    first, *lines = (" & ".join(cells) + r" \\" for cells in (head, *rows))
    return "\n".join([*begin, first, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def run_table(summary: Mapping[str, Any], scores: Mapping[str, Mapping[str, float]]) -> str:
    """Return a tabular of one run: at each point the mean over clients and half its 95 % interval, and MB."""
    metric = summary["metric"]
    found = {p: interval([own[p] for own in scores.values() if p in own]) for p in ("pre", "post")}
    shown = {p: with_half(one, metric).replace("±", r" \pm ") for p, one in found.items() if one is not None}
    mb = (summary["bytes"]["up"] + summary["bytes"]["down"]) / 1e6
    cells = [escaped(summary["method"]), *(f"${text}$" for text in shown.values()), f"{mb:.2f}"]
    head = ["method", *(f"{escaped(unit(metric))}, {p}" for p in shown), "MB"]
    return _tabular(head, [cells])


def _cells(row: ComparisonRow | None, found: Comparison, point: str, note: str) -> list[str]:
    value = None if row is None else _interval(row, point)
    if row is None or value is None:
        return ["--", "--"]
    means = [one.mean for other in found.rows if (one := _interval(other, point)) is not None]
    best = value.mean == (max(means) if found.higher_is_better else min(means))
    half = "" if value.half is None else rf" \pm {score(value.half, found.metric)}"
    shown = f"{score(value.mean, found.metric)}{half}"
    shown = rf"$\mathbf{{{shown}}}$" if best else f"${shown}$"
    return [shown + note, f"{row.bytes / 1e6:.2f}"]


def _interval(row: ComparisonRow, point: str) -> Interval | None:
    return row.post if point == "post" else row.pre


def write_latex(text: str, path: str | Path | None) -> str:
    """Write the table to a file, if one is named; return the table."""
    if path is not None:
        write_atomically(Path(path), text)
    return text
