"""Whether a claim holds: yes, no, within noise or not run, and the numbers that say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

from sparsona_papers._differences import Difference, Reading, RowAt, Runs, difference, score

MISSING = "missing: "
"""Beginning of the note on a claim whose rows have not been run."""

Word: TypeAlias = Literal["yes", "no", "within noise", "not run"]

WORST: tuple[Word, ...] = ("no", "not run", "within noise", "yes")
"""The order of verdicts in which the first one decides if all of several claims must hold."""


@dataclass(frozen=True)
class Verdict:
    """A verdict: the word, and the numbers behind it."""

    word: Word
    note: str = ""


Check: TypeAlias = Callable[[Runs], Verdict]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, or an objection to it, and its test.

    `cost` is the command that would settle it if it was not run.
    """

    text: str
    check: Check
    cost: str = ""


def word_above(gap: Difference, by: float = 0.0, rivals: int = 1) -> Word:
    """Return whether a number is above `by`, corrected for the number of `rivals`. Numbers that are equal in all seeds,
    as at a ceiling, decide nothing.

    >>> word_above(Difference(0.0, 0.0, 0.0, 3)), word_above(Difference(-0.2, -0.3, -0.1, 3))
    ('within noise', 'no')
    """
    return "yes" if gap.low > by else "no" if gap.high_of(rivals) < by else "within noise"


def word_below(gap: Difference, most: float) -> Word:
    """Return whether a number is at most `most`."""
    return "yes" if gap.high <= most else "no" if gap.low > most else "within noise"


def word_within(gap: Difference, limit: float) -> Word:
    """Return whether a number is no further from 0 than `limit`."""
    if -limit <= gap.low and gap.high <= limit:
        return "yes"
    return "no" if gap.low > limit or gap.high < -limit else "within noise"


def worst(words: Iterable[Word]) -> Word:
    """Return the verdict on several claims together.

    >>> worst(["yes", "within noise", "yes"])
    'within noise'
    """
    return min(words, key=WORST.index)


def above(
    one: str, *others: str, point: str = "pre", other_point: str = "", of: Reading = score, by: float = 0.0
) -> Check:
    """Check whether `one` is above all `others` by more than `by`. All must have been run.

    One rival above it suffices for "no". With several rivals the interval is corrected for their number. The note names
    the deciding rival with the highest score.
    """

    def check(runs: Runs) -> Verdict:
        mine = RowAt(one, point, of)
        found = {other: difference(runs, mine, RowAt(other, other_point or point, of)) for other in others}
        known = {other: gap for other, gap in found.items() if gap is not None}
        if not known or len(known) < len(found):
            return missing(runs, one, *others)
        words = {other: word_above(gap, by, len(known)) for other, gap in known.items()}
        word = worst(words.values())
        rival = min((other for other in words if words[other] == word), key=lambda other: known[other].value)
        gap = known[rival]
        told = f"{gap} against {rival}" if len(others) > 1 else str(gap)
        if word != "no" and word_above(gap, by) == "no":
            told += f" (± {gap.high_of(len(known)) - gap.value:.4f} as one of {len(known)} rivals)"
        return Verdict(word, told)

    return check


def exceeds(one: RowAt, other: RowAt, by: float = 0.0) -> Check:
    """Check whether `one` is above `other` by more than `by`, each at its own point and with its own reading."""
    return _judged(one, other, lambda gap: Verdict(word_above(gap, by), str(gap)))


def gains(one: RowAt, other: RowAt, most: float) -> Check:
    """Check whether `one` is above `other` by at most `most`."""
    return _judged(one, other, lambda gap: Verdict(word_below(gap, most), str(gap)))


def loses(one: RowAt, other: RowAt, most: float) -> Check:
    """Check whether `other` is below `one` by at most `most`."""
    return _judged(one, other, lambda gap: Verdict(word_below(gap, most), f"loses {gap}"))


def level(one: RowAt, other: RowAt, limit: float) -> Check:
    """Check whether two numbers are at most `limit` apart."""
    return _judged(one, other, lambda gap: Verdict(word_within(gap, limit), str(gap)))


def _judged(one: RowAt, other: RowAt, judge: Callable[[Difference], Verdict]) -> Check:
    """Return the verdict on the difference of two numbers."""

    def check(runs: Runs) -> Verdict:
        gap = difference(runs, one, other)
        return missing(runs, one.row, other.row) if gap is None else judge(gap)

    return check


def within(limit: float, *rows: str, point: str = "pre") -> Check:
    """Check whether all rows are at most `limit` apart."""

    def check(runs: Runs) -> Verdict:
        pairs = list(combinations(rows, 2))
        found = {pair: difference(runs, RowAt(pair[0], point), RowAt(pair[1], point)) for pair in pairs}
        known = {pair: gap for pair, gap in found.items() if gap is not None}
        if len(known) < len(pairs):
            return missing(runs, *rows)
        words = {pair: word_within(gap, limit) for pair, gap in known.items()}
        word = worst(words.values())
        a, b = max((pair for pair in pairs if words[pair] == word), key=lambda pair: abs(known[pair].value))
        return Verdict(word, f"{known[a, b]}, {a} against {b}")

    return check


def any_of(*checks: Check) -> Check:
    """Check whether at least one of several holds: "no" if none does, else the verdict nearest to yes.

    >>> any_of(never("a"), lambda runs: Verdict("yes", "b"))({})
    Verdict(word='yes', note='b')
    >>> any_of(never("a"), lambda runs: Verdict("no", "b"))({})
    Verdict(word='not run', note='a')
    """
    order: tuple[Word, ...] = ("yes", "not run", "within noise", "no")

    def check(runs: Runs) -> Verdict:
        return min((one(runs) for one in checks), key=lambda found: order.index(found.word))

    return check


def all_of(checks: Mapping[str, Check] | Iterable[Check]) -> Check:
    """Check whether all of several hold, with or without names. One failure suffices for "no"; the note has at most two
    deciding ones.

    >>> said = {word: lambda runs, word=word: Verdict(word, "so") for word in ("yes", "no", "not run")}
    >>> all_of(said)({}), all_of(said.values())({})
    (Verdict(word='no', note='no: so'), Verdict(word='no', note='so'))
    >>> all_of([said["yes"], never("a"), never("b"), never("a"), never("c")])({})
    Verdict(word='not run', note='a; b; and 1 more')
    """
    named = list(checks.items()) if isinstance(checks, Mapping) else [("", one) for one in checks]

    def check(runs: Runs) -> Verdict:
        found = [(name, one(runs)) for name, one in named]
        word = worst(own.word for _, own in found)
        deciding = [(name, own.note) for name, own in found if own.word == word]
        notes = [f"{name}: {note}" if name and word != "not run" else note for name, note in deciding]
        told = list(dict.fromkeys(notes))
        return Verdict(word, "; ".join(told[:2]) + (f"; and {len(told) - 2} more" if len(told) > 2 else ""))

    return check


def fact(test: Callable[[Runs], tuple[bool, str] | None], *rows: str) -> Check:
    """Check a claim about counts, which have no noise, by `test`; None if one of the `rows` is missing."""

    def check(runs: Runs) -> Verdict:
        found = test(runs)
        return missing(runs, *rows) if found is None else Verdict("yes" if found[0] else "no", found[1])

    return check


def never(reason: str) -> Check:
    """Return a check for a claim that no case tests, with the reason."""
    return lambda runs: Verdict("not run", reason)


def missing(runs: Runs, *rows: str) -> Verdict:
    """Return the verdict if some `rows` were not run, or lack the needed number.

    >>> missing({"a": {1: {}}}, "a", "b").note, missing({"a": {1: {}}}, "a").note
    ('missing: b', 'no seed with this number in common')
    """
    absent = [row for row in dict.fromkeys(rows) if not runs.get(row)]
    if not absent:
        return Verdict("not run", "no seed with this number in common")
    named, more = ", ".join(absent[:3]), len(absent) - 3
    return Verdict("not run", f"{MISSING}{named}" + (f" and {more} more" if more > 0 else ""))
