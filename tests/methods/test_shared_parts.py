"""The parts that averaging methods share: the server's step, and options in groups."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scripted import answered, floats, task
from torch import nn

from sparsona.errors import InputError
from sparsona.experiment import assign, build, make_method
from sparsona.message import Message
from sparsona.method import Method
from sparsona.methods import METHODS
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedthin import FedThin
from sparsona.ops.moments import EMPTY
from sparsona.ops.server import PLAIN_STEP, ServerStep
from sparsona.options import groups, options_of

LINE = task(nn.Linear(1, 1))


def steps(step: ServerStep, *updates: float) -> list[float]:
    """Where the server stands after each of these mean updates."""
    at, memory, out = floats(0), EMPTY, []
    for update in updates:
        way, memory = step.direction(floats(update), memory)
        at = at + way
        out.append(float(at[0]))
    return out


def test_the_plain_step_is_the_mean() -> None:
    assert steps(PLAIN_STEP, 1, 2) == [1, 3]


def test_momentum_keeps_a_share_of_the_last_direction() -> None:
    assert steps(ServerStep(momentum=0.5), 1, 1, 0) == [1, 2.5, 3.25]
    assert steps(ServerStep(lr=2, momentum=0.5), 1, 1, 0) == [2, 5, 6.5]


def test_adam_and_yogi_divide_by_the_root_of_the_second_moment() -> None:
    # m = 0.1 D; v = 0.9 tau^2 + 0.1 D^2 with tau = 1
    adam = ServerStep("adam", lr=1, momentum=0.9, beta2=0.9, tau=1.0)
    assert steps(adam, 2) == pytest.approx([0.2 / (np.sqrt(0.9 + 0.4) + 1)])
    # yogi: v = tau^2 + 0.1 D^2 where D^2 > v
    assert steps(dataclasses.replace(adam, optimizer="yogi"), 2) == pytest.approx([0.2 / (np.sqrt(1.4) + 1)])
    second = 0.2 / (np.sqrt(1.3) + 1) + (0.18 + 0.1) / (np.sqrt(0.9 * 1.3 + 0.1) + 1)
    assert steps(adam, 2, 1)[1] == pytest.approx(second)


def test_fedavg_with_a_server_step_moves_beyond_the_mean() -> None:
    method = FedAvg(server=ServerStep(lr=2, momentum=0.5))
    replies = [("a", Message(weights=floats(1, 0), examples=1)), ("b", Message(weights=floats(3, 4), examples=1))]
    first = answered(method, method.start_server(LINE), replies, LINE)
    assert first.weights.tolist() == [4, 4]
    again = [(client, Message(weights=first.weights, examples=1)) for client, _ in replies]
    assert answered(method, first, again, LINE).weights.tolist() == [6, 6]


@pytest.mark.parametrize("name", METHODS.names())
def test_a_method_has_one_family_at_most(name: str) -> None:
    between = [kind for kind in METHODS.get(name).__mro__[1:] if issubclass(kind, Method) and kind is not Method]
    assert len(between) <= 1, f"{name} is spread over {', '.join(kind.__name__ for kind in between)}"


GROUPED = [name for name in METHODS.names() if groups(METHODS.get(name))]


@pytest.mark.parametrize("name", GROUPED)
def test_groups_of_options_go_to_the_file_and_back(name: str) -> None:
    keys = [option.name for option in options_of(METHODS.get(name)) if "." in option.name]
    wanted = {"server.momentum": 0.25, "server.lr": 0.5}
    given = {key: value for key, value in wanted.items() if key in keys}
    experiment, method = build(assign({"method": name}, [f"{key}={value}" for key, value in given.items()]))
    for key, value in given.items():
        group, option = key.split(".")
        assert getattr(getattr(method, group), option) == value
        assert experiment.options[group][option] == value
    assert make_method(name, experiment.options) == method


def test_an_option_of_a_group_leaves_the_others_at_the_methods_own_defaults() -> None:
    method = make_method("fedthin", {"server": {"lr": 2}})
    assert isinstance(method, FedThin)
    assert method.server == ServerStep(lr=2, momentum=0.5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"server": {"momentun": 0.5}}, "no option 'server.momentun'; did you mean 'momentum'?"),
        ({"server": 2}, "server is a group of options: set server.optimizer"),
        ({"server": {"momentum": 1.0}}, "server.momentum: input should be less than 1"),
    ],
)
def test_a_wrong_option_of_a_group_is_named(options: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem.replace("?", r"\?")):
        make_method("fedavg", options)
