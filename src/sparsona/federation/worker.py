"""A client's turn, the same in every engine: bytes in, a memory, bytes out, and measurements."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from sparsona.data.dataset import ClientSplit
from sparsona.experts.models import held_out, used
from sparsona.federation.delivery import ClientMemory, with_extras, without_extras
from sparsona.federation.references import ReferenceStore, usable
from sparsona.federation.setup import Setup
from sparsona.message import Message, Part, Stamp, Vector, paper_bytes
from sparsona.method import TRAIN, ClientId, Fit, Model
from sparsona.metrics import Answers
from sparsona.ops.mixture import Mixture
from sparsona.personal.kept import KeptModels, kept_model
from sparsona.privacy.mechanism import BudgetSpent, Meter
from sparsona.runs.answers import are_kept
from sparsona.runs.clients import ExpertScore
from sparsona.runs.state import digest
from sparsona.training.local import Local
from sparsona.training.objective import balanced_weights, log_prior
from sparsona.training.runner import ModelRunner
from sparsona.wire import DecodeCache, Frame, Ledger, Reference, decode, encode
from sparsona.wire.known import KnownFrames


@dataclass(frozen=True)
class Scores:
    """Scores on the client's own test and validation samples (NaN: none), and such pairs by the other metrics."""

    test: float
    validation: float
    others: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoredModel:
    """The scores of a model that was measured before, by its digest."""

    digest: bytes
    scores: Scores


JobKind: TypeAlias = Literal["fit", "trial", "personal", "adapt"]


@dataclass(frozen=True)
class Job:
    """One turn of one client.

    `fit` is a turn of the protocol; `trial` the same for an evaluation, after which the client forgets it; `personal`
    evaluates the model that the client would have now; `adapt` is what a client does that joins at the end.

    The client reads `down` and nothing else: a frame, in consecutive pieces. `stamp` is the server's own note; only a
    client that trains alone, and so gets no frame, reads its round from it. `best_round` is
    the round with the best mean validation score so far (0: there is none yet).
    """

    kind: JobKind
    client: ClientId
    stamp: Stamp
    down: tuple[bytes, ...]
    score: bool = False
    fine_tune: bool = False
    keep_model: bool = False
    known: tuple[ScoredModel, ...] = ()
    best_round: int = 0

    @property
    def writes(self) -> bool:
        """True if the client's memory may change: in its turns, and if its model may be the best so far."""
        return self.kind == "fit" or (self.kind == "personal" and self.score and not self.keep_model)


@dataclass(frozen=True)
class Outcome:
    """The result of a turn. `order` is the order that it answers, `received` the bytes of its downlink.

    The scores are by evaluation point: pre, post, ft. `flops` counts the method's own work, `samples` the trained
    samples, once per pass.
    """

    client: ClientId
    kind: JobKind
    order: tuple[int, int]
    received: int
    frame: Frame
    paper: int
    scores: dict[str, Scores]
    loss: float
    seconds: float
    flops: int = 0
    samples: float = 0.0
    model: Model | None = None
    buffers: Vector | None = None
    threshold: float | None = None  # the threshold of the positive class for the kept model, if one is chosen
    answers: Answers | None = None
    """The kept model's answers for the client's test rows; None if they are too many or not asked for."""
    experts: tuple[ExpertScore, ...] = ()
    """The scores of each expert of the kept pool on the test rows; on a network they do not travel."""
    known: tuple[ScoredModel, ...] = ()
    resent: Ledger = field(default_factory=Ledger)
    """Bytes that were sent again, whole, because the client lacked the reference."""
    queries: int = 0  # number of queries that the client has answered in this run, with a privacy budget
    refused: str = ""  # why the client refused its turn: its privacy budget is spent


NOTHING = Frame((), Ledger())  # the reply of a client that takes part in no exchange


class Worker:
    """Runs clients' turns one after another on one model runner."""

    def __init__(self, setup: Setup, references: ReferenceStore, known: KnownFrames | None = None) -> None:
        """`known` are the frames whose messages need no decoding, since the server works in this process."""
        self.setup = setup
        self.references = references
        self._known = known
        self._last: tuple[Mapping[str, Part], Reference] | None = None
        data, chance = setup.federation.data, setup.client_chance or setup.task.chance
        self.runner = ModelRunner(setup.module, data, setup.objective, chance, setup.device, setup.trainer)
        self.limit = setup.limit()
        self._decoded = DecodeCache()
        self._first_buffers = self.runner.buffers
        self._has_buffers = len(self._first_buffers) > 0

    def run(self, job: Job, memory: ClientMemory, meter: Meter | None = None) -> tuple[ClientMemory, Outcome]:
        """Return the client's memory after the turn, and its outcome.

        The owner may pass its own `meter`; by default the memory counts queries. A turn beyond the privacy budget is
        refused, and the memory stays as it is.
        """
        meter = meter or self.meter(job.client, memory.queries or 0)
        try:
            memory, outcome = self._run(job, memory, meter)
        except BudgetSpent as error:
            if job.kind == "personal":
                raise
            outcome = Outcome(job.client, job.kind, job.stamp.order, 0, NOTHING, 0, {}, float("nan"), 0.0)
            outcome = replace(outcome, known=job.known, refused=str(error))
        if meter is None or meter.used == memory.queries:
            return memory, outcome if meter is None else replace(outcome, queries=meter.used)
        return replace(memory, queries=meter.used), replace(outcome, queries=meter.used)

    def meter(self, client: ClientId, used: int, charge: Callable[[int], None] = lambda used: None) -> Meter | None:
        """Return the meter for a client that has used `used` queries; None without a privacy budget."""
        if self.setup.privacy is None:
            return None
        examples = len(self.setup.federation.splits[client].train)
        return Meter(self.setup.privacy[client], self.runner.chance, client, examples, used, charge)

    def _run(self, job: Job, memory: ClientMemory, meter: Meter | None) -> tuple[ClientMemory, Outcome]:
        began = time.perf_counter()
        runner = self.runner
        setup, method = self.setup, self.setup.method
        split = setup.federation.splits[job.client]
        received = self.received(job)
        down, buffers, common = without_extras(received)
        if job.kind == "fit":
            memory.refuse_repeats(down.stamp)
        state = memory.resolved(down.stamp)
        if self._has_buffers:  # the client's own, those that came, or the module's first
            found = memory.buffers if method.buffers == "own" else buffers
            runner.buffers = self._first_buffers if found is None else found
        phases, number = method.phases(down.round), down.stamp.phase
        phase = phases[number] if number < len(phases) else TRAIN
        bounds = setup.max_epochs, setup.least_rows
        local = Local(job.client, down.round, setup.task, setup.config, split, runner, phase, *bounds, meter)
        evaluator = Evaluator(runner, split, job.known)
        scores: dict[str, Scores] = {}
        fit: Fit[object] | None = None
        kept: Model | None = None
        told: Vector | None = None
        config, labels, classes = setup.config, local.targets, setup.task.classes
        weighted = config.class_weights == "balanced"
        prior = (
            log_prior(labels(), classes) if config.logit_prior else None,
            balanced_weights(labels(), classes, local.least_rows) if weighted else None,
        )
        personal = memory.personal
        runner.loss = float("nan")
        if job.kind in ("personal", "adapt"):
            with runner.adding(*prior):
                kept = setup.personal.model(personal, method.personal_model(state, down, local), local, common)
            if job.keep_model:
                kept = self._best(memory.kept, kept, job.best_round)
            if job.score:
                scores["pre"] = evaluator.scores(kept)
                if job.writes:
                    memory = self._kept(memory, kept, job, scores["pre"].validation)
            if job.fine_tune and isinstance(kept, np.ndarray):
                one_epoch = replace(config, epochs=1, steps=None)
                scores["ft"] = evaluator.scores(local.train(kept, one_epoch, stream="ft").weights)
        runner.flops, runner.samples = 0, 0.0
        if job.kind != "personal":
            with runner.adding(*prior):
                personal = setup.personal.before(personal, local)
                if job.kind == "fit" and phase == phases[-1] and not method.alone:
                    told = setup.personal.tell(
                        personal, partial(method.personal_model, state, down, local), local, common
                    )
                fit = (method.adapt if job.kind == "adapt" else method.fit)(state, down, local)
                personal = setup.personal.after(personal, fit, local)
                before = kept if job.keep_model else None
                kept = before if fit.model is None else setup.personal.model(personal, fit.model, local, common)
            if job.score and kept is not None:
                scores["post"] = evaluator.scores(kept)
        reply = Message() if fit is None else fit.reply.stamped(Stamp(*down.stamp.order))
        own = runner.buffers if self._has_buffers else None
        reply = with_extras(reply, own if method.buffers == "averaged" else None, told)
        threshold = self._threshold(kept, split) if job.keep_model and kept is not None else None
        outcome = Outcome(
            client=job.client,
            kind=job.kind,
            order=job.stamp.order,
            received=sum(map(len, job.down)),
            frame=NOTHING if method.alone or job.kind not in ("fit", "adapt") else self._encoded(reply, received),
            paper=paper_bytes(reply),
            scores=scores,
            loss=runner.loss,
            seconds=time.perf_counter() - began,
            flops=0 if fit is None else runner.flops,
            samples=0.0 if fit is None else runner.samples,
            model=used(kept) if job.keep_model and kept is not None else None,
            buffers=own if job.keep_model else None,
            threshold=threshold,
            answers=self._answers(kept, split, threshold) if job.keep_model and kept is not None else None,
            experts=self._experts(kept, split, threshold) if job.keep_model else (),
            known=evaluator.known,
        )
        if fit is None:
            return memory, outcome
        return memory.after(fit, down.stamp, own if method.buffers == "own" else None, personal), outcome

    def _threshold(self, model: Model, split: ClientSplit) -> float | None:
        """Choose a model's threshold on the client's validation rows; None if none is asked for."""
        if self.setup.objective.rule is None or not len(split.validation):
            return None
        (outputs,) = self.runner.test_outputs(held_out(model), split.validation)
        return self.setup.objective.threshold(outputs, self.runner.targets.numpy()[split.validation])

    def _answers(self, model: Model, split: ClientSplit, threshold: float | None) -> Answers | None:
        """Return a model's answers for the client's test rows, if answers are kept."""
        objective, targets = self.setup.objective, self.runner.targets.numpy()
        width = max(self.setup.task.classes, targets[:1].size)
        if objective.task is None or not len(split.test) or not are_kept(self.setup.federation, width):
            return None
        (outputs,) = self.runner.test_outputs(used(model), split.test)
        return objective.answers(outputs, targets[split.test], threshold)

    def _experts(self, model: Model | None, split: ClientSplit, threshold: float | None) -> tuple[ExpertScore, ...]:
        """Return the score of each expert of a pool on the client's test rows."""
        pool, targets = self.setup.personal.pool, self.runner.targets.numpy()
        if not isinstance(model, Mixture) or len(model.models) != len(pool) or not len(split.test):
            return ()
        found = [self.runner.test_outputs(used(one), split.test)[0] for one in model.models]
        scores = [self.setup.objective.measure(outputs, targets[split.test], threshold)[0] for outputs in found]
        return tuple(map(ExpertScore, pool, map(float, model.mixture), map(float, scores)))

    def _kept(self, memory: ClientMemory, model: Model, job: Job, score: float) -> ClientMemory:
        """Return the memory after an evaluation, in which the model may be the best so far."""
        if self.setup.keep == "last":
            return memory
        kept = memory.kept or KeptModels()
        new = kept_model(job.stamp.round, model, self.runner.buffers if self._has_buffers else None, score)
        if self.setup.keep == "best":
            return replace(memory, kept=kept.noted(new, job.best_round))
        return replace(memory, kept=kept.noted_alone(new, self.setup.objective.higher_is_better))

    def _best(self, kept: KeptModels | None, last: Model, best_round: int) -> Model:
        """Return the model that a client keeps in the end, and put its buffers into the runner."""
        if self.setup.keep == "last" or kept is None:
            return last
        found = kept.model(last, best_round if self.setup.keep == "best" else None)
        if found is None:
            return last
        model, buffers = found
        if buffers is not None:
            self.runner.buffers = buffers
        return model

    def received(self, job: Job) -> Message:
        """Decode the downlink of a turn."""
        if self.setup.method.alone:
            return Message().stamped(job.stamp)
        lengths = self.setup.task.layout.lengths
        decoded = partial(decode, job.down, self.limit, lengths, self._decoded, self.references.find)
        return decoded() if self._known is None else self._known.take(job.down, decoded)

    def _encoded(self, reply: Message, down: Message) -> Frame:
        """Encode the reply against the downlink that it answers."""
        lengths, packing = self.setup.task.layout.lengths, self.setup.packing
        parts = usable(down.parts) if packing != "plain" and len(reply) else {}
        if parts and (self._last is None or self._last[0] is not down.parts):
            self._last = down.parts, Reference.of(parts)
        frame = encode(reply, lengths, packing=packing, reference=self._last[1] if parts and self._last else None)
        if self._known is not None:
            self._known.add(frame.pieces, reply, shared=False)
        return frame


class Evaluator:
    """Measures models of one client, and reuses the scores of models that were measured before."""

    WORTHWHILE = 64  # number of samples from which looking up old scores is cheaper than measuring again

    def __init__(self, runner: ModelRunner, split: ClientSplit, known: tuple[ScoredModel, ...]) -> None:
        self._runner = runner
        self._split = split
        self._always = len(split.test) + len(split.validation) < self.WORTHWHILE
        self.known = known

    def scores(self, model: Model) -> Scores:
        """Return the scores of a model, from an earlier measurement if there is one."""
        if self._always:
            return self._measure(model)
        vector = isinstance(model, np.ndarray)
        key = hashlib.sha256(np.ascontiguousarray(model).data if vector else digest(model).encode())
        key.update(self._runner.buffers.data)
        found = next((scored for scored in self.known if scored.digest == key.digest()), None)
        if found is None:
            found = ScoredModel(key.digest(), self._measure(model))
        self.known = (found, *(scored for scored in self.known if scored is not found))[:2]
        return found.scores

    def _measure(self, model: Model) -> Scores:
        checked, (test, validation) = held_out(model), (self._split.test, self._split.validation)
        on_test, on_validation = self._runner.scores(model, test, validation, None if checked is model else checked)
        names = self._runner.objective.metric_names
        others = dict(zip(names[1:], zip(on_test[1:], on_validation[1:], strict=True), strict=True))
        return Scores(on_test[0], on_validation[0], others)
