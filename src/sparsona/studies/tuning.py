"""Tune one method: the best score, also for a number of bytes, or the fewest bytes for a score, by validation data.

Optuna proposes trials (its multi-objective TPE, with the target as a constraint); each trial is a run in the study's
folder. A proposal depends on its number and the earlier trials only, so an interrupted study continues identically.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsona.errors import Diverged, InputError, RunError, SparsonaError
from sparsona.report.measured import MeasuredRun, mean_score
from sparsona.studies.contest import Runs
from sparsona.studies.space import Knob

LOG = "optuna.log"


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
    return f"{method}:{','.join(f'{key}={_text(value)}' for key, value in settings.items())}"


def _text(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


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
        runs.keep()
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(runs.folder / LOG))),
        study_name=method,
        directions=["maximize" if higher else "minimize", "minimize"],
        load_if_exists=True,
    )
    _check_knobs(study, knobs, runs.folder)
    runs.keep()
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
    done = [
        Trial(
            one.number,
            contender(method, _in_order(knobs, one.params)),
            _in_order(knobs, one.params),
            float(one.values[0]),
            float(one.user_attrs["test"]),
            float(one.values[1]),
        )
        for one in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    ]
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


def _in_order(knobs: list[Knob], params: dict[str, Any]) -> dict[str, Any]:
    return {knob.key: _rounded(params[knob.key]) for knob in knobs}


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
    """Execute the runs of a trial, one seed after another."""
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
    return Trial(
        number,
        name,
        settings,
        _mean([mean_score(end.validation["pre"]) for end in ends]),
        _mean([mean_score(end.test["pre"]) for end in ends]),
        _mean([end.bytes / 1e6 for end in ends]),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


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
