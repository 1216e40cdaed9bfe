"""Mutated heads and files, many of them: each is refused in one line of ours, or read.

    python benchmarks/mutants.py [--count 100000]

The mutations are those of the property tests (tests/engines/mutations.py). A row of the table is what was mutated:
how many were refused and read, foreign exceptions, and the slowest in seconds.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import sparsona
from sparsona.data.folder import read_table
from sparsona.data.schema.format import Format
from sparsona.engines.network import heads
from sparsona.engines.network.flower.started.sparsona_records import BadParcel, from_text
from sparsona.errors import SparsonaError
from sparsona.experiment import build, parsed
from sparsona.export.card import card_of
from sparsona.export.files import model_of
from sparsona.runs.about import FILE as ABOUT
from sparsona.runs.about import read_about
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import read_records
from sparsona.version import __version__

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))

from mutations import damaged, mutated

HASH, RUN = "ab" * 32, "0f" * 16
QUESTIONS = (
    heads.Proposal(run=RUN, experiment='method = "fedavg"'),
    heads.Agreed(run=RUN, experiment='method = "fedavg"', clients=("a", "b")),
    heads.TurnOrder(run=RUN, job="fit", round=1, phase=0),
    heads.Finish(run=RUN, round=3, phase=0),
)
ANSWERS = (
    heads.Greeting(name="a", sparsona=__version__, scores=True, model="mlp", sizes=(9, 1, 2)),
    heads.ModelReady(fingerprint=HASH),
    heads.TurnReply(paper=3, scores={"pre": (0.5, None)}, loss=0.7, seconds=1.0, flops=5, samples=9.0),
    heads.Finished(memory=HASH),
)


@dataclass
class Tally:
    """What became of the mutants of one kind."""

    found: Counter[str] = field(default_factory=Counter)
    foreign: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def take(self, act: Callable[[], Any]) -> None:
        began = time.process_time()
        try:
            act()
            self.found["read"] += 1
        except (SparsonaError, BadParcel):
            self.found["refused"] += 1
        except Exception as error:  # noqa: BLE001  (that is what is measured)
            self.foreign[f"{type(error).__name__}: {error}"[:100]] += 1
        self.slowest = max(self.slowest, time.process_time() - began)


def finished_run(folder: Path) -> Path:
    """A run of two rounds on tables, whose files are mutated."""
    rng = np.random.default_rng(1)
    (folder / "wards").mkdir()
    for ward in ("east", "west"):
        rows = [f"{rng.normal():.3f},{rng.choice(['f', 'm'])},{rng.choice(['no', 'yes'])}" for _ in range(40)]
        (folder / "wards" / f"{ward}.csv").write_text("age,sex,ill\n" + "\n".join(rows) + "\n")
    columns = {"target": "ill", "categorical": "sex"}
    data, out = f"folder:{folder / 'wards'}", folder / "run"
    sparsona.run("fedavg", data=data, columns=columns, rounds=2, clients=0, partition="groups", out=out)
    return out


def cases(run: Path) -> Mapping[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any]]]:
    """What is mutated, and what reads it."""
    model, scratch = RunDirectory(run).model_file("east").read_bytes(), run.parent / "scratch"
    scratch.mkdir()
    card = model_of(model, ".safetensors", "").card
    line = (run / "records.jsonl").read_text().splitlines()[0]

    def written(name: str, data: bytes) -> Path:
        (scratch / name).write_bytes(data)
        return scratch / name

    def answered(tree: Any) -> None:
        head = from_text(json.dumps(tree))
        kind = next((type(one) for one in ANSWERS if one.head["kind"] == head["kind"]), heads.Whole)
        read = heads.greeting(head) if kind is heads.Greeting else heads.answer(head, kind)
        if isinstance(read, heads.TurnReply):
            heads.scores_of(read, ["accuracy"])

    return {
        "heads to a node": (
            st.sampled_from([one.head for one in QUESTIONS]).flatmap(mutated),
            lambda tree: heads.question(from_text(json.dumps(tree))),
        ),
        "heads to the server": (st.sampled_from([one.head for one in ANSWERS]).flatmap(mutated), answered),
        "cards": (mutated(json.loads(card.text())), lambda tree: card_of(json.dumps(tree), "a model")),
        "models": (damaged(model), lambda data: model_of(data, ".safetensors", "a model")),
        "experiments": (
            damaged((run / "experiment.toml").read_bytes()),
            lambda data: build(parsed(data.decode("utf-8", "replace"), "a.toml"), "a.toml"),
        ),
        "records": (
            mutated(json.loads(line)),
            lambda tree: [one.text() for one in read_records(written("records", json.dumps(tree).encode()))],
        ),
        "about.json": (
            damaged((run / ABOUT).read_bytes()),
            lambda data: read_about(written(ABOUT, data).parent),
        ),
        "tables": (
            damaged((run.parent / "wards" / "east.csv").read_bytes()),
            lambda data: read_table(written("east.csv", data), "east").read(Format()),
        ),
    }


def tally(strategy: st.SearchStrategy[Any], act: Callable[[Any], Any], count: int) -> Tally:
    """Read `count` mutants."""
    out = Tally()
    how = settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate], derandomize=True)

    @settings(how, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def each(mutant: Any) -> None:
        out.take(lambda: act(mutant))

    each()
    return out


def report(count: int) -> int:
    """Print the table of `count` mutants in all; returns how many ended in a foreign exception."""
    print("| mutated | refused | read | foreign | slowest (s) |\n|---|---|---|---|---|")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        several = cases(finished_run(Path(folder)))
        for name, (strategy, act) in several.items():
            found = tally(strategy, act, count // len(several))
            bad += sum(found.foreign.values())
            counts = f"{found.found['refused']} | {found.found['read']} | {sum(found.foreign.values())}"
            print(f"| {name} | {counts} | {found.slowest:.3f} |", flush=True)
            for why, times in found.foreign.most_common(5):
                print(f"    {times} x {why}", flush=True)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="mutants in all")
    given = parser.parse_args()
    logging.getLogger("sparsona").setLevel(logging.ERROR)
    sys.exit(1 if report(given.count) else 0)


if __name__ == "__main__":
    main()
