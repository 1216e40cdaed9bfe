"""The learning rate `auto`: a few rates are tried with the method itself before round 1, judged on validation rows.

A trial executes the first rounds of the run. Rounds, bytes and seconds of all trials are written into about.json and
summary.json, the chosen rate into experiment.toml.
"""

import dataclasses
import logging
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager

from sparsona.engines import ENGINES
from sparsona.errors import Diverged
from sparsona.experiment import read
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.resources import Resources
from sparsona.federation.rounds import assemble
from sparsona.prepare import Prepared
from sparsona.runs.about import RateSearch, read_about
from sparsona.runs.directory import RunDirectory
from sparsona.training.config import TrainConfig
from sparsona.training.determinism import deterministic

LADDER = 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0
"""The rates of sgd. Those of adam are a hundredth of them."""
USUAL = LADDER.index(TrainConfig().lr)
SHARE, LONGEST = 5, 10
"""A trial has the first fifth of the rounds, and ten at most."""

log = logging.getLogger(__name__)


def settled(prepared: Prepared, folder: RunDirectory | None = None) -> Prepared:
    """Return the experiment with a learning rate that is a number.

    A run in `folder` that is resumed keeps its rate.
    """
    if folder is not None and folder.experiment_file.exists():
        search = read_about(folder.path).rate if (folder.path / "about.json").exists() else None
        rate = read(folder.experiment_file)["training"]["lr"] if prepared.auto else prepared.setup.config.lr
        return dataclasses.replace(_with_rate(prepared, rate), auto=False, search=search)
    if not prepared.auto:
        return prepared
    search = search_rate(prepared)
    rate = _ladder(prepared)[USUAL] if search is None else search.chosen
    return dataclasses.replace(_with_rate(prepared, rate), auto=False, search=search)


def search_rate(prepared: Prepared) -> RateSearch | None:
    """Try rates from the usual one, downwards or upwards, as long as the next rate scores better.

    Return None, and keep the usual rate, with a privacy budget, without validation rows, or if the method does not use
    it.
    """
    setup, ladder = prepared.setup, _ladder(prepared)
    rounds = min(LONGEST, math.ceil(setup.task.rounds / SHARE))
    if "lr" in setup.method.unused:
        return None
    if setup.privacy is not None:
        log.warning("no trials of learning rates: they would spend the privacy budget; it is %g", ladder[USUAL])
        return None
    if not any(len(setup.federation.splits[client].validation) for client in setup.task.clients):
        log.warning("no client has validation rows to choose the learning rate by: it is %g", ladder[USUAL])
        return None
    began, sign = time.perf_counter(), 1 if setup.objective.higher_is_better else -1
    scores: dict[float, float] = {}
    up = down = 0

    def score(place: int) -> float:
        nonlocal up, down
        rate = ladder[place]
        if rate not in scores:
            scores[rate], sent, got = _tried(_with_rate(prepared, rate), rounds)
            up, down = up + sent, down + got
        return sign * scores[rate] if math.isfinite(scores[rate]) else -math.inf

    best = USUAL
    for step in (-1, 1):
        while 0 <= best + step < len(ladder) and (score(best + step) > score(best) or score(best) == -math.inf):
            best += step
        if best != USUAL:
            break
    told = {f"{rate:g}": value if math.isfinite(value) else None for rate, value in sorted(scores.items())}
    return RateSearch(ladder[best], told, rounds, up, down, round(time.perf_counter() - began, 3))


def _ladder(prepared: Prepared) -> tuple[float, ...]:
    adam = prepared.setup.config.optimizer == "adam"
    return tuple(float(f"{rate / 100:g}") for rate in LADDER) if adam else LADDER


def _tried(prepared: Prepared, rounds: int) -> tuple[float, int, int]:
    """Return the mean validation score after the first rounds, NaN if they diverge, and the bytes up and down."""
    setup, experiment = dataclasses.replace(prepared.setup, keep="last"), prepared.experiment
    resources = Resources(experiment.workers, experiment.cluster)
    once = Evaluation(every=rounds, post="participants")
    with deterministic(), _unheard(), closing(ENGINES.get(experiment.engine)(setup, resources)) as engine:
        run = assemble(setup, engine, prepared.schedule, once, memory=experiment.server_memory_mb * 2**20)
        with closing(run):
            done, found = run.run_log.rounds, None
            try:
                run.run(lambda report: report.round < rounds)
                found = done[-1].validation.get("pre")
            except Diverged as error:
                log.debug("trial at %g: %s", setup.config.lr, error)
    return math.nan if found is None else found, sum(r.up.total for r in done), sum(r.down.total for r in done)


@contextmanager
def _unheard() -> Iterator[None]:
    """Hide the warnings of a trial: a rate that is too high is no fault of the user, and is not chosen."""
    federation = logging.getLogger("sparsona.federation")
    before = federation.level
    federation.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        federation.setLevel(before)


def _with_rate(prepared: Prepared, rate: float) -> Prepared:
    config = dataclasses.replace(prepared.setup.config, lr=rate)
    experiment = prepared.experiment.model_copy(update={"training": config})
    setup = dataclasses.replace(prepared.setup, config=config)
    return dataclasses.replace(prepared, experiment=experiment, setup=setup)
