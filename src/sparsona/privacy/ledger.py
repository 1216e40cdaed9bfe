"""The owner's ledger: how much of a privacy budget each run has reserved and used, in a file that never goes back.

A run reserves the epsilon and delta of all of its planned queries with its first one, and its mechanism is fixed from
then on. Budgets of runs add up (basic composition, which holds however an organiser chooses later runs by the answers
of earlier ones: Rogers and others 2016). Within a run, queries are counted on disk before they are answered.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sparsona.errors import RunError
from sparsona.files import write_atomically
from sparsona.privacy import PrivacySettings
from sparsona.privacy.mechanism import BudgetSpent, Mechanism

SLACK, LEAST = 1e-9, 0.01
"""Relative tolerance of sums of epsilons and deltas, and the smallest remainder that counts as a budget."""


@dataclass(frozen=True)
class Entry:
    """One run: its mechanism, the epsilon that is reserved for it, and the queries that it has used.

    `turn` names the last turn that was begun, and `first` its first query. A turn that was cut off before its answer
    was kept is computed again from the same query on: it then gives the same answer.
    """

    mechanism: Mechanism
    epsilon: float
    used: int = 0
    turn: str = ""
    first: int = 0


class OwnerLedger:
    """The budget of an owner over all runs; without an `epsilon` it only counts."""

    def __init__(self, file: Path, epsilon: float = math.inf, delta: float = 1.0) -> None:
        self._file, self.epsilon, self.delta = file, epsilon, delta
        self._entries = _read(file)

    @property
    def reserved(self) -> tuple[float, float]:
        """The epsilon and delta that runs have reserved so far."""
        return _total(self._entries)

    def planned(self, run: str, settings: PrivacySettings, plan: Callable[[PrivacySettings], Mechanism]) -> Mechanism:
        """Return the mechanism of a run: the reserved one, or one that `plan` makes within the remaining budget.

        A run that requests a share of the remaining epsilon gets at most that share of delta, because later runs need
        some.
        """
        if run in self._entries:
            return self._entries[run].mechanism
        epsilon, delta = self.reserved
        left = self.epsilon - epsilon, self.delta - delta
        if left[0] <= LEAST * self.epsilon < math.inf or left[1] <= LEAST * self.delta:
            raise BudgetSpent(f"the owner's privacy budget is spent: epsilon {epsilon:.3g} of {self.epsilon:g}")
        share = 1.0
        if settings.noise is None:
            settings = replace(settings, epsilon=min(settings.epsilon or math.inf, left[0]))
            share = 1.0 if math.isinf(left[0]) or settings.epsilon is None else settings.epsilon / left[0]
        return plan(replace(settings, delta=min(settings.delta, share * left[1])))

    def begin(self, run: str, mechanism: Mechanism, turn: bytes) -> tuple[int, Callable[[int], None]]:
        """Return the first query of a turn, and the function that charges its queries. `turn` holds everything on which
        its answer depends.
        """
        name = hashlib.sha256(turn).hexdigest()
        found = self._entries.get(run) or Entry(mechanism, mechanism.epsilon(mechanism.most))
        first = found.first if found.turn == name else found.used

        def charge(used: int) -> None:
            entry = self._entries.get(run, found)
            if used <= entry.used and entry.turn == name:
                return
            entry = replace(entry, used=max(used, entry.used), turn=name, first=first)
            entries = {**self._entries, run: entry}
            total = _total(entries)
            if total[0] > self.epsilon * (1 + SLACK) or total[1] > self.delta * (1 + SLACK):
                raise BudgetSpent(
                    f"epsilon {total[0]:.3g} and delta {total[1]:.3g} would exceed the owner's privacy budget"
                )
            write_atomically(self._file, json.dumps({name: asdict(one) for name, one in entries.items()}))
            self._entries = entries

        return first, charge

    def spent(self, run: str) -> float:
        """The epsilon of the queries that a run has used."""
        entry = self._entries.get(run)
        return 0.0 if entry is None else entry.mechanism.epsilon(entry.used)


def _total(entries: dict[str, Entry]) -> tuple[float, float]:
    return math.fsum(e.epsilon for e in entries.values()), math.fsum(e.mechanism.delta for e in entries.values())


def _read(file: Path) -> dict[str, Entry]:
    if not file.exists():
        return {}
    try:
        held = json.loads(file.read_bytes())
        return {run: Entry(**{**one, "mechanism": Mechanism(**one["mechanism"])}) for run, one in held.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{file} is damaged ({error!r}): the privacy budget is not known, so no run can go on") from None
