"""Table 2 of "Personalized Heterogeneous Federated Learning with Gradient Similarity": LGA and PLGA with five of ten
clients late, by one to five rounds; and, which the paper has not, methods at equal simulated seconds on phones.

The paper takes 800 rounds of 20 batches of 64 at a learning rate of 0.001. `quick` takes 16 rounds of 10 batches of 32
at 0.05 and two seeds. Its "client" accuracy is `post` for methods with one model and `pre`, the mixture, for PLGA; its
"server" accuracy is `pre` of LGA and FedAvg. At the last round some stragglers are under way with an older reply: their
`post` is a training that never was. plga-post.md has the scores of those who did train in that round.

On phones the runs end at different seconds: plga-seconds.md reads all curves at the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from sparsona.files import write_atomically
from sparsona.report import curves
from sparsona.reproduce import PAPERS, Case, Claim, Paper, Summary, finished, verdicts
from sparsona.reproduce.spfl import PARTITIONS, SEEDS, Row, above, deviation, means, means_of, within
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import by_round

DATA = ("mnist", "cifar-10")
ROWS = {
    "local": Row("local"),
    "fedavg-stale": Row("fedavg-stale", {}, (0.9724, 0.4209)),
    "fedavg-drop": Row("fedavg-drop", {}, (0.9731, 0.4236), {"straggling": "absent"}),
    "fedavg-drop-all": Row("fedavg-drop"),
    "per-fedavg": Row("per-fedavg", {"variant": "repository", "beta": 0.001}, (0.9727, 0.4179)),
    "fedasync": Row("fedasync", {}, (0.9718, 0.4359)),
    "fedasync-code": Row("fedasync", {"variant": "repository"}, (0.9718, 0.4359)),
    "lga": Row("lga", {}, (0.9748, 0.4406)),
    "lga-eq10": Row("lga", {"eq": 10}),
    "plga": Row("plga", {}, (0.9783, 0.4611)),
}
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
def plga(quick: bool) -> Paper:
    """All rows on mnist and cifar-10 with five stragglers, and the race on phones."""
    cases = list(_cases(quick))
    return Paper(
        title="PLGA: Personalized Heterogeneous Federated Learning with Gradient Similarity, Table 2",
        cases=cases,
        claims=CLAIMS,
        drawings={
            "plga-means.md": means_of(cases),
            "plga-post.md": _real_post(cases),
            "plga-seconds.md": _at_equal_seconds,
            "spfl-seconds.png": _draw,
        },
    )


def _cases(quick: bool) -> Iterator[Case]:
    training = {"batch": 32, "lr": 0.05, "steps": 10} if quick else {"batch": 64, "lr": 0.001, "steps": 20}
    shared: dict[str, Any] = {
        "model": "spfl-cnn",
        "clients": 10,
        "partition": PARTITIONS["noniid"],
        "training": training,
        "split": {"use": "train", "test": 0.2, "validation": 0.0},
    }
    for number, data in enumerate(DATA):
        for seed in SEEDS[quick]:
            for name, row in ROWS.items():
                yield Case(
                    name=f"{data}-{name}-{seed}",
                    table=f"{data}, five stragglers",
                    settings={
                        **shared,
                        "method": row.method,
                        "data": data,
                        "rounds": 16 if quick else 800,
                        "seed": seed,
                        "options": dict(row.options),
                        "schedule": {"stragglers": 5, **row.schedule},
                        "evaluation": {"every": 0 if quick else 50},
                    },
                    paper=row.paper[number],
                    cost=1e6 * (10 * seed + number),
                )
    for seed in SEEDS[quick][: 1 if quick else None]:
        for name, (method, schedule) in ON_PHONES.items():
            rounds = 30 if "window" in schedule else 10
            yield Case(
                name=f"phones-{name}-{seed}",
                table="mnist, non-IID, on phone-4g",
                settings={
                    **shared,
                    "method": method,
                    "data": "mnist",
                    "rounds": rounds if quick else 10 * rounds,
                    "seed": seed,
                    "options": {},
                    "schedule": {"devices": "phone-4g", **schedule},
                    "evaluation": {"every": 6 if "window" in schedule else 2, "post": "participants"},
                },
                cost=1e6 * (10 * seed + 5),
            )


ONE_MODEL = ("lga", "fedavg-stale", "fedavg-drop", "per-fedavg", "fedasync")
AT_POST = [
    claim
    for data in DATA
    for claim in (
        Claim(f"C5: PLGA (`pre`, its mixture) above LGA (`post`), {data}",
              above(f"{data}-plga", f"{data}-lga", other_point="post")),
        Claim(f"C5: LGA above the other methods at `post`, {data}",
              above(*(f"{data}-{m}" for m in ONE_MODEL), point="post")),
    )
]  # fmt: skip
CLAIMS = AT_POST + [
    claim
    for data in DATA
    for claim in (
        Claim(f"PLGA above LGA, both at `pre`, {data}", above(f"{data}-plga", f"{data}-lga")),
        Claim(f"PLGA above LGA, both at `post`, {data}", above(f"{data}-plga", f"{data}-lga", point="post")),
        Claim(f"C6: all server models (`pre`) within a point, {data}",
              within(0.01, *(f"{data}-{m}" for m in ONE_MODEL))),
        Claim(f"LGA's server model above stale averaging (`pre`), {data}",
              above(f"{data}-lga", f"{data}-fedavg-stale")),
        Claim(f"equation (11) above (10) at `pre`, {data}", above(f"{data}-lga", f"{data}-lga-eq10")),
        Claim(f"against it: `local` above PLGA (`pre`), {data}", above(f"{data}-local", f"{data}-plga")),
    )
]  # fmt: skip


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


def trained_last(folder: Path) -> Summary:
    """A summary of a run over the clients that took part in its last round: their `post` is of a training that was."""
    lines = list(by_round(RunDirectory(folder).lines()).values())[-1]
    last = [line.test for line in lines if line.took_part]
    points = {point: {"mean": mean(test[point] for test in last)} for point in ("pre", "post")}
    return {"metric": "accuracy", "accuracy": points, "clients": len(last)}


def _real_post(cases: Sequence[Case]) -> Callable[[Path, Path], bool]:
    """Writes Table 2 and C5 for the clients that trained in the last round."""
    late = [case for case in cases if "stragglers" in case.settings["schedule"]]

    def write(runs: Path, to: Path) -> bool:
        done = {name: trained_last(runs / name) for name in finished(Paper("", late), runs)}
        pre, post = (means(late, done, point) for point in ("pre", "post"))
        lines = ["| run | pre | post | clients |", "|---|---|---|---|"]
        for name in pre:
            count = next(found["clients"] for case, found in done.items() if case.rpartition("-")[0] == name)
            lines.append(f"| {name} | {deviation(pre[name])} | {deviation(post[name])} | {count} |")
        lines += ["", "| claim | holds for them |", "|---|---|", *verdicts(AT_POST, done)]
        write_atomically(to, "\n".join(lines) + "\n")
        return bool(done)

    return write


def _on_phones(runs: Path) -> dict[str, list[curves.Mark]]:
    """The curves of the finished runs on phones, by row."""
    done = [name for name in finished(plga(True), runs) if name.startswith("phones-") and name.endswith("-1")]
    return {name.removeprefix("phones-").rpartition("-")[0]: curves.marks(runs / name, "pre") for name in done}


def _draw(runs: Path, to: Path) -> bool:
    """Accuracy over simulated seconds, and over bytes."""
    found = _on_phones(runs)
    if found:
        curves.draw(found, to, "pre", ("seconds", "bytes"), "test accuracy")
    return bool(found)
