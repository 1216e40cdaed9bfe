"""The checks of every method."""

import ast
import dataclasses
import inspect
import pickle
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from sparsona.base import base_hash
from sparsona.engines.inprocess import InProcess
from sparsona.errors import ContractError
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import Sampled
from sparsona.federation.worker import Job, Outcome
from sparsona.method import Method, ServerContext
from sparsona.runs.state import digest, pack, unpack, unpack_like
from sparsona.testing.delivery import SCRIPTS, check_delivery, equal
from sparsona.testing.guard import GuardedMethod, ModelKey, check_same_models
from sparsona.testing.privacy import check_budget, check_privacy, check_private
from sparsona.testing.tiny import run, tiny_setup


def check_method(method: Method[Any, Any]) -> None:
    """Raise a ContractError that names the failed check and the reason."""
    before = _fields(method)
    with _check("declaration"):
        _declared(method)
    with _check("imports"):
        check_imports(method)
    with _check("send"):
        _sends(method)
    with _check("a run of three clients"):
        reference = _guarded_run(method)
    with _check("states on disk"):
        _round_trips(reference.rounds)
    with _check("the same run twice"):
        _same("two runs of the same seed", reference, _guarded_run(method))
    with _check("replies in another order"):
        _same("replies in another order", reference, _guarded_run(method, engine=Backwards))
    with _check("a single client"):
        _guarded_run(method, clients=1, rounds=2)
    with _check("a net with a frozen layer"):
        _leaves_base(method)
    with _check("a sample of the clients"):
        _guarded_run(method, schedule=Sampled(sample=0.4))
    for number, script in enumerate(SCRIPTS, 1):
        with _check(f"lost, late and repeated messages, script {number}"):
            check_delivery(method, script)
    with _check("stop and resume"), tempfile.TemporaryDirectory() as folder:
        _guarded_run(method, checkpoint=Path(folder), stop=1)
        resumed = _guarded_run(method, checkpoint=Path(folder), resume=True)
        _same("a run that was stopped and resumed", reference, resumed)
    with _check("a new client"):
        _newcomer(reference.rounds)
    with _check("privacy"):
        check_privacy(method)
    with _check("privacy budget"):
        check_budget(method)
    with _check("no memory in the method"):
        after = _fields(method)
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                raise ContractError(
                    f"{name!r} of the method object has changed: what is remembered belongs into a state"
                )


@contextmanager
def _check(name: str) -> Iterator[None]:
    """Turn errors in this block into a ContractError that begins with the name of the check."""
    try:
        yield
    except ContractError as error:
        raise ContractError(f"{name}: {error}") from error
    except Exception as error:
        raise ContractError(f"{name}: {type(error).__name__}: {error}") from error


def _fields(method: Method[Any, Any]) -> dict[str, bytes]:
    return {name: pickle.dumps(value) for name, value in vars(method).items()}


class Backwards(InProcess):
    """An engine that yields the outcomes in reverse, as a network might."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        return iter(list(super().run(jobs))[::-1])


class GuardedRun(NamedTuple):
    """A run of the tiny federation, and the digests of the method's models."""

    rounds: Rounds
    models: Mapping[ModelKey, str]


def _guarded_run(method: Method[Any, Any], **how: Any) -> GuardedRun:
    """Run with every answer of the method checked; `how` has the arguments of :func:`run`."""
    guard = GuardedMethod(method)
    return GuardedRun(run(guard, **how), guard.models)  # type: ignore[arg-type]


def _leaves_base(method: Method[Any, Any]) -> None:
    """Check that frozen weights keep their bits in a run with weight decay, and are in no vector."""
    before = base_hash(tiny_setup(method, frozen=True).module)
    config = dataclasses.replace(tiny_setup(method).config, weight_decay=0.01)
    rounds = _guarded_run(method, clients=2, rounds=2, config=config, frozen=True).rounds
    if base_hash(rounds.setup.module) != before:
        raise ContractError("the frozen weights of a net have changed: train only what the layout has")


def _same(what: str, one: GuardedRun, other: GuardedRun) -> None:
    check_same_models(what, one.models, other.models)
    ours, theirs = (
        {"the server": digest(rounds.server), **rounds.engine.store.digests(rounds.setup.task.clients)}
        for rounds in (one.rounds, other.rounds)
    )
    for who in ours:
        if ours[who] != theirs[who]:
            raise ContractError(f"{what} must give the same bits, but the final state of {who} differs")


def _declared(method: Method[Any, Any]) -> None:
    kind = type(method)
    if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ContractError(f"{kind.__name__} must be a frozen dataclass of hyper-parameters")
    if not (kind.__doc__ or "").strip() or (kind.__doc__ or "").startswith(f"{kind.__name__}("):
        raise ContractError(f"{kind.__name__} needs a docstring: `sparsona methods` shows its first line")
    task = tiny_setup(method).task
    state = GuardedMethod(method).start_client(task, task.clients[0])
    check_private(method, state)
    if kind.feedback and not hasattr(state, kind.feedback):
        raise ContractError(
            f"feedback names {kind.feedback!r}, which is no field of the client's state: name that of the residual"
        )


def _sends(method: Method[Any, Any]) -> None:
    """Check that a second request of a downlink gives the same one and leaves the server's state."""
    task, guard = tiny_setup(method).task, GuardedMethod(method)
    server = guard.start_server(task)
    before = digest(server)
    for client in task.clients:
        context = ServerContext(task, 0, method.phases(0)[0])
        one, other = (guard.send(server, client, context) for _ in range(2))
        if digest(server) != before:
            raise ContractError("send() changes the server's state in place")
        if not equal(one, other):
            raise ContractError(f"send() gives {client} another message when it is asked again")


def _round_trips(rounds: Rounds) -> None:
    states = {"the server": rounds.server, **{k: rounds.engine.store.get(k) for k in rounds.setup.task.clients}}
    for who, state in states.items():
        data = pack(state)
        if pack(unpack_like(data, state) if dataclasses.is_dataclass(state) else unpack(data, type(state))) != data:
            raise ContractError(f"the state of {who} does not survive being written and read")


def _newcomer(rounds: Rounds) -> None:
    """Check that an unknown client is served, has a model, and can adapt."""
    setup = rounds.setup
    name = "somebody new"
    shares = {**setup.federation.splits, name: setup.federation.splits[setup.task.clients[0]]}
    wider = dataclasses.replace(setup, federation=dataclasses.replace(setup.federation, splits=shares))
    later = assemble(wider, InProcess(wider), rounds.schedule, rounds.evaluation)
    later.server, later.delivery = rounds.server, rounds.delivery
    before = digest(rounds.server)
    for outcome in later.finish("adapt", [name]):
        if "pre" not in outcome.scores:
            raise ContractError("a new client has no model before it adapts")
    if digest(rounds.server) != before:
        raise ContractError("send() changes the server's state in place")


FORBIDDEN = tuple(f"sparsona.{room}" for room in ("engines", "wire", "federation", "runs", "api", "result", "cli"))


def check_imports(method: Method[Any, Any]) -> None:
    """Check that a method imports neither engine nor wire, also through the modules beside it."""
    first = type(method).__module__
    own = ("sparsona.methods", "sparsona.ops") if first.startswith("sparsona.") else (first.partition(".")[0],)
    seen, waiting = {first}, [first]
    while waiting:
        module = waiting.pop()
        for name in _imported(sys.modules[module]):
            if _within(name, FORBIDDEN):
                raise ContractError(f"{module} imports {name}: a method knows neither engine nor wire")
            if _within(name, own) and name in sys.modules and name not in seen:
                seen.add(name)
                waiting.append(name)


def _imported(module: ModuleType) -> Iterator[str]:
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            package = (module.__package__ or "").split(".")
            base = [*package[: len(package) + 1 - node.level], node.module or ""] if node.level else [node.module or ""]
            origin = ".".join(part for part in base if part)
            yield from (origin, *(f"{origin}.{alias.name}" for alias in node.names))


def _within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
