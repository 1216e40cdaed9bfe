"""FedProto: prototypes by hand, and a pull that does what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scripted import answered, floats, task
from torch import nn

import sparsona
from sparsona.errors import WireError
from sparsona.message import Message, Positions, Sparse, Vector
from sparsona.methods.fedproto import FedProto, Prototypes
from sparsona.testing import tiny_setup
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner

ALIKE: dict[str, Any] = {"data": "digits", "clients": 4, "rounds": 3, "evaluation": {"every": 0}}


def reply(classes: list[int], counts: Vector, means: Vector) -> Message:
    return Message(counts=Sparse(3, np.array(classes), counts), prototypes=means)


def test_prototypes_are_weighted_by_their_examples() -> None:
    method, where = FedProto(), task(nn.Linear(2, 3), classes=3)
    server = method.start_server(where)
    replies = [("a", reply([0, 2], floats(1, 4), floats(1, 1, 5, 6))), ("b", reply([0], floats(3), floats(5, 9)))]
    after = answered(method, server, replies, where)
    assert after.known.indices.tolist() == [0, 2]
    assert after.prototypes.tolist() == [[4, 7], [0, 0], [5, 6]]
    later = answered(method, after, [("b", reply([1], floats(2), floats(8, 8)))], where, round=1)
    assert later.known.indices.tolist() == [0, 1, 2], "a class that is not heard of keeps its prototype"
    assert later.prototypes.tolist() == [[4, 7], [8, 8], [5, 6]]


def test_a_reply_that_counts_nothing_is_refused() -> None:
    method, where = FedProto(), task(nn.Linear(2, 3), classes=3)
    with pytest.raises(WireError):
        answered(method, method.start_server(where), [("a", reply([0], floats(0), floats(1, 1)))], where)


class Net:
    """A net whose embedding is its input, and whose outputs are all for class 1."""

    def __call__(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[0.0, 1.0, 0.0]]).expand(len(inputs), 3)

    def embed(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


def test_the_nearest_prototype_is_predicted() -> None:
    means = np.array([[0, 0], [3, 4]], np.float32)
    model = Prototypes(np.zeros(1, np.float32), means, np.array([0, 2]), 3)
    found = model.predict(Net(), torch.tensor([[0.0, 0.0], [3.0, 3.0]]))
    assert found[0, [0, 2]].tolist() == [0, -25]
    assert found.argmax(1).tolist() == [0, 2]
    none = Prototypes(model.weights, means[:0], np.zeros(0, np.int64), 3)
    assert none.predict(Net(), torch.zeros(1, 2)).argmax(1).tolist() == [1]


def test_embeddings_are_pulled_to_the_prototype_of_their_class() -> None:
    setup = tiny_setup(FedProto())
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    local = Local("c0", 0, setup.task, setup.config, setup.federation.splits["c0"], runner)
    centres = np.ones((4, local.layout.width), np.float32)
    down = Message(known=Positions(4, np.arange(4)), prototypes=centres.ravel())
    distances = []
    for lam in (0.0, 1.0, 5.0):
        method = FedProto(lam=lam)
        fit = method.fit(method.start_client(setup.task, "c0"), down, local)
        embeddings = local.embed(fit.state.weights, local.inputs())
        distances.append(float((embeddings - 1).square().mean()))
        own = fit.reply.vector("prototypes").reshape(-1, local.layout.width)
        first = embeddings.numpy()[local.targets() == fit.reply.sparse("counts").indices[0]]
        np.testing.assert_allclose(own[0], first.mean(0), rtol=1e-5)
    assert distances[0] > distances[1] > distances[2]


def test_messages_are_prototypes_only() -> None:
    ours, plain = sparsona.run("fedproto", **ALIKE), sparsona.run("fedavg", **ALIKE)
    assert ours.summary["bytes"]["up"] < plain.summary["bytes"]["up"] / 3
