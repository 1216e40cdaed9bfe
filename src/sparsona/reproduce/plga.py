"""Table 2 of "Personalized Heterogeneous Federated Learning with Gradient Similarity": LGA and PLGA with five of ten
clients late, by one to five rounds; and, which the paper has not, methods at equal simulated seconds on phones.

The paper takes 800 rounds of 20 batches of 64 at a learning rate of 0.001. Its authors' client reads its samples class
by class and never shuffles them, so that a round sees two or three of its six classes: `stored`. `shuffled` is what
everyone else does. Both are run. `quick` takes digits (60 rounds of 5 batches of 8, five seeds) and 12,000 images of
mnist (60 rounds of 8 batches of 32, three seeds): a round then sees nearly half of a client's samples, too. 60 is a
multiple of all stragglers' cycles. `day` has 240 rounds of the same on mnist, and two seeds. Every row chooses its
learning rate on validation samples, in a third of the rounds (`day`: in a sixth).

The paper's "server" accuracy is `pre` of the methods with one model. Its "client" accuracy is read off the records
(:func:`held`): each client with the model that it holds, stragglers with their stale ones; under PLGA with the
mixture that it got last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsona.files import write_atomically
from sparsona.prepare import Prepared
from sparsona.report import curves
from sparsona.reproduce import PAPERS, Case, Claim, Grid, Paper, Runs, Size, finished, lines_of, number, spread
from sparsona.reproduce._excerpt import AS_IT_IS, excerpt
from sparsona.reproduce._verdicts import (
    At,
    above,
    exceeds,
    extra,
    interval,
    never,
    score,
    values,
    within,
)
from sparsona.reproduce.spfl import EXCERPT, PARTITIONS, PaperRow
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import ClientRecord

ORDERS = ("stored", "shuffled")
ROWS = {
    "fedavg-stale": PaperRow("fedavg-stale", {}, (None, 0.9724, 0.4209)),
    "lga": PaperRow("lga", {}, (None, 0.9748, 0.4406)),
    "plga": PaperRow("plga", {}, (None, 0.9783, 0.4611)),
    "fedavg-drop": PaperRow("fedavg-drop", {}, (None, 0.9731, 0.4236), {"straggling": "absent"}),
    "per-fedavg": PaperRow("per-fedavg", {"variant": "repository"}, (None, 0.9727, 0.4179)),
    "fedasync": PaperRow("fedasync", {}, (None, 0.9718, 0.4359)),
    "local": PaperRow("local"),
    "fedavg-drop-all": PaperRow("fedavg-drop"),
    "fedasync-code": PaperRow("fedasync", {"variant": "repository"}, (None, 0.9718, 0.4359)),
    "lga-eq10": PaperRow("lga", {"eq": 10}),
    "plga-eq10": PaperRow("plga", {"eq": 10}),
}
RIVALS = ("fedavg-stale", "fedavg-drop", "per-fedavg", "fedasync")
MAIN = ("fedavg-stale", "lga", "plga", "fedavg-drop", "per-fedavg", "fedasync", "local")
"""What `quick` and `day` run on mnist."""
LENGTHS: dict[str, dict[Size, dict[str, Any]]] = {
    "digits": {
        q: {"batch": 8, "steps": 5, "rounds": 60, "tuned": 20, "rates": (0.05, 0.1, 0.2), "seeds": 5}
        for q in ("quick", "whole")
    },
    "mnist": {
        "quick": {"batch": 32, "steps": 8, "rounds": 60, "tuned": 20, "rates": (0.05, 0.02, 0.1), "seeds": 3},
        "day": {"batch": 32, "steps": 8, "rounds": 240, "tuned": 40, "rates": (0.05, 0.02, 0.1), "seeds": 2},
        "whole": {"batch": 64, "steps": 20, "rounds": 800, "tuned": 266, "rates": (0.001, 0.003, 0.01), "seeds": 3},
    },
    "cifar-10": {
        "whole": {"batch": 64, "steps": 20, "rounds": 800, "tuned": 266, "rates": (0.001, 0.003, 0.01), "seeds": 3},
    },
}
"""Rounds and what is in them, rounds in which a rate is chosen, and how many seeds, by size."""
COSTS: dict[Size, dict[str, str]] = {
    "quick": {"digits": "a quarter of a CPU hour", "mnist": "a CPU hour"},
    "day": {"mnist": "a CPU hour"},
    "whole": {"digits": "a quarter of a CPU hour", "mnist": "about 60 CPU hours", "cifar-10": "about 60 CPU hours"},
}
"""Of a table."""
WINDOW = 1.5
"""Seconds between two aggregations of the asynchronous runs."""
ON_PHONES: dict[str, tuple[str, dict[str, Any]]] = {
    "local": ("local", {}),
    "fedavg": ("fedavg", {}),
    "spfl": ("spfl", {}),
    "fedavg-deadline": ("fedavg", {"deadline": 3.0}),
    "fedavg-stale": ("fedavg-stale", {"window": WINDOW}),
    "fedasync": ("fedasync", {"window": WINDOW}),
    "plga": ("plga", {"window": WINDOW}),
}


@PAPERS.add
def plga(size: Size) -> Paper:
    """All rows with five stragglers, in both orders, and the race on phones."""
    return Paper(
        title="PLGA: Personalized Heterogeneous Federated Learning with Gradient Similarity, Table 2",
        cases=list(_cases(size)),
        claims=list(_claims(size)),
        drawings={"plga-seconds.md": _at_equal_seconds, "spfl-seconds.png": _draw},
        tables={"The paper's client and server accuracy": _table},
        extra=_held_by_all,
    )


def _cases(size: Size) -> Iterator[Case]:
    split = {"use": "train", "test": 0.2, "validation": 0.0}
    short = size != "whole"
    for nth, data in enumerate(LENGTHS):
        length = LENGTHS[data].get(size)
        if length is None:
            continue
        for order in ORDERS:
            for seed in range(1, 1 + length["seeds"]):
                for place, (name, row) in enumerate(ROWS.items()):
                    if short and data == "mnist" and name not in MAIN:
                        continue
                    yield Case(
                        name=f"{data}-{order}-{name}-{seed}",
                        table=f"{data}, {order} order, five stragglers",
                        settings={
                            "method": row.method,
                            "data": excerpt(data, EXCERPT) if short and data != "digits" else data,
                            "columns": AS_IT_IS if short and data != "digits" else {},
                            "model": "auto" if data == "digits" else "spfl-cnn",
                            "clients": 10,
                            "partition": PARTITIONS["noniid"],
                            "rounds": length["rounds"],
                            "seed": seed,
                            "options": dict(row.options),
                            "training": {"batch": length["batch"], "steps": length["steps"], "order": order},
                            "schedule": {"stragglers": 5, **row.schedule},
                            "split": split,
                            "evaluation": {"every": 1, "post": "participants"},
                        },
                        cost=1e6 * (10 * nth + seed) + 100 * ORDERS.index(order) + place,
                        row=f"{data}-{order}-{name}",
                        grid=Grid("training.lr", length["rates"], length["tuned"]),
                    )
    for name, (method, schedule) in ON_PHONES.items() if size != "day" else ():
        rounds = 30 if "window" in schedule else 10
        yield Case(
            name=f"phones-{name}-1",
            table="mnist, non-IID, on phone-4g",
            settings={
                "method": method,
                "data": excerpt("mnist", EXCERPT) if short else "mnist",
                "columns": AS_IT_IS if short else {},
                "model": "spfl-cnn",
                "clients": 10,
                "partition": PARTITIONS["noniid"],
                "rounds": rounds if short else 10 * rounds,
                "seed": 1,
                "options": {},
                "training": {"batch": 32, "lr": 0.05, "steps": 10},
                "schedule": {"devices": "phone-4g", **schedule},
                "split": split,
                "evaluation": {"every": 6 if "window" in schedule else 2, "post": "participants"},
            },
            cost=1e8,
            row=f"phones-{name}",
        )


CLIENT = extra("client")


def _claims(size: Size) -> Iterator[Claim]:
    for data in (d for d in LENGTHS if size in LENGTHS[d]):
        for order in ORDERS:

            def at(*names: str, data: str = data, order: str = order) -> tuple[str, ...]:
                return tuple(f"{data}-{order}-{name}" for name in names)

            where = f"{data}, {order}"
            command = f"sparsona reproduce plga --size {size} --only '{data}-{order}-*'"
            cost = f"`{command}`: {COSTS[size][data]}"
            for text, check in (
                ("Table 2: PLGA above all others at the paper's client point",
                 above(*at("plga", "lga", *RIVALS), of=CLIENT)),
                ("C5: PLGA above LGA at the paper's client point", above(*at("plga", "lga"), of=CLIENT)),
                ("C5: LGA above the other methods at the paper's client point", above(*at("lga", *RIVALS), of=CLIENT)),
                ("C6: all server models (`pre`; PLGA's is LGA's) within a point (paper: mnist 97.59 to 97.82, cifar-10"
                 " 45.48 to 46.86)", within(0.01, *at("lga", *RIVALS))),
                ("repair of forgetting: PLGA at the client point above LGA's server model (`pre`)",
                 exceeds(At(at("plga")[0], "pre", CLIENT), At(at("lga")[0]))),
                ("LGA's server model above stale averaging (`pre`)", above(*at("lga", "fedavg-stale"))),
                ("against it: `local` above PLGA at the client point", above(*at("local", "plga"), of=CLIENT)),
            ):  # fmt: skip
                yield Claim(f"{text}, {where}", check, cost)
    if size == "day":
        return
    for order in ORDERS:
        cost = "`sparsona reproduce plga --size quick --only 'digits-*'`: half a CPU hour"
        for text, method, of in (
            ("4.2: equation (11) above (10), PLGA at the client point", "plga", CLIENT),
            ("equation (11) above (10), LGA at `pre`", "lga", score),
        ):
            rows = f"digits-{order}-{method}", f"digits-{order}-{method}-eq10"
            yield Claim(f"{text}, digits, {order}", above(*rows, of=of), cost)
    reason, cost = "the paper's 800 rounds", "`sparsona reproduce plga --only 'cifar-10-*'`: about 60 CPU hours"
    if size == "quick":
        yield Claim("Table 2 on CIFAR-10: PLGA 46.11 above LGA 44.06 above the others", never(reason), cost)
    yield Claim("Table 2 on EMNIST and CIFAR-100: PLGA 68.18 and 20.73 above LGA 62.02 and 19.41",
                never("the data are not on this machine"), "about 60 CPU hours each")  # fmt: skip


def held(lines: Sequence[ClientRecord], mixed: bool) -> dict[str, float]:
    """The score of every client with the model that it holds after the last round: the paper's "client" accuracy.

    A client holds what it trained last, `post` of the last round in which it took part. Under PLGA (`mixed`) it holds
    the mixture that was made when its last reply came in: `pre` of that round, for a straggler the last but one of its
    cycle if the next reply is still under way. Clients that never took part hold the start: `pre`.
    """
    last = max(line.round for line in lines)
    by_client: dict[str, dict[int, ClientRecord]] = {}
    for line in lines:
        by_client.setdefault(line.client, {})[line.round] = line
    out = {}
    for client, own in by_client.items():
        starts = sorted(number for number, line in own.items() if line.took_part)
        if not starts:
            out[client] = own[last].test["pre"]
        elif not mixed:
            out[client] = own[starts[-1]].test["post"]
        else:
            cycle = starts[-1] - starts[-2] if len(starts) > 1 else last
            came = starts[-1] + cycle - 1
            came = came if came <= last else starts[-1] - 1
            out[client] = own[came if came in own else last].test["pre"]
    return out


def _held_by_all(folder: RunDirectory, prepared: Prepared) -> Mapping[str, float]:
    schedule = prepared.experiment.schedule
    if not schedule.stragglers or prepared.experiment.evaluation.every != 1:
        return {}
    found = held(lines_of(folder), prepared.experiment.method == "plga")
    return {"client": sum(found.values()) / len(found)}


def _table(runs: Runs) -> str:
    columns = ("row", "order", "paper's client", "client", "server (`pre`)", "seeds", "rate")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for place, data in enumerate(LENGTHS):
        for order in ORDERS:
            for name, row in ROWS.items():
                own = f"{data}-{order}-{name}"
                client, server = (list(values(runs, own, "pre", of).values()) for of in (CLIENT, score))
                if client:
                    printed = row.paper[place]
                    rate = next(iter(runs[own].values()))["chosen"]["training.lr"]
                    shown = "LGA's" if row.method == "plga" else spread(server)
                    cells = [f"{data}-{name}", order, number(printed), spread(client),
                             shown, str(interval(client).seeds), f"{rate:g}"]  # fmt: skip
                    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def at_second(found: Sequence[curves.Mark], second: float) -> float | None:
    """The score that was measured last at or before `second`; None before the first, and for a run that has ended."""
    until = [mark.score for mark in found if mark.seconds <= second]
    return until[-1] if until and found[-1].seconds >= second else None


def equal_seconds(found: Mapping[str, Sequence[curves.Mark]]) -> list[float]:
    """The seconds in which a run ends and at least one other goes on; the first of them all have reached."""
    ends = sorted(curve[-1].seconds for curve in found.values())
    return list(dict.fromkeys(ends[:-1]))


def _at_equal_seconds(runs: Path, to: Path) -> bool:
    """The scores of all runs on phones at the same seconds."""
    found = _on_phones(runs)
    seconds = equal_seconds(found)
    lines = [f"| run | {' | '.join(f'{second:.1f} s' for second in seconds)} |", "|---" * (len(seconds) + 1) + "|"]
    for name, curve in found.items():
        scores = [at_second(curve, second) for second in seconds]
        lines.append(f"| {name} | {' | '.join('-' if s is None else f'{100 * s:.2f}' for s in scores)} |")
    write_atomically(to, "\n".join(lines) + "\n")
    return bool(seconds)


def _on_phones(runs: Path) -> dict[str, list[curves.Mark]]:
    """The curves of the finished runs on phones, by row."""
    done = [name for name in finished(plga("quick").cases, runs) if name.startswith("phones-")]
    return {name.removeprefix("phones-").rpartition("-")[0]: curves.marks(runs / name, "pre") for name in done}


def _draw(runs: Path, to: Path) -> bool:
    """Accuracy over simulated seconds, and over bytes."""
    found = _on_phones(runs)
    if found:
        curves.draw(found, to, "pre", ("seconds", "bytes"), "test accuracy")
    return bool(found)
