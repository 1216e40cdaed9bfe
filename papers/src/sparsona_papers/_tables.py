"""The kept runs of a paper as markdown: tables, and the verdicts on its claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparsona_papers._command import call_of
from sparsona_papers._differences import SAMPLED, TABLE, UNTUNED, Runs, Summary, interval, score, values
from sparsona_papers._noise import with_noise
from sparsona_papers._paper import Case, Paper, Size
from sparsona_papers._results import Results
from sparsona_papers._verdicts import MISSING, Claim, Verdict

SOURCE = "source"
"""The key of lines that were read from an old card: their bytes are those of an earlier wire."""
MEASURED = "measured-"
"""Prefix of kept lines that belong to a benchmark, not to a case."""


def runs_of(paper: Paper, kept: Results) -> Runs:
    """Return the kept runs of a paper's cases by row and seed, and each benchmark's measurements as a row."""
    found: dict[str, dict[int, Summary]] = {
        name: {0: line} for name, line in kept.runs.items() if name.startswith(MEASURED)
    }
    for case in paper.cases:
        run = kept.run_of(case, paper)
        if run is not None:
            sampled = (case.settings.get("schedule") or {}).get("sample", 1.0) < 1
            more = {TABLE: case.table, SAMPLED: sampled, UNTUNED: case.grid is None}
            found.setdefault(case.of, {})[case.seed] = {**run, **more}
    return found


COLUMNS = ("run", "paper", "pre", "post", "ft", "chosen", "seeds", "MB up", "MB down", "as papers count, up", "down",
           "GFLOP", "simulated s", "rounds")  # fmt: skip
"""Columns: the paper's number, ours at three points, real bytes, bytes of values only, work, time, rounds."""


@dataclass(frozen=True)
class Part:
    """The claims of one size, and its runs."""

    size: Size
    claims: Sequence[Claim]
    runs: Runs


def tables(paper: Paper, name: str, size: Size, runs: Runs) -> list[str]:
    """Return the progress and a table for each of the paper's tables, as lines of markdown."""
    done = sum(len(own) for row, own in runs.items() if not row.startswith(MEASURED))
    when = sorted({str(run["date"]) for row in runs.values() for run in row.values()})
    where = sorted({str(run["machine"]) for row in runs.values() for run in row.values()})
    told = f", {' to '.join(dict.fromkeys((when[0], when[-1])))}, {' and '.join(where)}" if when else ""
    lines = [f"`{call_of(name, size)}`: {done} of {len(paper.cases)} runs are finished{told}.", ""]
    for table in dict.fromkeys(case.table for case in paper.cases if case.of in runs):
        lines += [f"## {table}", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        rows = {case.of: case for case in paper.cases if case.table == table and case.of in runs}
        lines += [f"| {' | '.join(_row(case, runs))} |" for case in rows.values()]
        lines.append("")
    for title, make in paper.tables.items():
        text = make(runs)
        lines += [f"## {title}", "", text, ""] if text else []
    return lines


def verdicts(parts: Sequence[Part]) -> list[str]:
    """Return the counts of verdicts, a table of claims with evidence, and one of claims not run."""
    parts = _noisy(parts)
    found = {text: _judged(text, parts) for text in _texts(parts)}
    lines = [_count([verdict.word for verdict in found.values()]), ""]
    for waiting, title, head in (
        (False, "", "| claim | verdict | evidence |"),
        (True, "Claims that nobody has run, and what would settle them:", "| claim | command |"),
    ):
        own = {text: verdict for text, verdict in found.items() if (verdict.word == "not run") == waiting}
        if own:
            lines += [*([title, ""] if title else []), head, "|---" * (head.count("|") - 1) + "|"]
            lines += [f"| {text} | {'' if waiting else f'{own[text].word} | '}{own[text].note} |" for text in own]
            lines.append("")
    return lines[:-1]


def headlines(parts: Sequence[Part], texts: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the counts of verdicts, and a table row for each known claim in `texts`: its verdict, and the evidence of
    the longest size.
    """
    parts = _noisy(parts)
    every = _texts(parts)
    rows = {}
    for text in texts:
        if text in every:
            ran = _ran(text, parts)
            rows[text] = f"| {text} | {ran[0][1].word} | {ran[0][0]}: {ran[0][1].note} |" if ran else _waiting(text)
    return _count([_judged(text, parts).word for text in every]), rows


def _waiting(text: str) -> str:
    return f"| {text} | not run | |"


def _noisy(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with the noise of seeds in their runs."""
    known = with_noise([part.runs for part in parts])
    return [replace(part, runs=runs) for part, runs in zip(parts, known, strict=True)]


def _texts(parts: Sequence[Part]) -> list[str]:
    return list(dict.fromkeys(claim.text for part in parts for claim in part.claims))


def _count(words: Sequence[str]) -> str:
    count = Counter(words)
    told = ", ".join(f"{count[word]} {word}" for word in ("yes", "no", "within noise", "not run") if count[word])
    return f"{len(words)} claims: {told}."


def _ran(text: str, parts: Sequence[Part]) -> list[tuple[Size, Verdict]]:
    """Return the verdicts of the finished sizes on a claim, the longest first."""
    asked = [(part, claim) for part in reversed(parts) for claim in part.claims if claim.text == text]
    return [(part.size, found) for part, claim in asked if (found := claim.check(part.runs)).word != "not run"]


def _judged(text: str, parts: Sequence[Part]) -> Verdict:
    """Return a claim's verdict over several sizes, with its evidence or the command that would settle it.

    The longest size that was run decides. The evidence names every finished size, also one with another verdict. A
    claim without runs names the command, and the reason if it is not just missing rows.
    """
    asked = [(part, claim) for part in reversed(parts) for claim in part.claims if claim.text == text]
    ran = _ran(text, parts)
    if not ran:
        part, claim = asked[-1]
        reason = claim.check(part.runs).note
        return Verdict("not run", "; ".join(filter(None, ("" if reason.startswith(MISSING) else reason, claim.cost))))
    _, decides = ran[0]
    if len(parts) == 1 or not asked[-1][1].cost:
        return decides
    return Verdict(decides.word, "; ".join(f"{size}, {found.word}: {found.note}" for size, found in ran))


def _row(case: Case, runs: Runs) -> list[str]:
    own = runs[case.of]
    first = own[min(own)]
    today = next((own[seed] for seed in sorted(own) if SOURCE not in own[seed]), None)  # bytes of today's wire
    sent = [f"{today['bytes'][way] / 1e6:,.3f}" if today else "-" for way in ("up", "down")]
    counted = [f"{first['paper_bytes'][way] / 1e6:,.3f}" for way in ("up", "down")]
    picked = [f"{key.rpartition('.')[2]} {value:g}" for key, value in first.get("chosen", {}).items()]
    return [
        case.of,
        number(case.paper),
        *(spread(list(values(runs, case.of, point).values())) for point in ("pre", "post", "ft")),
        ", ".join(picked) or "-",
        str(len(own)),
        *sent,
        *counted,
        f"{first['flops'] / 1e9:,.0f}",
        f"{first['simulated_seconds']:,.0f}",
        str(first["rounds"]),
    ]


def spread(found: Sequence[float]) -> str:
    """A mean with its 95 % interval; of a single number no interval.

    >>> spread([0.5, 0.6]), spread([0.25]), spread([])
    ('0.5500 ± 0.6353', '0.2500', '-')
    """
    if not found:
        return "-"
    told = interval(found)
    return f"{told.value:.4f}" + (f" ± {told.high - told.value:.4f}" if told.seeds > 1 else "")


def told_scores(summary: Summary) -> str:
    """Return the mean scores of a run as a text."""
    return ", ".join(f"{point} {number(score(summary, point))}" for point in ("pre", "post"))


def number(value: float | None) -> str:
    """A score with four digits; a dash for none."""
    return "-" if value is None else f"{value:.4f}"
