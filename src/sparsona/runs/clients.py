"""clients.csv of a run: each client's rows and scores with intervals."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparsona.errors import RunError
from sparsona.files import read_regular, write_whole
from sparsona.method import ClientId
from sparsona.metrics import in_percent
from sparsona.words import counted

Z = 1.959964  # the normal quantile of a 95 % interval


@dataclass(frozen=True)
class Score:
    """A score and, for a share of right answers, its 95 % interval."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class ExpertScore:
    """An expert of a client's pool: its weight, and its own score on the client's test rows."""

    name: str
    share: float
    score: float


TRAVELS = ("shared", "own")
"""Experts of a pool that are made from the method's model; all others never leave the client."""


def expert_sentence(experts: Sequence[ExpertScore], together: float, metric: str, rows: int) -> str:
    """Return one sentence about what each expert adds for a client, by `rows` test rows.

    >>> pool = [ExpertScore("trees", 0.48, 0.814), ExpertScore("shared", 0.52, 0.802)]
    >>> expert_sentence(pool, 0.835, "accuracy", 210)
    'alone with trees 81.4, together 83.5 (accuracy in %, 210 test rows); your share of the shared model: 0.52'
    """
    scale, digits = (100, ".1f") if in_percent(metric) else (1, ".4g")
    alone = " or ".join(f"{one.name} {scale * one.score:{digits}}" for one in experts if one.name not in TRAVELS)
    share = sum(one.share for one in experts if one.name in TRAVELS)
    unit = f"{metric}{' in %' if in_percent(metric) else ''}, {counted(rows, 'test row')}"
    told = f"together {scale * together:{digits}} ({unit}); your share of the shared model: {share:.2f}"
    return f"alone with {alone}, {told}" if alone else told


@dataclass(frozen=True)
class ClientScores:
    """One client: its rows, and its score at each point; none with too few test rows.

    `others` are its scores at each point by the other metrics, `experts` the experts of its pool.
    """

    client: ClientId
    train: int
    validation: int
    test: int
    scores: Mapping[str, Score] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, Score]] = field(default_factory=dict)
    experts: tuple[ExpertScore, ...] = ()

    def about_pool(self, metric: str) -> str:
        """Return what each expert of the client's pool adds; empty without a pool or a score."""
        if not self.experts or "pre" not in self.scores:
            return ""
        return f"{self.client}: {expert_sentence(self.experts, self.scores['pre'].value, metric, self.test)}"

    def all_scores(self) -> dict[str, Score]:
        """Return every score by its column: `pre`, or `pre log-loss` for a metric that does not decide."""
        others = {
            f"{point} {metric}": score for metric, points in self.others.items() for point, score in points.items()
        }
        return {**self.scores, **others}


def wilson(share: float, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of right answers (Wilson, 1927).

    >>> [round(bound, 3) for bound in wilson(1.0, 5)], [round(bound, 3) for bound in wilson(0.5, 100)]
    ([0.566, 1.0], [0.404, 0.596])
    """
    if not rows:
        return math.nan, math.nan
    scale = 1 + Z * Z / rows
    middle = (share + Z * Z / (2 * rows)) / scale
    half = Z / scale * math.sqrt(share * (1 - share) / rows + Z * Z / (4 * rows * rows))
    return max(0.0, middle - half), min(1.0, middle + half)


def scored(value: float, rows: int, is_share: bool) -> Score:
    """Return a score with its interval."""
    return Score(value, *wilson(value, rows)) if is_share and not math.isnan(value) else Score(value)


def pooled(repeats: Sequence[Sequence[ClientScores]], is_share: bool, fewest: int) -> list[ClientScores]:
    """Pool the scores of repeated splits of the same clients: the mean over all tested rows.

    A row may be tested more than once, so an interval counts no more rows than the client has.
    """
    out = []
    for several in zip(*repeats, strict=True):
        first = several[0]
        tested = sum(one.test for one in several)
        distinct = min(tested, first.train + first.validation + first.test)
        points = {point for one in several for point in one.scores}
        means = {
            point: sum(one.scores[point].value * one.test for one in several if point in one.scores)
            / max(sum(one.test for one in several if point in one.scores), 1)
            for point in sorted(points)
        }
        scores = {p: scored(mean, distinct, is_share) for p, mean in means.items() if distinct >= fewest}
        out.append(ClientScores(first.client, first.train, first.validation, tested, scores))
    return out


def write_clients(path: Path, clients: Iterable[ClientScores]) -> None:
    """Write one line per client; a cell without a score is empty."""
    rows = list(clients)
    names = {name: None for one in rows for name in one.all_scores()}
    points = sorted(names, key=lambda name: (" " in name, ("pre", "post", "ft").index(name.split(" ")[0])))
    with io.StringIO() as file:
        out = csv.writer(file, lineterminator="\n")
        pool = list(dict.fromkeys(expert.name for one in rows for expert in one.experts))
        columns = (*(f"{p}{s}" for p in points for s in SUFFIXES), *(f"{e}{s}" for e in pool for s in EXPERT))
        out.writerow(["client", "train", "validation", "test", *columns])
        for one in rows:
            held = one.all_scores()
            cells = [cell for p in points for cell in _cells(held.get(p))]
            known = {expert.name: (repr(expert.share), repr(expert.score)) for expert in one.experts}
            cells += [cell for name in pool for cell in known.get(name, ("", ""))]
            out.writerow([one.client, one.train, one.validation, one.test, *cells])
        write_whole(path, file.getvalue().encode())  # a hard link of that name keeps its content


SUFFIXES = ("", "_low", "_high")
EXPERT = ("_share", "_alone")  # the columns of an expert: its weight in the pool, and its score by itself


def read_clients(path: Path) -> list[ClientScores]:
    """Read the file of :func:`write_clients`."""
    try:
        text = read_regular(path).decode()
        return [_client(row) for row in csv.DictReader(io.StringIO(text, newline=""))]
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}; run it again into another --out") from None
    except (KeyError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise RunError(f"{path} is damaged ({error!r}): run it again into another --out") from None


def _client(row: Mapping[str, str]) -> ClientScores:
    points = [name for name in row if f"{name}_low" in row and row[name]]
    found = {p: Score(*(float(row[p + s]) if row[p + s] else math.nan for s in SUFFIXES)) for p in points}
    scores = {name: score for name, score in found.items() if " " not in name}
    others: dict[str, dict[str, Score]] = {}
    for name, score in found.items():
        point, space, metric = name.partition(" ")
        if space:
            others.setdefault(metric, {})[point] = score
    names = [name.removesuffix(EXPERT[0]) for name, cell in row.items() if name.endswith(EXPERT[0]) and cell]
    experts = tuple(ExpertScore(name, *(float(row[name + s]) for s in EXPERT)) for name in names)
    train, validation, test = (int(row[part]) for part in ("train", "validation", "test"))
    return ClientScores(row["client"], train, validation, test, scores, others, experts)


def _cells(score: Score | None) -> list[str]:
    values = (math.nan,) * 3 if score is None else (score.value, score.low, score.high)
    return ["" if math.isnan(value) else repr(value) for value in values]
