"""records.jsonl: one line per round and client, from which every reported number is computed."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from sparsona.errors import RunError, printable
from sparsona.files import json_of, named, read_regular
from sparsona.method import ClientId
from sparsona.metrics import known
from sparsona.runs.scores import POINTS, Losses, summarise
from sparsona.wire import Ledger

if TYPE_CHECKING:
    from sparsona.personal.kept import KeepName

log = logging.getLogger(__name__)

AGAIN = 5  # consecutive refused replies of a client after which the organiser gets a warning


@dataclass(slots=True)
class ClientRecord:
    """One client in one round, counted from 1; the loop fills it in during the round.

    A client that neither took part nor was evaluated has no line.

    `pre` is measured after the round's aggregation, `post` after the local training of the round. `took` are the
    simulated seconds of the client's turns, `clock` is the simulated second in which the round ended. `refused` is
    the reason if a reply of this round was refused. `queries` counts the answered queries so far, with a privacy
    budget.
    """

    round: int
    client: ClientId
    took_part: bool = False
    arrived: bool = False
    down: Ledger = field(default_factory=Ledger)
    up: Ledger = field(default_factory=Ledger)
    paper_down: int = 0
    paper_up: int = 0
    loss: float = math.nan
    seconds: float = 0.0
    flops: int = 0
    took: float = 0.0
    clock: float = 0.0
    refused: str = ""
    test: dict[str, float] = field(default_factory=dict)
    validation: dict[str, float] = field(default_factory=dict)
    others: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """By metric and point, the scores (test, validation) by the metrics that do not decide."""
    queries: int = 0

    def text(self) -> str:
        """Return one line of JSON, with null for NaN."""
        held = {name: getattr(self, name) for name in self.__slots__}
        return _LINE.encode({name: _plain(value) for name, value in held.items() if name != "queries" or value}) + "\n"

    @classmethod
    def parse(cls, text: str) -> ClientRecord:
        """Return the record in a line of JSON."""
        raw: dict[str, Any] = json_of(text)
        raw["loss"] = _nan(raw["loss"])
        raw |= {key: {point: _nan(score) for point, score in raw[key].items()} for key in ("test", "validation")}
        raw["others"] = {
            metric: {point: (_nan(test), _nan(validation)) for point, (test, validation) in points.items()}
            for metric, points in raw.get("others", {}).items()
        }
        found = _RECORD.validate_python(raw)
        if not all(map(math.isfinite, (found.down.bound, found.up.bound, found.seconds, found.took, found.clock))):
            raise ValueError("a number is not finite")
        return found

    def measured(
        self, point: str, test: float, validation: float, others: Mapping[str, tuple[float, float]] | None = None
    ) -> ClientRecord:
        """Note a score."""
        self.test[point], self.validation[point] = test, validation
        for metric, pair in (others or {}).items():
            self.others.setdefault(metric, {})[point] = pair
        return self


_RECORD = TypeAdapter(ClientRecord)
_LINE = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a field for JSON: a ledger as its fields, None for NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Ledger):
        return vars(value)
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return {key: _plain(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


def read_records(file: Path, length: int | None = None, sha256: str = "") -> list[ClientRecord]:
    """Return the lines of a run in the order in which they were written.

    `length` is the number of valid bytes that a checkpoint names; bytes that a killed run wrote behind them are
    ignored. Without it the file is read to its end. The file is missing as long as there is no line. `sha256` is the
    hash of the valid bytes, if known.
    """
    found = read_regular(file) if file.exists() else b""
    if length is not None:
        if len(found) < length:
            raise _damaged(file, f"{len(found)} bytes are left of {length}")
        found = found[:length]
    if sha256 and hashlib.sha256(found).hexdigest() != sha256:
        raise _damaged(file, "it is not as it was written")
    try:
        return [ClientRecord.parse(text) for text in found.decode().splitlines()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(file, printable(error, 200)) from None


def by_round(lines: Iterable[ClientRecord]) -> dict[int, list[ClientRecord]]:
    """Yield the lines of each round, in the order of rounds."""
    rounds: dict[int, list[ClientRecord]] = {}
    for line in lines:
        rounds.setdefault(line.round, []).append(line)
    return dict(sorted(rounds.items()))


def _damaged(file: Path, how: str) -> RunError:
    return RunError(f"{file} is damaged ({how}): run it again into another --out")


@dataclass(frozen=True)
class RoundReport:
    """One round over all clients: bytes, floating-point operations, the simulated second of its end, scores."""

    round: int
    took_part: int
    up: Ledger
    down: Ledger
    paper_up: int
    paper_down: int
    flops: int
    clock: float
    scores: Mapping[str, Mapping[str, float | None]]
    validation: Mapping[str, float | None]
    others: Mapping[str, Mapping[str, Mapping[str, float | None]]] = field(default_factory=dict)
    """Like `scores`, for the metrics that do not decide."""


class RunLog:
    """The lines of a run, summarised per round in memory and appended to a file, if there is one."""

    def __init__(
        self,
        sizes: Mapping[ClientId, int],
        higher_is_better: bool,
        file: Path | None = None,
        fewest: int = 1,
        keep: KeepName = "last",
    ) -> None:
        """`sizes`: the clients' test rows; a client with fewer than `fewest` is in no mean.

        `keep`: which of its models a client keeps; a client's scores belong to that model.
        """
        self._small = frozenset(client for client, size in sizes.items() if size < fewest)
        self._sizes = sizes
        self._higher = higher_is_better
        self._file = file
        self._keep = keep
        self._best: dict[tuple[ClientId, str], float] = {}
        """The best validation scores by client ("": the mean) and point."""
        self._done = 0
        self.rounds: list[RoundReport] = []
        self.scores: dict[ClientId, dict[str, float]] = {}
        self.others: dict[str, dict[ClientId, dict[str, float]]] = {}
        self.losses = Losses()
        self.refused: Counter[ClientId] = Counter()
        """Number of rounds with a refused reply, per client."""
        self.in_a_row: Counter[ClientId] = Counter()
        """Consecutive refused replies since the client's last accepted one."""

    def write(self, lines: Iterable[ClientRecord]) -> RoundReport:
        """Append a round; it becomes valid when the next checkpoint names the file's new length."""
        lines = sorted(lines, key=lambda line: line.client)
        if self._file is not None:
            with named(self._file), self._file.open("a", encoding="utf-8") as out:
                out.writelines(line.text() for line in lines)
        report = self._count(lines)
        for line in (line for line in lines if line.refused and self.in_a_row[line.client] == AGAIN):
            log.warning(
                "%d replies of %s in a row were left out, the last one because %s; where a norm is too large and the "
                "client honest, raise --max-update-norm",
                AGAIN,
                line.client,
                line.refused,
            )
        return report

    def length(self) -> int:
        """Return the present length of records.jsonl in bytes."""
        return self._file.stat().st_size if self._file is not None and self._file.exists() else 0

    def rewind(self, length: int, done: int) -> None:
        """Drop all lines after a checkpoint, and read the lines before it again.

        The checkpoint has seen `done` rounds, rounds without a line included. A file with other content is not
        changed.
        """
        if self._file is None:
            self._done = done
            return
        rounds: dict[int, list[ClientRecord]] = {number: [] for number in range(1, done + 1)}
        for line in read_records(self._file, length):
            if line.round not in rounds:
                raise _damaged(self._file, f"a line of round {line.round}, where the checkpoint has seen {done}")
            rounds[line.round].append(line)
        if self._file.exists():
            os.truncate(self._file, length)
        for lines in rounds.values():
            self._count(lines)

    def _count(self, lines: list[ClientRecord]) -> RoundReport:
        scores: dict[str, Any] = {}
        validation: dict[str, float | None] = {}
        for point in POINTS:
            measured = [line for line in lines if point in line.test]
            found = {line.client: line.test[point] for line in measured if line.client not in self._small}
            if measured:
                scores[point] = summarise(found, self._sizes, self._higher)
                checked = {line.client: line.validation[point] for line in lines if point in line.validation}
                validation[point] = summarise(checked, self._sizes, self._higher)["mean"]
        for line in lines:
            if line.refused:
                self.refused[line.client] += 1
                self.in_a_row[line.client] += 1
            elif line.arrived:
                del self.in_a_row[line.client]
        better = {point for point, mean in validation.items() if self._improved("", point, mean)}
        for line in lines:
            for point, test in line.test.items():
                if self._keep == "best-per-client":
                    kept = self._improved(line.client, point, line.validation.get(point))
                else:
                    kept = self._keep == "last" or point in better
                if kept:
                    self.scores.setdefault(line.client, {})[point] = test
                    for metric in [metric for metric, points in line.others.items() if point in points]:
                        others = self.others.setdefault(metric, {}).setdefault(line.client, {})
                        others[point] = line.others[metric][point][0]
        self.losses.add(lines)
        self._done += 1
        report = RoundReport(
            round=self._done,
            took_part=sum(line.took_part for line in lines),
            up=Ledger.sum(line.up for line in lines),
            down=Ledger.sum(line.down for line in lines),
            paper_up=sum(line.paper_up for line in lines),
            paper_down=sum(line.paper_down for line in lines),
            flops=sum(line.flops for line in lines),
            clock=max((line.clock for line in lines), default=self.rounds[-1].clock if self.rounds else 0.0),
            scores=scores,
            validation=validation,
            others=self._others(lines),
        )
        self.rounds.append(report)
        return report

    def _others(self, lines: list[ClientRecord]) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return the summary of a round by the metrics that do not decide."""
        found: dict[str, dict[str, dict[ClientId, float]]] = {}
        for line in lines:
            for metric, points in line.others.items():
                for point, (test, _) in points.items():
                    by_client = found.setdefault(metric, {}).setdefault(point, {})
                    if line.client not in self._small:
                        by_client[line.client] = test
        out: dict[str, dict[str, dict[str, float | None]]] = {}
        for metric, by_point in found.items():
            one = known(metric)
            higher = one is None or one.higher_is_better
            out[metric] = {point: summarise(scores, self._sizes, higher) for point, scores in by_point.items()}
        return out

    def _improved(self, client: ClientId, point: str, score: float | None) -> bool:
        """True if this validation score is the best so far; without scores, the newest evaluation is."""
        old = self._best.get((client, point))
        if score is None or math.isnan(score):
            return old is None
        if old is not None and (score <= old if self._higher else score >= old):
            return False
        self._best[client, point] = score
        return True

    def kept(self, point: str, metric: str | None = None) -> Mapping[str, float | None] | None:
        """Return the scores at this point of the kept models, by the first metric or another one."""
        if self._keep != "last":
            of = self.scores if metric is None else self.others.get(metric, {})
            scores = {k: own[point] for k, own in of.items() if point in own and k not in self._small}
            one = None if metric is None else known(metric)
            higher = self._higher if metric is None else one is None or one.higher_is_better
            return summarise(scores, self._sizes, higher) if scores else None
        for report in reversed(self.rounds):
            measured = report.scores if metric is None else report.others.get(metric, {})
            if point in measured:
                return measured[point]
        return None

    def validated(self, point: str) -> float | None:
        """Return the mean validation score at this point of the kept models."""
        if self._keep == "last":
            return next((r.validation[point] for r in reversed(self.rounds) if point in r.validation), None)
        each = self._keep == "best-per-client"
        best = [score for (client, at), score in self._best.items() if at == point and bool(client) == each]
        return sum(best) / len(best) if best else None

    @property
    def best_round(self) -> int:
        """Return the round with the best mean validation score before local training; 0 if none was measured."""
        picked = self.picked("pre")
        return 0 if picked is None else picked.round

    def stalled(self, patience: int) -> bool:
        """True if the last `patience` evaluations brought no better mean validation score (0: never)."""
        later = [r for r in self.rounds if r.round > self.best_round and r.validation.get("pre") is not None]
        return 0 < patience <= len(later)

    def picked(self, point: str) -> RoundReport | None:
        """Return the round with the best mean validation score at this point; the earliest of equals."""
        sign = 1 if self._higher else -1
        rated = [(r, r.validation.get(point)) for r in self.rounds]
        known = [(report, value) for report, value in rated if value is not None]
        return max(known, key=lambda pair: (sign * pair[1], -pair[0].round))[0] if known else None
