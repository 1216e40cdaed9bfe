"""The answer of a report in sentences: the method, its gain, its cost, and the next step."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparsona.methods import METHODS
from sparsona.metrics import from_0_to_1, in_percent, known
from sparsona.report.comparison import SEEDS, Comparison, ComparisonRow, ValidationLead
from sparsona.report.console import size
from sparsona.report.measured import MeasuredRun
from sparsona.report.statistics import Interval
from sparsona.report.verdicts import Verdict
from sparsona.runs.scores import exploded
from sparsona.words import counted

NEAR = 0.01
"""Margin within which a score counts as near the best: a point, or a hundredth. Such a method is named if it sends
less."""


@dataclass(frozen=True)
class Answer:
    """Three sentences, the next step, and its commands.

    `method` is the label of the best method on validation data. It is advised only if `sure`: otherwise its lead over
    training alone may be chance.
    """

    method: str
    which: str
    gain: str
    cost: str
    now: str
    commands: tuple[str, ...]
    sure: bool


def score_text(value: float, metric: str) -> str:
    """Return a score as text, with the name of its metric unless that is accuracy.

    >>> score_text(0.912, "accuracy"), score_text(0.912, "sensitivity"), score_text(0.912, "auc")
    ('91.2 %', '91.2 % (sensitivity)', '0.912 (auc)')
    """
    text = f"{100 * value:.1f} %" if in_percent(metric) else f"{value:.4g}"
    return text if metric == "accuracy" else f"{text} ({metric})"


def difference_text(value: float, metric: str) -> str:
    """Return a difference of scores as text, without its sign.

    >>> difference_text(-0.064, "accuracy"), difference_text(1.0 / 100, "accuracy")
    ('6.4 points', '1.0 point')
    """
    if not in_percent(metric):
        return f"{abs(value):.3g}"
    text = f"{100 * abs(value):.1f}"
    return f"{text} point" if text == "1.0" else f"{text} points"


def runaway(loss: Mapping[str, float]) -> str:
    """Return a warning if the training loss rose for more than half of the clients, or exploded for any; else "".

    >>> runaway({"clients": 4, "rose": 3, "first": 0.69, "last": 12.4})
    'warning: the training loss rose for 3 of 4 clients (0.69 in the first round, 12.4 in the end; medians): ...'
    >>> runaway({"clients": 4, "rose": 2, "first": 0.69, "last": 0.7}), runaway({})
    ('', '')
    """
    if found := exploded(loss):
        return f"warning: {found}"
    if not loss or 2 * loss["rose"] <= loss["clients"]:
        return ""
    medians = f"({loss['first']:.3g} in the first round, {loss['last']:.3g} in the end; medians)"
    advice = "the models may be running away; try smaller steps: training.lr, or options of the method"
    clients = counted(int(loss["clients"]), "client")
    return f"warning: the training loss rose for {loss['rose']:g} of {clients} {medians}: {advice}"


def chosen_rates(groups: Mapping[str, Sequence[MeasuredRun]]) -> str:
    """Return a sentence with the learning rates that were chosen on validation rows.

    Without any, it names the rate that several methods share, since one rate suits some of them better than others.
    """
    found = {label: {run.about.rate.chosen for run in group if run.about.rate} for label, group in groups.items()}
    told = [f"{label} {', '.join(f'{rate:g}' for rate in sorted(rates))}" for label, rates in found.items() if rates]
    if told:
        return f"Learning rates chosen on validation rows, seed by seed: {'; '.join(told)}."
    runs = [run for group in groups.values() for run in group if _uses_rate(run.method)]
    shared = {run.settings["training"]["lr"] for run in runs}
    if len({run.method for run in runs}) < 2 or len(shared) > 1 or any("privacy" in run.summary for run in runs):
        return ""
    return f"All methods train at the rate {shared.pop():g}; --set lr=auto lets each choose its own on validation rows."


def _uses_rate(method: str) -> bool:
    return method not in METHODS.names() or "lr" not in METHODS.get(method).unused


def no_better_than_constant(summary: Mapping[str, Any]) -> str:
    """Return a warning if a constant answer scores within a point of the models, or better; else "".

    >>> scores = {"metric": "accuracy", "accuracy": {"pre": {"mean": 0.944}}, "constant": {"mean": 0.94}}
    >>> no_better_than_constant(scores)
    'warning: the models score 94.4 %, and always saying the most frequent class scores 94.0 %: measure --metric ...'
    >>> no_better_than_constant({**scores, "constant": {"mean": 0.6}})
    ''
    """
    metric = str(summary["metric"])
    found, constant = summary[metric].get("pre", {}).get("mean"), summary.get("constant", {}).get("mean")
    if constant is None or not near_constant(found, constant, metric):
        return ""
    both = f"the models score {score_text(found, metric)}, and {_constant(constant, metric)}"
    return f"warning: {both}: {constant_advice(metric)}"


def near_constant(score: float | None, constant: float | None, metric: str) -> bool:
    """True if the constant answer scores better than the models or near them (a point, or a hundredth of its score)."""
    one = known(metric)
    if score is None or constant is None or one is None:
        return False
    margin = NEAR if in_percent(metric) else NEAR * abs(constant)
    return (score - constant if one.higher_is_better else constant - score) <= margin


def _constant(score: float, metric: str) -> str:
    said = "the mean" if _is_regression(metric) else "the most frequent class"
    return f"always saying {said} scores {score_text(score, metric)}"


def constant_advice(metric: str) -> str:
    """Return advice for models that are no better than the constant answer."""
    if _is_regression(metric):
        return "try more rounds, another learning rate or model"
    other = "balanced-accuracy" if metric == "auc" else "auc"
    return f"measure --metric {other} or --metric sensitivity, and try --class-weights balanced"


def _is_regression(metric: str) -> bool:
    one = known(metric)
    return one is not None and "regression" in one.tasks


def answer(
    found: Comparison,
    gains: Sequence[float],
    clients: int,
    rounds: int,
    commands: tuple[str, ...],
    compare_command: str,
    raced: int = 0,
) -> Answer:
    """Return the sentences about a comparison.

    `gains` are the gains of the best row's clients over the best baseline alone, over all seeds. `raced` is the number
    of methods at first, if some have left before the end.
    """
    best = found.best
    wild = sum(bool(row.diverged) for row in found.rows)
    rivals_text = f"{max(raced, len(found.rows))} methods{f' ({wild} diverged)' if wild else ''}"
    federated = [row for row in found.rows if not row.alone and not row.diverged]
    if best.diverged:
        which = f"No method can be advised: every run diverged, {best.label} first ({best.diverged})."
        gain = "What joining gains over training alone cannot be told from runs that diverged."
        again = f"{compare_command} --set lr=auto" if compare_command.startswith("sparsona") else compare_command
        cost, now = "What it costs is not shown.", "Lower the learning rate:"
        return Answer(best.label, which, gain, cost, now, (again,), False)
    compared = bool(found.alone) and bool(federated)
    unclear = best.lead if not best.alone and best.lead is not None and not best.lead.clear else None
    scores = "nothing has been measured yet"
    if best.pre is not None:
        mean = score_text(best.pre.mean, found.metric)
        scores = f"the clients' own models score {mean} on their own test data{_range(best.pre, found)}"
    worthless = len(found.rows) > 1 and near_constant(best.pre.mean if best.pre else None, found.constant, found.metric)
    if len(found.rows) == 1:
        which = f"There is one method here, {best.label}: {scores}."
    elif worthless:
        which = (
            f"No method is clearly better than a constant answer: {best.label} is the best of {rivals_text} on "
            f"validation data, and {scores}; {_constant(found.constant or 0.0, found.metric)}."
        )
    elif best.alone and federated:
        rivals = max(raced - len(found.rows) + len(federated), len(federated))
        none = "the one federated method does no" if rivals == 1 else f"none of {rivals} federated methods does"
        which = f"Train alone with {best.label}: {none} better on validation data; alone, {scores}."
    elif unclear:
        which = (
            f"Not clear: on validation data {best.label} is the best of {rivals_text}, but "
            f"{_unclear(unclear, found.metric, found.alone)}; {scores}."
        )
    else:
        which = f"Use {best.label}: on validation data it is the best of {rivals_text}, and {scores}."
    if not compared:
        missing = "a federated method" if best.alone else "local or alone-trees"
        fate = " that has not diverged" if any(row.diverged for row in found.rows) else ""
        gain = f"What joining gains over training alone cannot be told from this: no run of {missing} is here{fate}."
        now = "Compare it with training alone and with its plainest rival:"
        if best.alone:
            now = "Compare it with a federated method:" if not wild else "Lower the learning rate of the others:"
        commands = (compare_command,)
    elif best.alone:
        gain = _nothing_gained(found, found.best_joined)
        now = "Keep your models to yourselves, or try more rounds and other methods before you join:"
    else:
        gain = _gained(found, gains)
        now = "Train it, then give every client its model:"
        if unclear and unclear.seeds >= SEEDS and not found.redrawn:
            now = "Collect more rows before you decide: no seed redraws a split by time. This is how it was run:"
        elif unclear and compare_command.startswith("sparsona compare"):
            now = "Compare with more seeds before you decide:"
            commands = (f"{compare_command} --seeds {max(5, 2 * unclear.seeds)}",)
        elif unclear:
            now = (
                f"Run it and {found.alone} with other seeds (seed=1, 2, ...) before you decide; this is how it was run:"
            )
    if worthless:
        now = f"Do not decide by these scores; {constant_advice(found.metric)}:"
        commands = (_otherwise_measured(compare_command, found.metric, rounds),)
    sure = not unclear and not worthless
    return Answer(best.label, which, gain, _cost(found, best, clients, rounds), now, commands, sure)


def _otherwise_measured(command: str, metric: str, rounds: int) -> str:
    """Return the comparison's command with a metric that a constant answer cannot raise, or with more rounds."""
    if not command.startswith("sparsona compare"):
        return command
    if _is_regression(metric):
        return f"{command} --rounds {3 * rounds}"
    asked = "" if "--metric" in command else " --metric auc"
    return f"{command}{asked} --class-weights balanced"


def _unclear(lead: ValidationLead, metric: str, alone: str) -> str:
    """Return a clause about a lead that chance may explain.

    >>> _unclear(ValidationLead(0.014, 0.1, 74, 1), "accuracy", "local")
    'its lead of 1.4 points over training alone (local) may be chance with 74 rows and one seed'
    """
    seeds = "one seed" if lead.seeds == 1 else f"{lead.seeds} seeds"
    by = difference_text(lead.mean, metric)
    return f"its lead of {by} over training alone ({alone}) may be chance with {counted(lead.rows, 'row')} and {seeds}"


def _range(score: Interval, found: Comparison) -> str:
    if score.half is None:
        return ", with one seed"
    ends = (_possible(value, found.metric) for value in (score.low, score.high))
    low, high = (f"{100 * v:.1f}" if in_percent(found.metric) else f"{v:.4g}" for v in ends)
    return f" ({_over_seeds(score, found, f'{low} to {high}')})"


def _over_seeds(value: Interval, found: Comparison, ends: str) -> str:
    """Return the ends of an interval, and what it covers: a split by time is the same for every seed.

    >>> by_time = Comparison("accuracy", True, (), None, redrawn=False)
    >>> _over_seeds(Interval(0.97, 0.0, 3), by_time, "97.0 to 97.0")
    'the same with each of 3 seeds, for one split by time'
    >>> _over_seeds(Interval(0.97, 0.01, 3), by_time, "96.0 to 98.0")
    '95 % interval over 3 seeds of the training, for one split by time: 96.0 to 98.0'
    """
    if value.half is not None and value.half <= 1e-9 * abs(value.mean):
        return f"the same with each of {value.count} seeds{'' if found.redrawn else ', for one split by time'}"
    covers = "" if found.redrawn else " of the training, for one split by time"
    return f"95 % interval over {value.count} seeds{covers}: {ends}"


def _possible(score: float, metric: str) -> float:
    """Return the nearest possible score of the metric: Student's interval of a few seeds knows no bounds.

    >>> _possible(1.029, "accuracy"), _possible(-3.0, "mae"), _possible(-0.5, "r2"), _possible(1.2, "auc")
    (1.0, 0.0, -0.5, 1.0)
    """
    one = known(metric)
    if from_0_to_1(metric):
        return max(0.0, min(score, 1.0))
    return max(0.0, score) if one is not None and (one.unit == "target" or metric == "log-loss") else score


def _gained(found: Comparison, gains: Sequence[float]) -> str:
    best, metric = found.best, found.metric
    worse = [value for value in gains if value < 0]
    gain = best.gain or Interval(math.nan, None, 0)
    word = "gains" if gain.mean >= 0 else "loses"
    by = difference_text(gain.mean, metric)
    first = f"Against training alone ({found.alone}) a client {word} {by} on average{_gain_range(gain, found)}"
    if best.verdicts:
        return f"{first}; {_told(best.verdicts)}."
    if not worse:
        return f"{first}, and none of {len(gains)} is worse off."
    return (
        f"{first}; {len(worse)} of {counted(len(gains), 'client')} ({100 * len(worse) / len(gains):.0f} %) "
        f"{'is' if len(worse) == 1 else 'are'} worse off, at most by {difference_text(min(worse), metric)}."
    )


def _gain_range(gain: Interval, found: Comparison) -> str:
    """Return the interval of a gain as text, and whether chance may explain it.

    >>> some = Comparison("accuracy", True, (), None)
    >>> _gain_range(Interval(0.05, 0.02, 3), some), _gain_range(Interval(0.05, None, 1), some)
    (' (95 % interval over 3 seeds: +3.0 to +7.0)', ' with one seed')
    """
    if gain.half is None:
        return " with one seed"
    low, high = (f"{100 * v:+.1f}" if in_percent(found.metric) else f"{v:+.3g}" for v in (gain.low, gain.high))
    doubt = "" if abs(gain.mean) > gain.half else ", which may be chance"
    return f" ({_over_seeds(gain, found, f'{low} to {high}')}){doubt}"


def _told(verdicts: Sequence[Verdict]) -> str:
    """Return a clause with the numbers of clients that are better and worse off.

    >>> _told([Verdict("a", 0, 0.2, 0.01, 90), Verdict("b", 0, -0.1, 0.4, 35), Verdict("c", 0, 0.1, 0.4, 20)])
    'of 3 clients 1 is better off, none is worse off, and for 2 the test rows cannot tell'
    """
    words: list[str] = [one.word for one in verdicts]

    def off(word: str) -> str:
        count = words.count(word)
        return f"{count or 'none'} {'is' if count <= 1 else 'are'} {word} off"

    unclear = words.count("unclear")
    rest = f", and for {unclear} the test rows cannot tell" if unclear else ""
    return f"of {counted(len(words), 'client')} {off('better')}, {off('worse')}{rest}"


def _nothing_gained(found: Comparison, rival: ComparisonRow | None) -> str:
    """Return a sentence on the best federated method on validation data, with its test gain.

    The best one on test data would be chosen by the data that judge it.
    """
    if rival is None or rival.gain is None:
        return "No federated method has been measured."
    gain, way = rival.gain, "better" if rival.gain.mean > 0 else "worse"
    still = f"; {rival.label} still improved at its last round" if rival.improving else ""
    return (
        f"Joining gains nothing that validation data can see: the best federated method on them, {rival.label}, is "
        f"{difference_text(gain.mean, found.metric)} {way} than training alone ({found.alone}) on test data"
        f"{_gain_range(gain, found)}{still}."
    )


def _cost(found: Comparison, best: ComparisonRow, clients: int, rounds: int) -> str:
    if not best.bytes:
        return "It costs no traffic at all."
    each = f"{size(best.up / clients)} up and {size(best.down / clients)} down in {counted(rounds, 'round')}"
    first = f"It costs each client {each}, and {_duration(best.simulated)} of simulated time"
    rival = _thrifty(found, best)
    if rival is None or rival.pre is None:
        return f"{first}."
    score = score_text(rival.pre.mean, found.metric)
    return f"{first}; {rival.label} sends {best.bytes / rival.bytes:.0f} times less and scores {score}."


def _duration(seconds: float) -> str:
    """Return a time for people.

    >>> _duration(18.2), _duration(600), _duration(7300)
    ('18 seconds', '10 minutes', '2 hours')
    """
    for unit, length in (("hour", 3600), ("minute", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}s"
    return f"{seconds:.0f} second{'' if f'{seconds:.0f}' == '1' else 's'}"


def _thrifty(found: Comparison, best: ComparisonRow) -> ComparisonRow | None:
    """Return the method with the least traffic among those near the best validation score that send at most half."""
    if best.validation is None:
        return None
    margin = NEAR if in_percent(found.metric) else NEAR * abs(best.validation.mean)
    near = [
        row
        for row in found.rows
        if not row.alone
        and row.validation is not None
        and abs(row.validation.mean - best.validation.mean) <= margin
        and 0 < row.bytes <= best.bytes / 2
    ]
    return min(near, key=lambda row: row.bytes, default=None)
