"""One evil owner of four on a real network: what does each of its lies cost the others?

    python benchmarks/owners.py [--carriers mailbox,flower] [--out runs/owners.json]

The lies are those of tests/engines/lies.py, at every message of the protocol: the greeting, the agreement, orders to
train and to evaluate, the finish, and the question whether a node is there. The nodes are processes that meet in a
folder (mailbox), or at a SuperLink with TLS on loopback (flower, if it is installed). Each lie has a run of two rounds
with --fewest 3. It costs nothing if the others take part in all rounds and end with the models of a run in which the
evil owner is honest, or in which nothing of it counts. The script continues where it was stopped: see --out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sparsona.engines.network.deploy import LoopbackFederation, MailboxFederation
from sparsona.files import write_atomically

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))

from evil import BAD, GOOD, IDLE, Trial, by_flower, by_mailbox, evil_federation
from lies import LIES


@contextlib.contextmanager
def trial_of(carrier: str, folder: Path) -> Iterator[Trial]:
    """Four nodes and a server on one carrier."""
    clients, mood = (BAD, *GOOD), folder / "mood"
    if carrier == "flower":
        with evil_federation(LoopbackFederation(folder / "f", clients), mood) as loopback:
            yield Trial(loopback, by_flower(loopback), mood)
        return
    nodes = MailboxFederation(folder / "f", clients, mailbox=str(folder / "box"), idle=IDLE)
    with evil_federation(nodes, mood) as running:
        yield Trial(running, by_mailbox(running), mood)


def told(carrier: str, out: Path) -> int:
    """Tell each lie over a carrier; returns how many have cost the others something."""
    found: dict[str, str] = json.loads(out.read_text()) if out.exists() else {}
    left = [lie for lie in LIES if f"{carrier}, {lie}" not in found]
    if left:
        with tempfile.TemporaryDirectory() as folder, trial_of(carrier, Path(folder)) as trial:
            for lie in left:
                with contextlib.redirect_stdout(io.StringIO()):
                    harm = trial.harm(trial.tell(lie))
                found[f"{carrier}, {lie}"] = harm
                write_atomically(out, json.dumps(found, indent=1))
                print(f"{carrier}, {lie}: {harm or 'nothing'}", flush=True)
    harmful = sum(bool(found[f"{carrier}, {lie}"]) for lie in LIES)
    print(f"{carrier}: {len(LIES)} lies, {harmful} cost the others something", flush=True)
    return harmful


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ["mailbox"] if importlib.util.find_spec("flwr") is None else ["mailbox", "flower"]
    parser.add_argument("--carriers", default=",".join(known))
    parser.add_argument("--out", type=Path, default=Path("runs/owners.json"))
    given = parser.parse_args()
    logging.getLogger("sparsona").setLevel(logging.CRITICAL)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    sys.exit(1 if sum([told(carrier, given.out) for carrier in given.carriers.split(",")]) else 0)


if __name__ == "__main__":
    main()
