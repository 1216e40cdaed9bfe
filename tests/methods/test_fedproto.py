"""FedProto: prototypes by hand, and a pull that does what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted import answered, floats, task
from torch import nn

import sparsona
from sparsona.errors import InputError, WireError
from sparsona.message import Message, Positions, Vector
from sparsona.methods.fedproto import FedProto
from sparsona.ops.class_means import ClassMeans
from sparsona.testing import tiny_setup
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner

ALIKE: dict[str, Any] = {"data": "digits", "clients": 4, "rounds": 3, "evaluation": {"every": 0}}


def reply(classes: list[int], counts: Vector, means: Vector) -> Message:
    return Message(known=Positions(3, np.array(classes)), means=means, counts=counts)


def test_prototypes_are_weighted_by_their_examples() -> None:
    method, where = FedProto(), task(nn.Linear(2, 3), classes=3)
    server = method.start_server(where)
    replies = [("a", reply([0, 2], floats(1, 4), floats(1, 1, 5, 6))), ("b", reply([0], floats(3), floats(5, 9)))]
    after = answered(method, server, replies, where)
    assert after.known.indices.tolist() == [0, 2]
    assert after.rows.tolist() == [[4, 7], [5, 6]]
    later = answered(method, after, [("b", reply([1], floats(2), floats(8, 8)))], where, round=1)
    assert later.known.indices.tolist() == [0, 1, 2], "a class that is not heard of keeps its prototype"
    assert later.rows.tolist() == [[4, 7], [8, 8], [5, 6]]


def test_a_reply_that_counts_nothing_is_refused() -> None:
    method, where = FedProto(), task(nn.Linear(2, 3), classes=3)
    with pytest.raises(WireError):
        answered(method, method.start_server(where), [("a", reply([0], floats(0), floats(1, 1)))], where)


def test_embeddings_are_pulled_to_the_prototype_of_their_class() -> None:
    setup = tiny_setup(FedProto())
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    local = Local("c0", 0, setup.task, setup.config, setup.federation.splits["c0"], runner)
    width = local.layout.width
    down = Message(**ClassMeans(Positions(4, np.arange(4)), np.ones((4, width), np.float32)).parts())
    distances = []
    for lam in (0.0, 1.0, 5.0):
        method = FedProto(lam=lam)
        fit = method.fit(method.start_client(setup.task, "c0"), down, local)
        embeddings = local.embed(fit.state.weights, local.inputs())
        distances.append(float((embeddings - 1).square().mean()))
        own = ClassMeans.read(fit.reply, 4, width)
        first = embeddings.numpy()[local.targets() == own.known.indices[0]]
        np.testing.assert_allclose(own.rows[0], first.mean(0), rtol=1e-5)
        assert fit.reply.vector("counts")[0] == len(first)
    assert distances[0] > distances[1] > distances[2]


def test_messages_are_prototypes_only() -> None:
    ours, plain = sparsona.run("fedproto", **ALIKE), sparsona.run("fedavg", **ALIKE)
    assert ours.summary["bytes"]["up"] < plain.summary["bytes"]["up"] / 3


def test_it_needs_classes_and_has_no_private_form() -> None:
    rows = {name: (np.ones((20, 2), np.float32), np.linspace(0.1, 0.9, 20, dtype=np.float32)) for name in "ab"}
    with pytest.raises(InputError, match="classes"):
        sparsona.run("fedproto", data=rows, task="regression", rounds=1)
    with pytest.raises(InputError, match="no private form"):
        FedProto().queries(lambda **_: 1)
