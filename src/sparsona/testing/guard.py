"""A method whose every answer is checked: types, numbers, and unchanged arguments."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from sparsona.errors import ContractError, SparsonaError, WireError
from sparsona.message import Message
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.runs.state import digest
from sparsona.training.local import Local

ModelKey: TypeAlias = tuple[str, ClientId, int, str]
"""Key of a model: the function that gave it, the client, the round (from 0) and the name of its phase."""


class GuardedMethod:
    """A method that behaves as before, but whose answers must satisfy the contract.

    `models` has the digest of each model that it gave; the last one per key.
    """

    def __init__(self, method: Method[Any, Any]) -> None:
        self._method = method
        self.models: dict[ModelKey, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def start_server(self, task: Task) -> Any:
        """Check the server's first state."""
        with _named("start_server"):
            state = self._method.start_server(task)
        _check_finite("start_server() gives the server a state", state)
        return state

    def start_client(self, task: Task, client: ClientId) -> Any:
        """Check the client's first state."""
        with _named("start_client"):
            state = self._method.start_client(task, client)
        _check_finite(f"start_client() gives {client} a state", state)
        return state

    def send(self, server: Any, to: ClientId, context: ServerContext) -> Message:
        """Check that the downlink is a message."""
        with _named("send"):
            message = self._method.send(server, to, context)
        _check_type("what send() returns", message, Message, "return a Message")
        return message

    def fit(self, state: Any, down: Message, local: Local) -> Fit[Any]:
        """Check the Fit of a client's turn."""
        with _named("fit"), _untouched("fit() changes the client's state", state):
            fit = self._method.fit(state, down, local)
        return self._checked("fit", fit, state, local)

    def adapt(self, state: Any, down: Message, local: Local) -> Fit[Any]:
        """Check the Fit of a joining client."""
        with _named("adapt"), _untouched("adapt() changes the client's state", state):
            fit = self._method.adapt(state, down, local)
        return self._checked("adapt", fit, state, local)

    def aggregate(self, server: Any, arrivals: Sequence[Arrival], context: ServerContext) -> Any:
        """Check the server's state after an aggregation."""
        with _named("aggregate"), _untouched("aggregate() changes the server's state", server):
            after = self._method.aggregate(server, arrivals, context)
        _check_type("what aggregate() returns", after, type(server), "return the server's new state")
        _check_finite(f"aggregate() gives the server, in round {context.round + 1}, a state", after)
        return after

    def personal_model(self, state: Any, down: Message, local: Local) -> Any:
        """Check the model of a client."""
        with _named("personal_model"), _untouched("personal_model() changes the client's state", state):
            model = self._method.personal_model(state, down, local)
        self._keep("personal_model", model, local)
        return model

    def _checked(self, function: str, fit: Fit[Any], state: Any, local: Local) -> Fit[Any]:
        who = f"{local.client}, in round {local.round + 1},"
        _check_type(f"what {function}() returns", fit, Fit, "return Fit(state, reply, model)")
        _check_type(f"the reply of {function}()", fit.reply, Message, "give Fit a Message")
        for name, after in (("state", fit.state), ("state if_lost", fit.lost)):
            _check_type(f"the {name} that {function}() gives", after, type(state), "give Fit the client's new state")
            _check_finite(f"{function}() gives {who} a {name}", after)
        last = self._method.phases(local.round)[-1]
        if fit.model is not None:
            self._keep(function, fit.model, local)
        elif local.phase.name == last.name:
            raise ContractError(
                f"{function}() gives {who} no model in phase {last.name!r}, which trains: give Fit the trained model"
            )
        return fit

    def _keep(self, function: str, model: Any, local: Local) -> None:
        _check_model(f"{function}() gives {local.client}, in round {local.round + 1},", model, local.layout.size)
        self.models[function, local.client, local.round, local.phase.name] = digest(model)


def check_same_models(what: str, one: Mapping[ModelKey, str], other: Mapping[ModelKey, str]) -> None:
    """Raise a ContractError if two runs have different models for a common key."""
    for key, mark in one.items():
        function, client, round, _ = key
        if other.get(key, mark) != mark:
            raise ContractError(
                f"{what} must give the same bits, but {function}() gives {client}, in round {round + 1}, another "
                "model: take chance from local.rng(), and nothing from a clock or a global variable"
            )


@contextmanager
def _named(function: str) -> Iterator[None]:
    """Name the contract's function in unexpected errors; the program's own errors stay as they are."""
    try:
        yield
    except WireError as error:
        raise ContractError(f"{function}() raises WireError: {error}") from error
    except SparsonaError:
        raise
    except Exception as error:
        raise ContractError(f"{function}() raises {type(error).__name__}: {error}") from error


@contextmanager
def _untouched(flaw: str, value: Any) -> Iterator[None]:
    """Raise an error if `value` is changed in place."""
    before = digest(value)
    yield
    if digest(value) != before:
        raise ContractError(f"{flaw} in place: make a new one")


def _check_type(what: str, found: Any, kind: type, fix: str) -> None:
    if not isinstance(found, kind):
        raise ContractError(f"{what} must be a {kind.__name__}, not a {type(found).__name__}: {fix}")


def _check_model(what: str, model: Any, size: int) -> None:
    """Check that a model is a finite float32 vector, or a frozen dataclass of finite numbers that can predict."""
    if isinstance(model, np.ndarray):
        if model.dtype != np.float32 or model.shape != (size,):
            shape = f"of {len(model)} numbers" if model.ndim == 1 else f"of shape {model.shape}"
            raise ContractError(f"{what} a {model.dtype} model {shape}: give a float32 vector of {size} numbers")
    elif not (
        dataclasses.is_dataclass(model)
        and model.__dataclass_params__.frozen  # type: ignore[union-attr]
        and callable(getattr(model, "predict", None))
    ):
        kind = "no model" if model is None else f"a {type(model).__name__} as its model"
        raise ContractError(f"{what} {kind}: give a float32 vector, or a frozen dataclass with predict()")
    _check_finite(f"{what} a model", model)


def _check_finite(what: str, value: Any) -> None:
    for name, number in _not_finite(value, ""):
        where = f" ({name})" if name else ""
        raise ContractError(f"{what} with {number}{where}: every number must be finite")


def _not_finite(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the fields with a number that is not finite, and one such number each."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            yield name, str(value[~np.isfinite(value)][0])
    elif isinstance(value, float) and not math.isfinite(value):
        yield name, str(value)
    elif isinstance(value, Mapping | tuple | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _not_finite(inner, f"{name}[{key!r}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _not_finite(getattr(value, field.name), f"{name}.{field.name}".lstrip("."))
