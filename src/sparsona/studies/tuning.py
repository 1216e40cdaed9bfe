"""Tune one method: the best score, also for a number of bytes, or the fewest bytes for a score, by validation data.

Optuna proposes trials (its multi-objective TPE, with the target as a constraint); each trial is a run in the study's
folder. A proposal depends on its number and the earlier trials only, so an interrupted study continues identically.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from sparsona.errors import Diverged, InputError, RunError, SparsonaError
from sparsona.methods import METHODS
from sparsona.options import options_of
from sparsona.registry import suggest
from sparsona.report.measured import MeasuredRun, mean_score
from sparsona.studies.contest import Runs
from sparsona.training.config import TrainConfig

LOG = "optuna.log"


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, on a logarithmic scale if `log`."""

    low: float
    high: float
    log: bool
    whole: bool


@dataclass(frozen=True)
class Knob:
    """A searched setting: its key for ``--set``, its start, and a range or choices."""

    key: str
    start: Any
    range: Range | None = None
    choices: tuple[Any, ...] = ()


def knobs(method: str, only: tuple[str, ...] = ()) -> list[Knob]:
    """Return the learning rate and the method's options that have a range or a few values."""
    rate = TrainConfig().lr
    found = [Knob("lr", rate, Range(rate / 20, rate * 5, log=True, whole=False))]
    for leaf in options_of(METHODS.get(method)):
        knob = _knob(leaf.name, leaf.hint, None if leaf.default is dataclasses.MISSING else leaf.default)
        if knob is not None:
            found.append(knob)
    for key in only:
        if key not in [knob.key for knob in found]:
            raise InputError(f"{method} has no knob {key!r}{suggest(key, [knob.key for knob in found])}")
    return [knob for knob in found if not only or knob.key in only]


def _knob(name: str, hint: Any, start: Any) -> Knob | None:
    if start is None:
        return None
    if isinstance(start, bool):
        return Knob(name, start, choices=(start, not start))
    kind, bounds = _plain(hint, type(start))
    if get_origin(kind) is Literal:
        return Knob(name, start, choices=(start, *(value for value in get_args(kind) if value != start)))
    if not isinstance(start, int | float) or kind not in (int, float):
        return None
    step = 1 if isinstance(start, int) else 0
    low = bounds["gt"] + step if "gt" in bounds else bounds.get("ge")
    high = bounds["lt"] - (step or 0.02 * abs(bounds["lt"])) if "lt" in bounds else bounds.get("le")
    range = number_range(start, low, high if high is None else max(high, start))
    return Knob(name, start, range) if range is not None else None


def number_range(start: float, low: float | None, high: float | None) -> Range | None:
    """Return the range of a number that starts at `start`, with optional bounds.

    A share is searched down to 1/50, a positive number within a factor of ten, a count within a factor of four. A
    number that starts at 0 without an upper bound is not searched, because 0 turns something off.

    >>> number_range(0.5, 0, 1), number_range(10, 1, None)
    (Range(low=0.02, high=1.0, log=True, whole=False), Range(low=3, high=40, log=True, whole=True))
    """
    whole = isinstance(start, int)
    if low is not None and high is not None:
        if whole:
            return Range(low, high, log=False, whole=True)
        if start == 0:
            return Range(low, high, log=False, whole=False)
        return Range(max(low, min(high / 50, start / 10)), float(high), log=low >= 0, whole=False)
    if start <= 0:
        return None
    if whole:
        return Range(max(low or 1, math.ceil(start / 4), 1), 4 * int(start), log=True, whole=True)
    return Range(start / 10, 10 * start if high is None else min(high, 10 * start), log=True, whole=False)


def _plain(hint: Any, kind: type) -> tuple[Any, dict[str, float]]:
    """Return the member `kind` of a type, and its bounds."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        marks = [mark for extra in extras for mark in getattr(extra, "metadata", [extra])]
        bounds = {key: getattr(mark, key) for mark in marks for key in ("gt", "ge", "lt", "le") if hasattr(mark, key)}
        found, more = _plain(inner, kind)
        return found, {**more, **bounds}
    if get_origin(hint) is Literal or not get_args(hint):
        return hint, {}
    members = [_plain(member, kind) for member in get_args(hint)]
    return next(((found, bounds) for found, bounds in members if found is kind), (hint, {}))


@dataclass(frozen=True)
class Target:
    """The target of a search: MB of all clients, up and down, or a validation score; neither: the best score."""

    mb: float | None = None
    score: float | None = None

    def violation(self, mb: float, score: float, higher_is_better: bool) -> float:
        """Return by how much a trial misses the target; 0 or less if it meets it."""
        if self.mb is not None:
            return mb - self.mb
        if self.score is not None:
            return self.score - score if higher_is_better else score - self.score
        return 0.0


@dataclass(frozen=True)
class Trial:
    """One setting of the knobs: validation score, test score and MB, as means over the seeds."""

    number: int
    contender: str
    settings: dict[str, Any]
    validation: float
    test: float
    mb: float


def contender(method: str, settings: dict[str, Any]) -> str:
    """Return the method with these settings, as a contest names it.

    >>> contender("fedprox", {"lr": 0.1, "mu": 0.25})
    'fedprox:lr=0.1,mu=0.25'
    """
    texts = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
    return f"{method}:{','.join(f'{key}={text}' for key, text in texts.items())}"


def tune(
    runs: Runs,
    method: str,
    knobs: list[Knob],
    target: Target,
    trials: int,
    on_trial: Callable[[Trial | None, int, str], None] = lambda trial, number, note: None,
) -> tuple[list[Trial], bool]:
    """Run trials until there are `trials`; return them, and whether a higher score is better."""
    try:
        import optuna
    except ImportError:
        raise InputError("tune needs optuna: pip install 'sparsona[tune]'") from None
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    prepared = runs.prepare(method, runs.contest.seeds[0])
    higher = prepared.setup.objective.higher_is_better
    if not any(len(split.validation) for split in prepared.setup.federation.splits.values()):
        raise InputError("no client has validation samples, and a choice is made by nothing else: set split.validation")
    if not (runs.folder / LOG).exists():
        runs.contest.keep(runs.folder)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(runs.folder / LOG))),
        study_name=method,
        directions=["maximize" if higher else "minimize", "minimize"],
        load_if_exists=True,
    )
    _check_knobs(study, knobs, runs.folder)
    runs.contest.keep(runs.folder)
    for unfinished in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(unfinished.number, state=TrialState.FAIL)
        study.enqueue_trial(unfinished.params, skip_if_exists=False)
    if not study.get_trials(deepcopy=False):
        study.enqueue_trial({knob.key: knob.start for knob in knobs})
    while (
        number := sum(one.state == TrialState.COMPLETE or "reason" in one.user_attrs for one in study.trials)
    ) < trials:
        study.sampler = _sampler(optuna, runs.contest.seeds[0] + number)
        asked = study.ask()
        settings = {knob.key: _suggest(asked, knob) for knob in knobs}
        name = contender(method, settings)
        try:
            found = _run(runs, name, number, settings)
        except RunError:
            raise
        except SparsonaError as error:
            asked.set_user_attr("reason", str(error))
            study.tell(asked, state=TrialState.FAIL)
            on_trial(None, number, str(error))
            continue
        asked.set_user_attr("violation", target.violation(found.mb, found.validation, higher))
        asked.set_user_attr("test", found.test)
        study.tell(asked, [found.validation, found.mb])
        on_trial(found, number, "")
    done = []
    for one in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        settings, (validation, mb) = {knob.key: _rounded(one.params[knob.key]) for knob in knobs}, one.values
        done.append(Trial(one.number, contender(method, settings), settings, validation, one.user_attrs["test"], mb))
    return done, higher


def _check_knobs(study: Any, knobs: list[Knob], folder: Path) -> None:
    """Refuse a study of other knobs, because a trial's score depends on all of them; a new study writes its knobs."""
    given = [knob.key for knob in knobs]
    noted = study.user_attrs.get("knobs") or next((list(one.params) for one in study.trials if one.values), None)
    if noted is None:
        study.set_user_attr("knobs", given)
    elif set(noted) != set(given):
        raise RunError(
            f"{folder} is a study of {', '.join(noted)}, not of {', '.join(given)}: "
            f"give --knobs {','.join(noted)}, or choose another --out"
        )


def _rounded(value: Any) -> Any:
    """Round a number to four digits, so that the run uses the printed value."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _sampler(optuna: Any, seed: int) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constraints are marked experimental
        return optuna.samplers.TPESampler(
            seed=seed,
            n_startup_trials=6,
            constraints_func=lambda trial: (trial.user_attrs.get("violation", 0.0),),
        )


def _suggest(trial: Any, knob: Knob) -> Any:
    if knob.range is None:
        return trial.suggest_categorical(knob.key, list(knob.choices))
    if knob.range.whole:
        return trial.suggest_int(knob.key, int(knob.range.low), int(knob.range.high), log=knob.range.log)
    return _rounded(trial.suggest_float(knob.key, knob.range.low, knob.range.high, log=knob.range.log))


def _run(runs: Runs, name: str, number: int, settings: dict[str, Any]) -> Trial:
    found: list[MeasuredRun] = []
    for seed in runs.contest.seeds:
        runs.advance(name, seed)
        run = runs.measured(name, seed)
        if run is None:
            raise InputError("nothing was measured within the budget: raise it")
        if run.diverged:
            raise Diverged(run.diverged)
        found.append(run)
    ends = [run.measurements[-1] for run in found]
    scores = [(mean_score(end.validation["pre"]), mean_score(end.test["pre"]), end.bytes / 1e6) for end in ends]
    return Trial(number, name, settings, *(sum(values) / len(ends) for values in zip(*scores, strict=True)))


def front(trials: list[Trial], higher_is_better: bool) -> list[Trial]:
    """Return the Pareto front of score and bytes, from the fewest bytes on."""
    sign = 1 if higher_is_better else -1
    kept: list[Trial] = []
    for trial in sorted(trials, key=lambda one: (one.mb, -sign * one.validation)):
        if not kept or sign * trial.validation > sign * kept[-1].validation:
            kept.append(trial)
    return kept


def pick(trials: list[Trial], target: Target, higher_is_better: bool) -> tuple[Trial, bool]:
    """Return the trial for the target, and whether it meets it; else the trial that misses it least."""
    sign = 1 if higher_is_better else -1

    def missed(trial: Trial) -> float:
        return target.violation(trial.mb, trial.validation, higher_is_better)

    meeting = [trial for trial in trials if missed(trial) <= 0]
    if not meeting:
        return min(trials, key=lambda trial: (missed(trial), trial.mb, -sign * trial.validation)), False
    if target.score is not None:
        return min(meeting, key=lambda trial: (trial.mb, -sign * trial.validation)), True
    return max(meeting, key=lambda trial: (sign * trial.validation, -trial.mb)), True
