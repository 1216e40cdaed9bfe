"""One client's verdict: better or worse off than alone, or unclear from its test rows."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from sparsona.chance import Chance
from sparsona.files import write_atomically
from sparsona.method import ClientId
from sparsona.metrics import known
from sparsona.metrics._resampling import paired_test
from sparsona.report.measured import MeasuredRun, same_clients
from sparsona.runs.answers import read_answers
from sparsona.words import counted

ERROR = 0.05
"""The share of clients without a true difference that get a direction."""


@dataclass(frozen=True)
class Verdict:
    """A client with a method against training alone: the gain (above 0 is better), its p-value, and the test rows."""

    client: ClientId
    seed: int | None
    gain: float
    p: float
    rows: int

    @property
    def word(self) -> Literal["better", "worse", "unclear"]:
        """Return the verdict in one word."""
        if not self.p < ERROR or not self.gain:
            return "unclear"
        return "better" if self.gain > 0 else "worse"

    def text(self) -> str:
        """Return the verdict as text.

        >>> Verdict("east", 0, 0.057, 0.5, 35).text(), Verdict("west", 0, 0.03, 0.001, 400).text()
        ('cannot be told from 35 test rows', 'better')
        """
        return f"cannot be told from {counted(self.rows, 'test row')}" if self.word == "unclear" else self.word


def verdicts(pairs: Sequence[tuple[MeasuredRun, MeasuredRun]]) -> list[Verdict]:
    """Return each client's verdict, from pairs of finished runs on the same rows: with the method, and alone.

    If all seeds have the same clients, there is one verdict per client: the mean gain, and twice the median of the
    p-values. This p-value is valid although the seeds share rows (Rüger, 1978). Clients without answers have no
    verdict.
    """
    same = same_clients([mine for mine, _ in pairs])
    found: dict[tuple[ClientId, int | None], list[Verdict]] = {}
    for mine, alone in pairs:
        for one in _of_run(mine, alone):
            found.setdefault((one.client, None if same else mine.seed), []).append(one)
    joined = []
    for (client, seed), several in found.items():
        p = several[0].p if len(several) == 1 else min(1.0, 2 * median(one.p for one in several))
        gain, rows = (sum(values) / len(several) for values in zip(*((v.gain, v.rows) for v in several), strict=True))
        joined.append(Verdict(client, seed, gain, p, round(rows)))
    return joined


def _of_run(mine: MeasuredRun, alone: MeasuredRun) -> list[Verdict]:
    metric = known(mine.about.metric)
    if metric is None or not (mine.finished and alone.finished):
        return []
    ours, theirs = read_answers(mine.path), read_answers(alone.path)
    fewest = int(mine.settings.get("split", {}).get("fewest", 1))
    out = []
    for client in sorted(ours.keys() & theirs.keys()):
        one, other = ours[client], theirs[client]
        if len(one) < fewest or one.targets.shape != other.targets.shape or (one.targets != other.targets).any():
            continue
        gain, p = paired_test(metric, one, other, Chance(mine.seed).rng("paired test", client=client))
        if not math.isnan(gain):
            out.append(Verdict(client, mine.seed, gain, p, len(one)))
    return out


def write_verdicts(file: Path, found: Mapping[str, Sequence[Verdict]]) -> None:
    """Write one line per method and client: test rows, gain over training alone, p-value and verdict."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["method", "client", "seed", "test", "gain", "p", "verdict"])
    for method, several in found.items():
        out.writerows([method, v.client, v.seed, v.rows, v.gain, f"{v.p:.4g}", v.text()] for v in several)
    write_atomically(file, text.getvalue())
