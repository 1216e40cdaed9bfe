"""Assemble a run, in one place: log, checkpoints and the server's loop."""

from pathlib import Path

from sparsona.federation.engine import Engine
from sparsona.federation.evaluation import EVERY_ROUND, Evaluation
from sparsona.federation.rounds import MEMORY, Rounds
from sparsona.federation.schedule import EVERYONE, Schedule
from sparsona.federation.setup import Setup
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.records import RunLog


def assemble(
    setup: Setup,
    engine: Engine,
    schedule: Schedule = EVERYONE,
    evaluation: Evaluation = EVERY_ROUND,
    *,
    records: Path | None = None,
    checkpoint: Path | None = None,
    fewest: int = 1,
    memory: int = MEMORY,
) -> Rounds:
    """Make the loop of a run that has not begun.

    `records` is the file of its log and `checkpoint` the folder of its checkpoints; without them both stay in memory.
    Clients with fewer than `fewest` test rows count in no mean. `memory` limits the bytes of the server's client state.
    """
    run_log = RunLog(setup.test_rows, setup.objective.higher_is_better, records, fewest, setup.keep)
    checkpointer = None if checkpoint is None else Checkpointer(checkpoint, records)
    return Rounds(setup, engine, schedule, evaluation, run_log, checkpointer, memory)
