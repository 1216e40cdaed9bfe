"""The result of a study: tables, tests between methods, drawings and a report, from the runs' files."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sparsona.errors import InputError
from sparsona.report.compared import with_half
from sparsona.report.comparison import Comparison, gains, key_of
from sparsona.report.comparison import compare as compare_groups
from sparsona.report.curves import Over, draw, marks, mean_marks
from sparsona.report.frames import Frame, frame
from sparsona.report.html import write_report
from sparsona.report.latex import latex_table, write_latex
from sparsona.report.measured import MeasuredRun, mean_score
from sparsona.report.statistics import Interval, holm, paired_p
from sparsona.report.words import Answer
from sparsona.result import Result, load
from sparsona.runs.budget import Budget


@dataclass(frozen=True)
class Study:
    """The runs of a study by label, a method or a setting of one; one run per seed."""

    folder: Path
    groups: Mapping[str, Sequence[MeasuredRun]] = field(repr=False)
    failed: Mapping[str, str] = field(default_factory=dict)
    """Failed labels with reasons."""
    budget: Budget = field(default_factory=Budget)
    title: str = ""
    """Of a comparison: its data, clients, rounds and seeds."""
    candidates: Frame = field(default=None, repr=False)
    """After a choice on validation rows: every setting with its validation score, chosen ones marked."""
    pools: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """For methods with a pool: what each expert adds per client, for the first seed."""
    answer: Answer | None = field(default=None, repr=False)
    """Of a comparison: the sentences with which its report begins."""
    temporary: TemporaryDirectory[str] | None = field(default=None, repr=False)

    @property
    def is_measured(self) -> bool:
        """Return whether any run has a score."""
        return any(run.measurements for group in self.groups.values() for run in group)

    @cached_property
    def comparison(self) -> Comparison:
        """Return scores and costs of each label over its seeds."""
        if not self.is_measured:
            raise InputError(f"no run of {self.folder} was measured: {'; '.join(self.failed.values()) or 'none ended'}")
        return compare_groups(self.groups, self.budget)

    @property
    def frame(self) -> Frame:
        """One row per label: means over clients and seeds, half of their 95 % intervals, and costs of a run."""
        rows = [
            {
                "method": row.label,
                "seeds": row.seeds,
                **_bounds("validation", row.validation),
                **_bounds("pre", row.pre),
                **_bounds("post", row.post),
                **_bounds("gain", row.gain),
                "bottom_decile": row.decile,
                "bytes_up": row.up,
                "bytes_down": row.down,
                "flops": row.flops,
                "seconds": row.seconds,
            }
            for row in self.comparison.rows
        ]
        return frame(rows, "method")

    @property
    def runs(self) -> Frame:
        """One row per run."""
        return frame(list(self._run_rows()))

    def _run_rows(self) -> Iterator[dict[str, Any]]:
        for label, group in self.groups.items():
            for run in group:
                end = run.last(self.budget)
                if end is not None:
                    scores = {p: mean_score(end.test.get(p, {})) for p in ("pre", "post")}
                    yield {
                        "method": label, "seed": run.seed, "run": run.path.name, "rounds": end.round,
                        "validation": mean_score(end.validation["pre"]), **scores, "bytes_up": end.up,
                        "bytes_down": end.down, "flops": end.flops, "simulated_seconds": end.seconds,
                    }  # fmt: skip

    @property
    def p_values(self) -> Frame:
        """One row per pair of labels: by how much the first is better at `pre`, and whether chance may explain it.

        Wilcoxon's signed-rank test, two-sided, on differences that are paired by client and seed; `p_holm` holds the
        chance of any wrong rejection among all pairs. Clients that are the same in all seeds count once.
        """
        rows: list[dict[str, Any]] = []
        for one, other in itertools.combinations(self.groups, 2):
            found = self._differences(one, other)
            mean = sum(found) / len(found) if found else math.nan
            rows.append({"method": one, "other": other, "difference": mean, "pairs": len(found), "p": paired_p(found)})
        corrected = holm([row["p"] for row in rows])
        return frame([{**row, "p_holm": p} for row, p in zip(rows, corrected, strict=True)])

    def _differences(self, one: str, other: str) -> list[float]:
        """Return each client's gain, averaged over seeds if the clients are the same."""
        theirs = {key_of(run): run for run in self.groups[other]}
        found: dict[tuple[str, ...], list[float]] = {}
        for run in self.groups[one]:
            mine, rival = run.last(self.budget), theirs.get(key_of(run))
            end = None if rival is None else rival.last(self.budget)
            if mine is None or end is None:
                continue
            fixed = str(run.settings["partition"]).partition(":")[0] == "groups"
            for client, gain in gains(mine.test["pre"], end.test["pre"], run.about.higher_is_better).items():
                found.setdefault((client,) if fixed else (client, str(run.seed)), []).append(gain)
        return [sum(values) / len(values) for values in found.values()]

    def result(self, label: str, seed: int | None = None) -> Result:
        """Return one run of the study like :func:`sparsona.load`: the first seed unless another is named."""
        if label not in self.groups:
            raise InputError(f"the study has no {label!r}: it has {', '.join(self.groups)}")
        run = next((run for run in self.groups[label] if seed in (None, run.seed)), None)
        if run is None:
            raise InputError(f"{label} has no run of seed {seed}")
        return load(run.path)

    def to_csv(self, path: str | Path) -> None:
        """Write one line per run."""
        self.runs.to_csv(path, **({} if hasattr(self.runs, "rows") else {"index": False}))

    def to_latex(self, path: str | Path | None = None) -> str:
        """Return a table for booktabs: mean and interval of each label, the best in bold; also write it to `path`."""
        return to_latex({self.folder.name: self}, path)

    def curves(self, path: str | Path, over: Sequence[Over] = ("bytes",), seed: int | None = None) -> None:
        """Draw the scores at `pre` over bytes, rounds or simulated seconds; one curve per label.

        A curve is the mean over the seeds at rounds that all of them have measured, or the curve of one `seed`.
        """
        chosen = {label: [run for run in group if seed in (None, run.seed)] for label, group in self.groups.items()}
        found = {label: mean_marks([marks(run.path, "pre") for run in runs]) for label, runs in chosen.items() if runs}
        draw(found, Path(path), "pre", tuple(over), self.comparison.metric)

    def report(self, path: str | Path | None = None) -> Path:
        """Write an HTML report of all runs; into the study's folder unless another place is named."""
        to = self.folder / "report.html" if path is None else Path(path)
        write_report([run.path for group in self.groups.values() for run in group], to, self.budget)
        return to

    def __repr__(self) -> str:
        found = self.comparison if self.is_measured else None
        cells = [f"{row.label} {with_half(row.pre, found.metric)}" for row in found.rows] if found else []
        runs = sum(map(len, self.groups.values()))
        return f"<Study of {runs} runs in {self.folder}: {found.metric if found else ''} {', '.join(cells)}>"

    def _repr_html_(self) -> str:
        shown: str = self.frame._repr_html_()
        return shown


def _bounds(name: str, found: Interval | None) -> dict[str, float]:
    half = math.nan if found is None or found.half is None else found.half
    return {name: math.nan if found is None else found.mean, f"{name}_half": half}


def to_latex(studies: Mapping[str, Study], path: str | Path | None = None) -> str:
    """Return a table for booktabs with a column of scores and one of MB for each study; also write it to `path`.

    A dagger marks methods that Holm's correction shows to differ from the best one of their column (p < 0.05).
    """
    notes = {name: _daggers(study) for name, study in studies.items()}
    columns = {name: study.comparison for name, study in studies.items()}
    return write_latex(latex_table(columns, notes), path)


def _daggers(study: Study) -> dict[str, str]:
    rows = [row for row in study.comparison.rows if row.pre is not None]
    sign = 1 if study.comparison.higher_is_better else -1
    best = max(rows, key=lambda row: sign * row.pre.mean if row.pre else -math.inf).label if rows else ""
    table = study.p_values
    pairs = zip(table["method"], table["other"], table["p_holm"], strict=True) if len(table) else ()
    clear = [{one, other} for one, other, p in pairs if p < 0.05]
    return {row.label: r"$^\dagger$" for row in rows if {row.label, best} in clear}
