"""Choose the engine if the experiment does not name one: the pool if it saves time, else one process."""

import math
from collections.abc import Mapping

from sparsona.engines.child import POSIX
from sparsona.engines.shipping import picklable
from sparsona.experiment import Experiment
from sparsona.federation.setup import Setup
from sparsona.system import cores
from sparsona.training.fused import TrainerName
from sparsona.training.runner import ModelRunner

SECONDS_A_STEP, SECONDS_A_FLOP = 3e-4, 1e-11
FEWEST: Mapping[TrainerName, int] = {"plain": 2, "fused": 4}
"""Smallest number of workers for which the pool is used. A turn of a tiny net is shorter than the way to a worker and
back: two workers were no faster than one process (docs/speed.md). Four is a guess."""

WORTHWHILE = 10.0
"""Seconds of work on one core above which the pool is used: its workers take two or three seconds to start."""


def choose_engine(experiment: Experiment, setup: Setup, seconds: float) -> str:
    """Return the pool, unless starting it takes longer than it saves. Results do not depend on the choice."""
    if not POSIX or experiment.device != "cpu":
        return "inprocess"
    if min(experiment.workers or cores(), cores()) < FEWEST[setup.trainer]:
        return "inprocess"
    return "pool" if seconds > WORTHWHILE and picklable(setup) else "inprocess"


def training_seconds(experiment: Experiment, setup: Setup, runner: ModelRunner) -> float:
    """Estimate the training time on one core in seconds."""
    config, evaluation = setup.config, experiment.evaluation
    turns = experiment.schedule.sample
    if evaluation.every and evaluation.post == "everyone":
        turns += (1 - turns) / evaluation.every
    examples = [len(share.train) for share in setup.federation.splits.values()]
    steps = sum(config.steps or config.epochs * math.ceil(n / config.batch) for n in examples) * config.repeats
    runner.flops = 0
    runner.count(1)
    return turns * experiment.rounds * steps * (SECONDS_A_STEP + config.batch * runner.flops * SECONDS_A_FLOP)
