"""Mutated heads and files, many of them: each is refused in one line of ours, or read.

    python benchmarks/mutants.py [--count 100000] [--out runs/mutants.json]

The mutations are those of the property tests (tests/engines/mutations.py). A row of the table is what was mutated:
how many were refused and read, foreign exceptions, and the slowest in seconds. A mutant that takes more than 10 seconds
of the processor, a minute in all, or more than 2 GB of address space, counts as a foreign exception. The script
continues where it was stopped: the rows that are in --out are not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import sparsona
from sparsona.data.folder import read_npz, read_table
from sparsona.data.schema.columns import Columns, Format
from sparsona.data.schema.description import describe_rows
from sparsona.data.schema.exchange import agree
from sparsona.data.schema.limits import text_in
from sparsona.data.schema.rows import understand
from sparsona.engines.network import heads
from sparsona.engines.network.flower.started.sparsona_records import BadParcel, from_text
from sparsona.errors import SparsonaError
from sparsona.experiment import build, parsed
from sparsona.export.files import card_of, model_of
from sparsona.federation.delivery import LoopState
from sparsona.files import write_atomically
from sparsona.message import Message
from sparsona.method import ClientGraph
from sparsona.report.measured import measure
from sparsona.runs.about import FILE as ABOUT
from sparsona.runs.about import read_about
from sparsona.runs.answers import read_answers
from sparsona.runs.artefacts import load, to_json
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.clients import read_clients
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import read_records
from sparsona.runs.state import unpack
from sparsona.studies.contest import Contest
from sparsona.version import __version__

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))

from mutations import damaged, mutated

SECONDS, MEMORY = 10, 2 * 2**30
"""The most that one mutant may take: seconds, and bytes of address space beside those of the process."""

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


class TooLong(Exception):
    """A mutant that was read for more than `SECONDS`."""


@dataclass
class Tally:
    """What became of the mutants of one kind."""

    found: Counter[str] = field(default_factory=Counter)
    foreign: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def take(self, act: Callable[[], Any]) -> None:
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(6 * SECONDS)
        try:
            act()
            self.found["read"] += 1
        except (SparsonaError, BadParcel):
            self.found["refused"] += 1
        except Exception as error:  # noqa: BLE001  (that is what is measured)
            self.foreign[f"{type(error).__name__}: {error}"[:100]] += 1
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        self.slowest = max(self.slowest, time.process_time() - began)

    def row(self, name: str) -> str:
        """Its row of the table, and below it the commonest foreign exceptions."""
        counts = f"{self.found['refused']} | {self.found['read']} | {sum(self.foreign.values())}"
        faults = "".join(f"\n    {times} x {why}" for why, times in self.foreign.most_common(5))
        return f"| {name} | {counts} | {self.slowest:.3f} |{faults}"


def bound_resources() -> None:
    """Let every mutant that takes too long or too much memory raise an exception."""

    def stop(signum: int, frame: Any) -> None:
        raise TooLong(f"{SECONDS} seconds")

    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, stop)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


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


def bytes_of(tree: Any) -> Any:
    """A text of JSON as a part of a message, with whatever numbers are in it."""
    return np.frombuffer(json.dumps(tree).encode(), np.uint8)


def parquet(folder: Path) -> bytes:
    """A small parquet table of numbers and texts."""
    columns = {"age": [50.5, 61.0, 47.25] * 9, "sex": ["f", "m", "f"] * 9, "ill": [0, 1, 1] * 9}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "whole.parquet")
    return (folder / "whole.parquet").read_bytes()


def descriptions(run: Path) -> dict[str, Message]:
    """What the owners of the run's tables say of their rows before round 1."""
    columns = Columns(target=("ill",), categorical=("sex",))
    owners = {
        file.stem: read_table(file, file.stem).read(Format()) for file in sorted((run.parent / "wards").iterdir())
    }
    return {name: describe_rows(understand(table, columns), np.arange(40)) for name, table in owners.items()}


def cases(run: Path) -> Mapping[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any]]]:
    """What is mutated, and what reads it."""
    model, scratch = RunDirectory(run).model_file("east").read_bytes(), run.parent / "scratch"
    scratch.mkdir()
    card = model_of(model, ".safetensors", "").card
    line = (run / "records.jsonl").read_text().splitlines()[0]

    told, whole = descriptions(run), run.parent / "whole"
    shutil.copytree(run, whole)

    def beside_others(name: str, data: bytes) -> Path:
        """The run with one file changed."""
        (whole / name).write_bytes(data)
        return whole

    def written(name: str, data: bytes) -> Path:
        (scratch / name).write_bytes(data)
        return scratch / name

    def answered(tree: Any) -> None:
        head = from_text(json.dumps(tree))
        kind = next((type(one) for one in ANSWERS if one.head["kind"] == head["kind"]), heads.NeedsReference)
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
        "tables (csv)": (
            damaged((run.parent / "wards" / "east.csv").read_bytes()),
            lambda data: read_table(written("east.csv", data), "east").read(Format()),
        ),
        "tables (npz)": (
            damaged((run / "answers.npz").read_bytes()),
            lambda data: read_npz(written("table.npz", data)),
        ),
        "tables (parquet)": (
            damaged(parquet(scratch)),
            lambda data: read_table(written("east.parquet", data), "east").read(Format()),
        ),
        "answers": (
            damaged((run / "answers.npz").read_bytes()),
            lambda data: read_answers(written("answers.npz", data).parent),
        ),
        "manifests": (
            mutated(json.loads((run / "checkpoint" / "manifest.json").read_text())),
            lambda tree: Checkpointer(written("manifest.json", json.dumps(tree).encode()).parent).progress(),
        ),
        "states": (damaged((run / "checkpoint" / "loop.2").read_bytes()), lambda data: unpack(data, LoopState)),
        "summaries": (
            mutated(json.loads((run / "summary.json").read_text())),
            lambda tree: measure(beside_others("summary.json", json.dumps(tree).encode())),
        ),
        "clients.csv": (
            damaged((run / "clients.csv").read_bytes()),
            lambda data: read_clients(written("clients.csv", data)),
        ),
        "studies": (
            mutated(dataclasses.asdict(Contest(("fedavg", "local"), (0, 1), {"rounds": 3}, ("mu=1",)))),
            lambda tree: Contest.read(written("study.json", json.dumps(tree).encode()).parent),
        ),
        "artefacts": (
            mutated(json.loads(to_json(ClientGraph(("a", "b", "c"), ((0, 1), (1, 2)), (0.5, 0.25))))),
            lambda tree: load(written("network.json", json.dumps(tree).encode()).parent),
        ),
        "descriptions": (
            st.sampled_from(("head", "categories", "classes")).flatmap(
                lambda part: st.tuples(st.just(part), mutated(json.loads(text_in(told["east"], part))))
            ),
            lambda changed: agree(
                {**told, "east": Message(**{**told["east"].parts, changed[0]: bytes_of(changed[1])})}
            ),
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


def report(count: int, out: Path) -> int:
    """Print the table of `count` mutants in all; returns how many ended in a foreign exception."""
    print("| mutated | refused | read | foreign | slowest (s) |\n|---|---|---|---|---|")
    out.parent.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        several = cases(finished_run(Path(folder)))
        bound_resources()
        for name, (strategy, act) in several.items():
            each = -(-count // len(several))
            key = f"{name} x {each}"
            if key not in rows:
                rows[key] = vars(tally(strategy, act, each))
                write_atomically(out, json.dumps(rows, indent=1))
            found = Tally(Counter(rows[key]["found"]), Counter(rows[key]["foreign"]), rows[key]["slowest"])
            bad += sum(found.foreign.values())
            print(found.row(name), flush=True)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="mutants in all")
    parser.add_argument("--out", type=Path, default=Path("runs/mutants.json"))
    given = parser.parse_args()
    logging.getLogger("sparsona").setLevel(logging.ERROR)
    sys.exit(1 if report(given.count, given.out) else 0)


if __name__ == "__main__":
    main()
