"""The paper's "client" accuracy: each client's score with the model that it holds, from a run's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sparsona.prepare import Prepared
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import ClientRecord
from sparsona_papers._differences import Runs, accuracy, interval, score, values
from sparsona_papers._tables import number, spread
from sparsona_papers.plga.plan import LENGTHS, ROWS, orders_of

CLIENT = accuracy("client")
Scores: TypeAlias = Callable[[ClientRecord], Mapping[str, float]]


def tested(line: ClientRecord) -> Mapping[str, float]:
    """A client's scores on its test samples."""
    return line.test


def validated(line: ClientRecord) -> Mapping[str, float]:
    """A client's scores on its validation samples."""
    return line.validation


def held(lines: Sequence[ClientRecord], mixed: bool, of: Scores = tested) -> dict[str, float]:
    """The score of every client with the model that it holds after the last round: the paper's "client" accuracy.

    A client holds the model that it trained last: `post` of its last round. Under PLGA (`mixed`) it holds the mixture
    that was made when its last reply arrived: `pre` of that round. For a straggler whose next reply is still on its
    way, this is the last but one round of its cycle. Clients that never took part hold the start: `pre`.
    """
    last = max(line.round for line in lines)
    by_client: dict[str, dict[int, ClientRecord]] = {}
    for line in lines:
        by_client.setdefault(line.client, {})[line.round] = line
    out = {}
    for client, own in by_client.items():
        starts = sorted(number for number, line in own.items() if line.took_part)
        if not starts:
            out[client] = of(own[last])["pre"]
        elif not mixed:
            out[client] = of(own[starts[-1]])["post"]
        else:
            cycle = starts[-1] - starts[-2] if len(starts) > 1 else last
            came = starts[-1] + cycle - 1
            came = came if came <= last else starts[-1] - 1
            out[client] = of(own[came if came in own else last])["pre"]
    return out


def held_by_all(folder: RunDirectory, prepared: Prepared, of: Scores = tested) -> Mapping[str, float]:
    """Return its mean over the clients; None for a run without stragglers."""
    schedule = prepared.experiment.schedule
    if not schedule.stragglers or prepared.experiment.evaluation.every != 1:
        return {}
    found = held(folder.lines(), prepared.experiment.method == "plga", of)
    return {"client": sum(found.values()) / len(found)}


def held_in_trials(folder: RunDirectory, prepared: Prepared) -> Mapping[str, float]:
    """Return the same on validation samples, in runs that hold some out."""
    return held_by_all(folder, prepared, validated) if prepared.experiment.split.validation else {}


def table(runs: Runs) -> str:
    """The paper's client and server accuracy of every row of Table 2."""
    columns = ("row", "order", "paper's client", "client", "server (`pre`)", "seeds", "rate")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for place, data in enumerate(LENGTHS):
        for order in orders_of(data):
            for name, row in ROWS.items():
                own = f"{data}-{order}-{name}"
                client, server = (list(values(runs, own, "pre", of).values()) for of in (CLIENT, score))
                if client:
                    printed = row.paper[place] if row.paper else None
                    rate = next(iter(runs[own].values()))["chosen"]["training.lr"]
                    shown = "LGA's" if row.method == "plga" else spread(server)
                    cells = [f"{data}-{name}", order, number(printed), spread(client),
                             shown, str(interval(client).seeds), f"{rate:g}"]  # fmt: skip
                    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""
