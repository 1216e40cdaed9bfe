"""Run an experiment from Python: `sparsona.run` and `sparsona.adapt`."""

import dataclasses
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sparsona.base import copied
from sparsona.data.dataset import Dataset
from sparsona.data.doubts import listed
from sparsona.engines import ENGINES
from sparsona.errors import Diverged, InputError, RunError
from sparsona.experiment import assign, merged, placed, read
from sparsona.export.files import ModelCard, layers, model_bytes
from sparsona.export.predict import PersonalModel, runner_of
from sparsona.federation.resources import Resources
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import Schedule
from sparsona.federation.worker import Outcome
from sparsona.files import write_atomically
from sparsona.layout import Layout
from sparsona.method import ClientId, Method
from sparsona.methods import METHODS
from sparsona.metrics import Answers
from sparsona.prepare import Prepared, outputs, prepare
from sparsona.rate import settled
from sparsona.registry import GIVEN
from sparsona.report.drawings import draw
from sparsona.report.loggers import logged
from sparsona.report.progress import RoundBar, Shown, interactive
from sparsona.result import Models, Result
from sparsona.resume import earlier_run, opened
from sparsona.runs import artefacts as kept
from sparsona.runs.answers import write_answers
from sparsona.runs.clients import ExpertScore, write_clients
from sparsona.runs.directory import RunDirectory
from sparsona.runs.names import file_stem
from sparsona.runs.records import RoundReport
from sparsona.runs.scores import summarise
from sparsona.summary import client_scores, summary_of, whole_digest
from sparsona.system import StopRequest, peak_rss_kb, stopped_by_sigterm
from sparsona.training.adapters import TrainedPart
from sparsona.training.determinism import deterministic
from sparsona.training.objective import Objective

log = logging.getLogger(__name__)


def run(
    method: str | Method[Any, Any] = "fedavg",
    *,
    data: str | Dataset | Any = "digits",
    model: str | nn.Module | Callable[[], nn.Module] = "auto",
    objective: Objective | None = None,
    schedule: Schedule | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    add: bool = False,
    on_round: Callable[[RoundReport], bool | None] = lambda report: None,
    set: str | Sequence[str] = (),
    progress: Shown = None,
    **settings: Any,
) -> Result:
    """Train a federation and return one model per client.

    >>> result = run("fedavg", clients=3, rounds=2, partition="iid")
    >>> sorted(result.models), result.summary["accuracy"]["pre"]["mean"] > 0.5
    (['c0', 'c1', 'c2'], True)

    Your own arrays, one pair (inputs, targets) per client, and your own module:

    >>> rng = np.random.default_rng(0)
    >>> wards = {w: (rng.normal(size=(40, 5)).astype("float32"), rng.integers(0, 2, 40)) for w in ("east", "west")}
    >>> result = run("local", data=wards, model=nn.Linear(5, 2), rounds=3)
    >>> result.models["east"].predict(wards["east"][0][:4]).shape
    (4,)

    `data` may also be a DataFrame, a torch Dataset or a Hugging Face one, alone or one per client; ``target=``,
    ``task=``, ``categorical=`` and the other fields of :class:`sparsona.data.Columns` declare its columns.

    ``metrics=["auc", "log-loss"]`` names the metrics; the first one decides.

    `settings` are any keys of the experiment file, and the method's options: ``run("fedprox", lr=0.05, mu=0.1)``. A
    section may be given whole (training={"lr": 0.05}). `set` takes the same ``key=value`` texts as the command line,
    one or several. Without `out` nothing is written to disk. `resume` continues the run in `out`; `resume` and `add`
    continue a finished run for more `rounds` with more rows or clients.

    `progress`: show a bar (None: in a terminal and in a notebook). In an interactive session, Ctrl-C ends the run after
    its round and returns its result; a second one raises KeyboardInterrupt, as the first one does in a script.
    """
    settings = placed(settings, METHODS.get(method) if isinstance(method, str) else None)
    if isinstance(data, str):
        settings["data"] = data
    settings["model"] = model if isinstance(model, str) else GIVEN
    if isinstance(method, str):
        settings["method"] = method
    _check_objects(method, data, model, objective, schedule)
    if isinstance(schedule, Mapping):
        settings["schedule"] = {**schedule, **settings.get("schedule", {})}
    folder = RunDirectory(Path(out)) if out is not None else None
    if resume and folder is None:
        raise RunError("there is no run to resume without `out`: name its directory")
    if resume and folder is not None:
        folder.need_run()
    prepared = prepare(
        assign(settings, (set,) if isinstance(set, str) else set),
        method=None if isinstance(method, str) else method,
        data=None if isinstance(data, str) else data,
        model=None if isinstance(model, str) else model,
        objective=objective,
        schedule=None if isinstance(schedule, Mapping) else schedule,
        earlier=earlier_run(folder) if add and folder is not None else None,
    )
    for line in listed(prepared.doubts):
        log.warning("%s", line)
    experiment, metric = prepared.experiment, prepared.setup.objective.metric_name
    bar = RoundBar(experiment.method, experiment.rounds, metric, progress)

    def told(report: RoundReport) -> bool:
        bar.round(report)
        return on_round(report) is not False and not stop.asked

    with bar, StopRequest(interactive()) as stop:
        result = execute(prepared, folder, resume, told, add)
    if stop.asked:
        log.warning("stopped after round %d of %d", result.summary["rounds"], experiment.rounds)
    return result


def _check_objects(method: Any, data: Any, model: Any, objective: Any, schedule: Any) -> None:
    """Refuse arguments that are neither a name nor an object of their kind."""
    if data is None:
        raise InputError("data is None: give data, the name of a data set, or leave it out for 'digits'")
    plans = isinstance(schedule, Mapping | None) or callable(getattr(schedule, "plan", None))
    plans = plans and not isinstance(schedule, type)
    for given, good, what in (
        (method, isinstance(method, str | Method), "a method is a name such as 'fedavg', or a Method such as FedAvg()"),
        (model, isinstance(model, str) or callable(model), "a model is a name such as 'mlp', or a torch module"),
        (objective, isinstance(objective, Objective | None), "an objective is one such as sparsona.regression()"),
        (schedule, plans, "a schedule is a mapping such as {'sample': 0.5}, or an object with a method plan"),
    ):
        if not good:
            raise InputError(f"{what}, not a {type(given).__name__}")


def execute(
    prepared: Prepared,
    folder: RunDirectory | None = None,
    resume: bool = False,
    on_round: Callable[[RoundReport], bool | None] = lambda report: None,
    add: bool = False,
) -> Result:
    """Execute a prepared run, in `folder` if given; with `add`, continue a finished run with more data."""
    if prepared.experiment.report_to and folder is None:
        raise InputError("report_to logs the files of a run too: name its directory (out)")
    prepared = settled(prepared, folder if resume else None)
    setup, experiment = prepared.setup, prepared.experiment
    for client in setup.federation.splits:
        file_stem(client)  # a name that no file can have is named now, not after the last round
    resources, memory = Resources(experiment.workers, experiment.cluster), experiment.server_memory_mb * 2**20
    with ExitStack() as stack:
        stack.enter_context(stopped_by_sigterm())
        if folder is not None:
            stack.enter_context(opened(folder, prepared, resume, add))
        stack.enter_context(deterministic())
        engine = stack.enter_context(closing(ENGINES.get(experiment.engine)(setup, resources)))
        rounds = assemble(
            setup,
            engine,
            prepared.schedule,
            experiment.evaluation,
            records=folder.records if folder else None,
            checkpoint=folder.checkpoint if folder else None,
            fewest=experiment.split.fewest,
            memory=memory,
        )
        stack.enter_context(closing(rounds))
        if resume:
            rounds.resume()
        log_round = stack.enter_context(logged(folder, experiment)) if folder is not None else None

        def told(report: RoundReport) -> bool | None:
            if log_round is not None:
                log_round(report)
            return on_round(report)

        if folder is not None:
            folder.diverged_file.unlink(missing_ok=True)
        try:
            rounds.run(told)
        except Diverged as error:
            if folder is not None:  # reports show no score of it
                write_atomically(folder.diverged_file, f"{error}\n")
            raise
        return _finish(prepared, rounds, folder)


def _finish(prepared: Prepared, rounds: Rounds, folder: RunDirectory | None) -> Result:
    setup, experiment, run_log = prepared.setup, prepared.experiment, rounds.run_log
    cards = _cards(prepared)
    module = copied(setup.module)  # a runner takes its module's weights over: the engine still needs its own
    models = Models({client: cards[client] for client in setup.task.clients}, folder, partial(_given, module))
    statistics = Layout.of_buffers(module)
    answers: dict[ClientId, Answers] = {}
    experts: dict[ClientId, tuple[ExpertScore, ...]] = {}
    for outcome in rounds.finish("personal", setup.task.clients):
        assert outcome.model is not None
        if outcome.answers is not None:
            answers[outcome.client] = outcome.answers
        client, buffers = outcome.client, outcome.buffers
        experts[client] = outcome.experts
        own = np.zeros(0, np.float32) if buffers is None else buffers
        card = dataclasses.replace(cards[client], threshold=outcome.threshold, positive=setup.objective.positive)
        if folder is not None:
            named = statistics.named(own)
            folder.save_model(client, model_bytes(outcome.model, setup.task.layout, card, named))
        models.add(client, outcome.model, own, card)
    joining = rounds.join(prepared.newcomers)
    joined = list(rounds.finish("adapt", prepared.newcomers))
    clients = client_scores(setup, run_log, experiment.split.fewest, answers, experts)
    held = max(peak_rss_kb(), peak_rss_kb(children=True)) / 1024
    peak = max(held, getattr(rounds.engine, "peak_rss_mb", 0.0))
    whole = whole_digest(rounds.server, rounds.engine.store.digests(setup.task.clients), experiment.base)
    summary = summary_of(experiment, setup, rounds, prepared.agreement, clients, whole, peak, answers, prepared.search)
    if joined:
        summary["new_clients"] = _joined(joined, joining, prepared)
    artefacts = setup.method.artefacts(rounds.server)
    if folder is not None:
        kept.save(artefacts, folder.path)
        draw(artefacts, folder.path)
        write_answers(folder.path, answers)
        write_clients(folder.clients_file, clients)
        folder.write_summary(summary)
    path, shared, weights = folder.path if folder else None, None, getattr(rounds.server, "weights", None)
    if isinstance(weights, np.ndarray) and weights.shape == (setup.task.layout.size,):
        card = dataclasses.replace(next(iter(cards.values())), client="(shared)")
        averaged = rounds.delivery.buffers
        own = np.zeros(0, np.float32) if averaged is None else averaged
        shared = PersonalModel(card, weights.copy(), models.ready(card), own)
    return Result(summary, tuple(run_log.rounds), models, run_log.scores, path, artefacts, clients, shared)


def _given(module: nn.Module, card: ModelCard) -> nn.Module:
    """Return the clients' net for any card; a module-level function, because scikit-learn pickles results."""
    return module


def adapt(
    run: str | Path, data: Any, *, model: nn.Module | None = None, base: str | Path = "", **settings: Any
) -> dict[ClientId, PersonalModel]:
    """Make personal models for clients that come after training; the run stays as it is.

    `data` is as in :func:`run`, for one client, called "new", or by client. `model` and `base` are as in :func:`load`.
    `settings` may change the experiment's, such as ``epochs=5``.

    >>> import tempfile
    >>> rng, out = np.random.default_rng(0), Path(tempfile.mkdtemp()) / "run"
    >>> wards = {w: (rng.normal(size=(40, 5)), rng.integers(0, 2, 40)) for w in ("east", "west", "north")}
    >>> late = wards.pop("north")
    >>> _ = run("ditto", data=wards, rounds=2, out=out)
    >>> adapt(out, late)["new"].predict(late[0]).shape
    (40,)
    """
    folder = RunDirectory(Path(run))
    earlier = earlier_run(folder, train=False)
    given = read(folder.experiment_file)
    method = METHODS.get(given["method"])
    kept = {key: value for key, value in given.items() if key not in ("data", "partition", "clients", "new_clients")}
    kept = merged(kept, placed(settings, method))
    if base:
        kept["base"] = str(base)
    text = isinstance(data, str)
    prepared = prepare(
        kept | ({"data": data} if text else {}),
        data=None if text else data if isinstance(data, Mapping) and "train" not in data else {"new": data},
        model=model,
        earlier=earlier,
        origin=str(folder.experiment_file),
    )
    setup, cards, models = prepared.setup, _cards(prepared), dict[ClientId, PersonalModel]()
    clash = sorted({*earlier.clients} & {*prepared.newcomers})
    if clash:
        raise InputError(f"client {clash[0]!r} has taken part in {folder.path}: name the new client otherwise")
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        checkpoint = Path(shutil.copytree(folder.checkpoint, place / "checkpoint"))
        stack.enter_context(deterministic())
        engine = stack.enter_context(closing(ENGINES.get("inprocess")(setup, Resources(1))))
        rounds = assemble(setup, engine, prepared.schedule, prepared.experiment.evaluation, checkpoint=checkpoint)
        stack.enter_context(closing(rounds))
        rounds.resume()
        rounds.join(prepared.newcomers)
        runner = runner_of(next(iter(cards.values())), copied(setup.module))
        for outcome in rounds.finish("adapt", prepared.newcomers, keep=True):
            assert outcome.model is not None
            buffers = np.zeros(0, np.float32) if outcome.buffers is None else outcome.buffers
            models[outcome.client] = PersonalModel(cards[outcome.client], outcome.model, runner, buffers)
    return models


def _joined(outcomes: list[Outcome], joining: list[Outcome], prepared: Prepared) -> dict[str, Any]:
    """Return the new clients' scores, and the bytes of their joining and their models."""
    setup, fewest = prepared.setup, prepared.experiment.split.fewest
    sizes = {o.client: len(setup.federation.splits[o.client].test) for o in outcomes}
    enough = [o for o in outcomes if sizes[o.client] >= fewest]
    scores = {p: {o.client: o.scores[p].test for o in enough if p in o.scores} for p in ("pre", "post")}
    higher = setup.objective.higher_is_better
    up, down = sum(len(o.frame.data) for o in joining), sum(o.received for o in (*joining, *outcomes))
    return {
        "count": len(outcomes),
        setup.objective.metric_name: {p: summarise(found, sizes, higher) for p, found in scores.items()},
        "bytes": {"up": up, "down": down},
    }


def _cards(prepared: Prepared) -> Mapping[ClientId, ModelCard]:
    setup, experiment = prepared.setup, prepared.experiment
    numbers, chain = outputs(setup.federation.data), layers(setup.module)
    named = experiment.method, experiment.data, experiment.model
    trained = TrainedPart(experiment.trainable, experiment.lora, experiment.base)
    return {
        client: ModelCard(client, *named, numbers, schema, chain, trained=trained)
        for client, schema in prepared.agreement.schemas.items()
    }
