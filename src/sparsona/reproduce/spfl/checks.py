"""Checks that several claims of SPFL and PLGA are made of."""

from __future__ import annotations

from collections.abc import Mapping

from sparsona.reproduce import Runs, Summary
from sparsona.reproduce._verdicts import At, Check, Reading, Verdict, Word, above, bottom, exceeds, loses


def every(checks: Mapping[str, Check]) -> Check:
    """Whether all of several hold, by name. One that does not is enough for "no"; the note tells those that decide.

    >>> told = {"a": Verdict("yes", "+1"), "b": Verdict("no", "-2"), "c": Verdict("not run", "missing: c")}
    >>> every({name: lambda runs, own=own: own for name, own in told.items()})({})
    Verdict(word='no', note='b: -2')
    """
    order: tuple[Word, ...] = ("no", "not run", "within noise", "yes")

    def check(runs: Runs) -> Verdict:
        found = {name: one(runs) for name, one in checks.items()}
        word = min((own.word for own in found.values()), key=order.index)
        same = {name: own.note for name, own in found.items() if own.word == word}
        unnamed = word == "not run"
        decisive = list(dict.fromkeys(note if unnamed else f"{name}: {note}" for name, note in same.items()))
        more = f"; and {len(decisive) - 2} more" if len(decisive) > 2 else ""
        return Verdict(word, "; ".join(decisive[:2]) + more)

    return check


def some_client(one: str, other: str) -> Check:
    """Whether some client is better off under `one` than under `other`, by what is kept of all clients.

    If the mean of `one` is above that of `other`, or its bottom decile is, so is a client's score. The reverse says
    nothing, so that there is no "no".
    """

    def check(runs: Runs) -> Verdict:
        found = {"mean": above(one, other)(runs), "bottom decile": above(one, other, of=bottom)(runs)}
        for word in ("yes", "not run"):
            for name, own in found.items():
                if own.word == word:
                    return Verdict(own.word, f"{name} {own.note}" if word == "yes" else own.note)
        told = "; ".join(f"{name} {own.note}" for name, own in found.items())
        return Verdict("within noise", f"neither tells: {told}")

    return check


def gains(one: At, other: At, most: float) -> Check:
    """Whether `one` is at most so much above `other`."""

    def check(runs: Runs) -> Verdict:
        found = loses(one, other, most)(runs)
        return Verdict(found.word, found.note.removeprefix("loses "))

    return check


def beyond(row: str, of: Reading, bound: float) -> Check:
    """Whether a number of a row is above `bound`."""

    def limit(summary: Summary, point: str) -> float | None:
        return None if of(summary, point) is None else bound

    def check(runs: Runs) -> Verdict:
        found = exceeds(At(row, of=of), At(row, of=limit))(runs)
        return found if found.word == "not run" else Verdict(found.word, f"{found.note}, from {bound:g}")

    return check
