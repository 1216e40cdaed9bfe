"""Checks of several claims of SPFL and PLGA."""

from __future__ import annotations

from sparsona_papers._differences import Reading, RowAt, Runs, Summary, bottom
from sparsona_papers._verdicts import Check, Verdict, above, exceeds


def some_client(one: str, other: str) -> Check:
    """Check whether some client is better off under `one` than under `other`, from the kept means and deciles.

    If the mean or bottom decile of `one` is above that of `other`, so is some client's score. The reverse proves
    nothing, so the verdict is never "no".
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


def beyond(row: str, of: Reading, bound: float) -> Check:
    """Return whether a number of a row is above `bound`."""

    def limit(summary: Summary, point: str) -> float | None:
        return None if of(summary, point) is None else bound

    def check(runs: Runs) -> Verdict:
        found = exceeds(RowAt(row, of=of), RowAt(row, of=limit))(runs)
        return found if found.word == "not run" else Verdict(found.word, f"{found.note}, from {bound:g}")

    return check
