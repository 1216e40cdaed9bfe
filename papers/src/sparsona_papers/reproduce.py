"""Make a paper's runs, keep what its card needs of them, and write the card.

A finished run is not made again and an interrupted one is continued, so the command can be stopped at any time. A small
file per paper and size (`results`) keeps the numbers for cards. It outlives the run directories: a kept run is not made
again, unless `again` is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from sparsona.errors import InputError
from sparsona.federation.resources import Resources
from sparsona.files import write_atomically
from sparsona_papers._cases import Cases
from sparsona_papers._chart import bars, draw_bars
from sparsona_papers._paper import SIZES, Paper, Size
from sparsona_papers._registry import PAPERS, Job, MissingRuns, Reproduction
from sparsona_papers._results import Results, results_file
from sparsona_papers._tables import Part, headlines, verdicts


def reproduce(
    name: str,
    size: Size,
    out: Path,
    only: str = "*",
    say: Callable[[str], None] = print,
    run: bool = True,
    results: Path | None = None,
    again: bool = False,
    engine: str = "auto",
    resources: Resources | None = None,
    seeds_from: int | None = None,
) -> Path:
    """Make a paper's runs whose names, or rows, match `only` into `out`, and write results.md there. Returns that file.

    With `run` false nothing is run: the tables are made from the kept runs. `results` is the folder of kept results;
    runs in it are made only if `again` is true. `engine` and `resources` change no number. With `seeds_from` the first
    of the paper's seeds is `seeds_from`, and so on; these runs are kept in files of their own.
    """
    found = reproduction(name, size, seeds_from)
    own, *others = _kept(results, name, size, seeds_from)
    if run:
        resources = resources or Resources()
        where = {"engine": engine, "workers": resources.workers, "cluster": asdict(resources.cluster)}
        found.run(Job(out, only, again, where, own, others, say))
    part = found.part(own)
    claims = ["## Claims", "", *verdicts([part])] if part.claims else []
    table = out / "results.md"
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(table, "\n".join([f"# {found.title}", "", found.tables(own), *claims]) + "\n")
    for file in found.draw(out):
        say(f"drawn: {file}")
    return table


def left(
    name: str, size: Size, only: str = "*", results: Path | None = None, seeds_from: int | None = None
) -> MissingRuns:
    """Count what :func:`reproduce` would run because it is not kept."""
    own, *others = _kept(results, name, size, seeds_from)
    return reproduction(name, size, seeds_from).left(only, own, others)


def reproduction(name: str, size: Size, seeds_from: int | None = None) -> Reproduction:
    """A paper's experiments in one size, with other seeds if `seeds_from` is given."""
    if size not in SIZES:
        raise InputError(f"a size is {', '.join(SIZES[:-1])} or {SIZES[-1]}, not {size!r}")
    declared = PAPERS.get(name)(size)
    found: Reproduction = Cases(name, size, declared) if isinstance(declared, Paper) else declared
    return found if seeds_from is None else found.with_seeds_from(seeds_from)


def _kept(results: Path | None, name: str, size: Size, seeds_from: int | None) -> list[Results]:
    """The kept results of a size, followed by those of the others."""
    sizes = (size, *(other for other in SIZES if other != size))
    return [Results.read(results_file(results, name, one, seeds_from)) for one in sizes]


BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
"""The text between these lines of a card is made from the kept results."""
HEADLINES = "<!-- verdicts: begin -->", "<!-- verdicts: end -->"
"""Between these lines of a page, the counts and the rows of a table are made of the kept results. The page's author
chooses the claims: a row stands there for each."""


def card(names: Sequence[str], results: Path, text: str) -> str:
    """Return a card, or a page about it, with tables and verdicts made from the kept results of these papers."""
    if HEADLINES[0] in text:
        return _page(names, results, text)
    before, _, after = _parts(text, BEGIN, END)
    lines = [line for name in names for line in _results_of(name, results)]
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n{END}{after}"


def chart(page: Path) -> Path | None:
    """Draw a page's verdicts into the picture that it shows; None if it shows none.

    The picture's text says what the axis is, up to its first comma.
    """
    text, picture = page.read_text(encoding="utf-8"), Path("img") / f"{page.stem}.svg"
    shown = re.search(rf"!\[([^],]*)[^]]*\]\({re.escape(picture.as_posix())}\)", text)
    if shown is None:
        return None
    table = _parts(text, *HEADLINES)[1] if HEADLINES[0] in text else text
    draw_bars(bars(table.splitlines()), page.parent / picture, shown[1])
    return page.parent / picture


def _parts(text: str, begin: str, end: str) -> tuple[str, str, str]:
    """Return the text before, between and after two lines."""
    before, found, rest = text.partition(begin)
    inner, ended, after = rest.partition(end)
    if not found or not ended:
        raise InputError(f"the card has no lines {begin!r} and {end!r}: add them where the tables shall stand")
    return before, inner, after


def _page(names: Sequence[str], results: Path, text: str) -> str:
    """Return a short page: the counts of verdicts, and the claims that its table lists."""
    before, inner, after = _parts(text, *HEADLINES)
    listed = [line.split(" | ")[0].removeprefix("| ") for line in inner.splitlines() if line.startswith("| ")][1:]
    counts, rows = [], dict[str, str]()
    for name in names:
        count, own = headlines([found.part(kept) for found, kept in _sizes(name, results)], listed)
        counts.append(f"`{name}`: {count}")
        rows |= own
    unknown = [claim for claim in listed if claim not in rows]
    if unknown:
        raise InputError(f"{', '.join(names)} has no claim {unknown[0]!r}: take the text from its card")
    lines = ["\n\n".join(counts), "", "| claim | verdict | evidence |", "|---|---|---|", *(rows[one] for one in listed)]
    return f"{before}{HEADLINES[0]}\n\n" + "\n".join(lines) + f"\n\n{HEADLINES[1]}{after}"


def _sizes(name: str, results: Path) -> Iterator[tuple[Reproduction, Results]]:
    """The sizes of a paper that have been run, and the first one in any case."""
    for size in SIZES:
        kept = Results.read(results_file(results, name, size))
        if kept.runs or size == SIZES[0]:
            yield reproduction(name, size), kept


def _results_of(name: str, results: Path) -> list[str]:
    """The tables of every size that has been run, and one table of verdicts."""
    lines: list[str] = []
    parts: list[Part] = []
    for found, kept in _sizes(name, results):
        parts.append(found.part(kept))
        body = found.tables(kept).replace("\n## ", "\n### ").strip()
        lines += [f"## {found.title}", "", body, ""]
    if any(part.claims for part in parts):
        lines += ["### Claims", "", *verdicts(parts), ""]
    return lines
