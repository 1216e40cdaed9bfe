"""How long cases take on one core: for the commands that stand beside a claim.

A step of SPFL's net takes 0.3 ms a sample of 28 x 28 pixels and 0.5 ms a sample of 32 x 32 x 3 on one thread (measured
in 2026 with batches of 32 to 128, on a machine busy with other runs), and a test a third of it. Digits take 0.05 ms,
most of it for the messages. Kept runs took up to twice as long, beside each other and with what they send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import lru_cache
from itertools import takewhile
from typing import Any

from sparsona.reproduce import SIZES, Case, Size

MILLISECONDS = {"digits": 0.05, "mnist": 0.3, "emnist": 0.3, "cifar-10": 0.5, "cifar-100": 0.5}
PER_CLASS = {"digits": 180, "mnist": 6_000, "emnist": 2_400, "cifar-10": 5_000, "cifar-100": 500}
"""Images of a class in the part that is used."""
STEPS = {"spfl": 2.0, "spfl-w": 2.0, "pfedme": 2.0, "per-fedavg": 2.1}
"""Steps that a method takes on every batch, where that is not one."""

Cases = Callable[[Size], Iterable[Case]]


def settled_by(paper: str, cases: Cases, rows: Sequence[str], pattern: str = "") -> str:
    """The command that runs these rows, and its CPU hours: of the first size that has them all. Without a `pattern` it
    runs what begins as all of them do."""
    size = next(size for size in SIZES if set(rows) <= _by_row(cases, size).keys())
    pattern = pattern or (f"{rows[0]}-*" if len(set(rows)) == 1 else f"{_beginning(rows)}*")
    return _command(paper, cases, size, pattern)


@lru_cache(maxsize=1024)
def _command(paper: str, cases: Cases, size: Size, pattern: str) -> str:
    own = [case for group in _by_row(cases, size).values() for case in group if fnmatch(case.name, pattern)]
    option = "" if size == "whole" else f" --size {size}"
    needs = [data for data in ("emnist", "cifar-100") if any(case.settings["data"] == data for case in own)]
    first = "".join(f"`sparsona data get {data}`, " for data in needs)
    return f"{first}`sparsona reproduce {paper}{option} --only '{pattern}'`: about {told(own)}"


def _beginning(texts: Sequence[str]) -> str:
    """
    >>> _beginning(["mnist-iid-spfl", "mnist-iid-spfl-w", "mnist-iid-spfl-1"])
    'mnist-iid-spfl'
    """
    return "".join(first for first, *_ in takewhile(lambda found: len(set(found)) == 1, zip(*texts, strict=False)))


def told(own: Sequence[Case]) -> str:
    """The CPU time of some cases with the trials that choose their rates, in words.

    >>> told([Case("a", "t", {"method": "fedavg", "data": "mnist", "rounds": 100, "partition": "classes:6:own"})])
    '17 CPU minutes'
    """
    rows = {case.of: case for case in own}
    trials = sum(len(case.grid.values) * hours(case, case.grid.rounds) for case in rows.values() if case.grid)
    found = sum(map(hours, own)) + trials
    count, unit = (found, "hour") if found > 0.9 else (60 * found, "minute")
    return f"{round(count)} CPU {unit}s" if count >= 1.5 else f"a CPU {unit}"


def hours(case: Case, rounds: int = 0) -> float:
    """The CPU hours of a run, or of its first `rounds`."""
    settings, training = case.settings, case.settings.get("training", {})
    options: dict[str, Any] = settings.get("options", {})
    data, images = _source(settings)
    classes = int(settings["partition"].split(":")[1])
    held = classes * (images or PER_CLASS[data])
    clients, late = settings.get("clients", 10), settings.get("schedule", {}).get("stragglers", 0)
    asked = clients - late + sum(1 / (m + 1) for m in range(1, late + 1))
    passes = training["steps"] * training["batch"] * asked if "steps" in training else 0.8 * held
    repeats = 1.0 if options.get("steps") == "one" else STEPS.get(settings["method"], training.get("repeats", 1))
    measured = 1 + 1 / options["gamma"] if "gamma" in options else 1.0
    every = settings.get("evaluation", {}).get("every", 1)
    tests = 0.2 * held * (1 + asked / clients) / (3 * every) if every else 0.0
    work = float(passes * training.get("epochs", 1) * repeats * measured + tests)
    return int(rounds or settings["rounds"]) * work * MILLISECONDS[data] / 3.6e6


def _source(settings: Mapping[str, Any]) -> tuple[str, int]:
    """The data set behind a case, and how many images of a class an excerpt of it has; 0: all."""
    spec = str(settings["data"])
    if not spec.startswith("npz:"):
        return spec, 0
    name, _, count = spec.rpartition("/")[2].removesuffix(".npz").rpartition("-")
    return name, int(count) // 10 if count.isdigit() else 0


@lru_cache
def _by_row(cases: Cases, size: Size) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases(size):
        found.setdefault(case.of, []).append(case)
    return found
