"""The result of a run: its rounds, its scores and one model per client, also read from its directory."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sparsona.errors import RunError
from sparsona.experiment import build, read
from sparsona.export.files import ModelCard, read_model
from sparsona.export.predict import PersonalModel, model_in, module_of, runner_of
from sparsona.message import Vector
from sparsona.method import Artefact, ClientId, Model
from sparsona.report.frames import Frame, clients_frame, history_frame
from sparsona.report.html import write_report
from sparsona.report.latex import run_table, write_latex
from sparsona.report.notebook import one_line, result_page
from sparsona.runs import artefacts as kept
from sparsona.runs.about import read_about
from sparsona.runs.clients import ClientScores, read_clients
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import RoundReport, RunLog
from sparsona.summary import unfinished_summary
from sparsona.training.runner import ModelRunner


class Models(Mapping[ClientId, PersonalModel]):
    """Each client's own model, read from the run directory on access; equal models are held once."""

    def __init__(
        self,
        cards: Mapping[ClientId, ModelCard | None],
        folder: RunDirectory | None,
        module: Callable[[ModelCard], nn.Module],
    ) -> None:
        """Take one card per client, or None if its model file holds it; `module` makes the clients' net."""
        self._cards = dict(cards)
        self._folder = folder
        self._module = module
        self._runner: ModelRunner | None = None
        self._held: dict[ClientId, tuple[Model, Vector]] = {}
        self._same: dict[bytes, Vector] = {}

    def add(self, client: ClientId, model: Model, buffers: Vector, card: ModelCard) -> None:
        """Add a client's model that is in no run directory."""
        self._cards[client] = card
        if not isinstance(model, np.ndarray):
            self._held[client] = model, self._shared(buffers)
        elif self._folder is None:
            self._held[client] = self._shared(model), self._shared(buffers)

    def _shared(self, vector: Vector) -> Vector:
        """Return the held vector that equals this one."""
        return self._same.setdefault(hashlib.sha256(np.ascontiguousarray(vector).data).digest(), vector)

    def __getitem__(self, client: ClientId) -> PersonalModel:
        card = self._cards[client]
        if card is not None and client in self._held:
            model, buffers = self._held[client]
            return PersonalModel(card, model, self.ready(card), buffers)
        assert self._folder is not None
        path = self._folder.need_model(client)
        file = read_model(path)
        return model_in(file, path, self.ready(file.card))

    def ready(self, card: ModelCard) -> ModelRunner:
        """Return the runner, which all clients share: they differ only in the encoding before it."""
        if self._runner is None:
            self._runner = runner_of(card, self._module(card))
        return self._runner

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the runner, whose buffers are views that a pickle would break; it is made again."""
        return {**self.__dict__, "_runner": None}

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._cards)

    def __len__(self) -> int:
        return len(self._cards)


@dataclass(frozen=True)
class Result:
    """The result of a run: one report per round, one model per client, and the summary that summary.json holds.

    `artefacts` are findings of the method's server: `similarity` between clients, `network` of neighbours, new clients
    included.
    """

    summary: dict[str, Any]
    history: tuple[RoundReport, ...]
    models: Mapping[ClientId, PersonalModel]
    scores: Mapping[ClientId, Mapping[str, float]]
    path: Path | None = None
    artefacts: Mapping[str, Artefact] = field(default_factory=dict)
    clients: tuple[ClientScores, ...] = ()
    """Each client's rows, and its last scores with intervals."""
    shared: PersonalModel | None = None
    """The shared model, if the method has one; a loaded run has none."""

    def history_frame(self) -> Frame:
        """`history` with one row per round: a DataFrame, or a light frame without pandas."""
        return history_frame(self.history)

    def clients_frame(self) -> Frame:
        """`clients` with one row per client: a DataFrame, or a light frame without pandas."""
        return clients_frame(self.clients)

    def to_csv(self, path: str | Path) -> None:
        """Write one line per round."""
        self.history_frame().to_csv(path)

    def to_latex(self, path: str | Path | None = None) -> str:
        """Return a table for booktabs: the mean over clients at each point and half its 95 % interval, and MB."""
        return write_latex(run_table(self.summary, self.scores), path)

    def report(self, path: str | Path | None = None) -> Path:
        """Write an HTML report; into the run's directory unless another place is named."""
        if self.path is None:
            raise RunError("a report is made from the files of a run: give sparsona.run the directory, out=")
        to = self.path / "report.html" if path is None else Path(path)
        write_report([self.path], to)
        return to

    def __repr__(self) -> str:
        return f"<Result: {one_line(self.summary)}>"

    def _repr_html_(self) -> str:
        return result_page(self.summary, self.history)


def load(run: str | Path, model: nn.Module | None = None, base: str | Path = "") -> Result:
    """Load the result of a run from its directory, without its data and engine.

    An unfinished run has the rounds of its last checkpoint, a short summary, and no models.

    `model` is the clients' net if it was given in Python and has no name. `base` is the file of its frozen weights, if
    they differ from those of `model`. A network of clients is in network.json.

    >>> import tempfile
    >>> from sparsona import run
    >>> out = Path(tempfile.mkdtemp()) / "run"
    >>> done = run("fedavg", clients=3, rounds=2, partition="iid", out=out)
    >>> again = load(out)
    >>> again.summary["digest"] == done.summary["digest"], len(again.history), sorted(again.models)
    (True, 2, ['c0', 'c1', 'c2'])
    """
    folder = RunDirectory(Path(run))
    finished = folder.summary_file.exists() or not folder.experiment_file.exists()
    summary = folder.summary() if finished else {}
    experiment, _ = build(read(folder.experiment_file), str(folder.experiment_file))
    clients, about = tuple(read_clients(folder.clients_file)) if finished else (), read_about(folder.path)
    rows = {one.client: one.test for one in clients} or {name: one.test for name, one in about.clients.items()}
    replayed = RunLog(rows, about.higher_is_better, None, experiment.split.fewest, experiment.evaluation.keep)
    lines = folder.lines()
    summary = summary or {"rounds": max((line.round for line in lines), default=0)}
    if summary["rounds"] > experiment.rounds or not {line.client for line in lines} <= rows.keys():
        raise RunError(f"the files of {folder.path} are not of one run: run it again into another --out")
    for number in range(1, summary["rounds"] + 1):
        replayed.write(line for line in lines if line.round == number)
    made = partial(module_of, given=model, base=str(base), seed=experiment.seed)
    models = Models({one.client: None for one in clients}, folder, made)
    rounds, scores = tuple(replayed.rounds), replayed.scores
    if not finished:
        summary = unfinished_summary(experiment, about.metric, replayed)
    return Result(summary, rounds, models, scores, folder.path, kept.load(folder.path), clients)
