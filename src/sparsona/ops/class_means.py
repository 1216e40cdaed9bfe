"""The mean vector of each class, known for some classes only: prototypes, centres, class means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sparsona.errors import WireError
from sparsona.layout import Forward
from sparsona.message import Message, Part, Positions, Vector


@dataclass(frozen=True)
class ClassMeans:
    """The means of the classes in `known`, one row each.

    >>> means = ClassMeans.of(np.float32([[1, 1], [3, 1], [9, 9]]), np.array([0, 0, 2]), 3)
    >>> means.known.indices, means.rows
    (array([0, 2]), array([[2., 1.],
           [9., 9.]], dtype=float32))
    >>> means.squares(torch.tensor([[2.0, 2.0]]))
    tensor([[ 1., inf, 98.]])
    """

    known: Positions
    rows: npt.NDArray[np.float32]

    @classmethod
    def none(cls, classes: int, width: int) -> ClassMeans:
        """No class is known yet."""
        return cls(Positions(classes, np.zeros(0, np.int64)), np.zeros((0, width), np.float32))

    @classmethod
    def of(cls, vectors: npt.NDArray[np.float32], labels: npt.NDArray[Any], classes: int, least: int = 1) -> ClassMeans:
        """The means of the classes that have at least `least` vectors."""
        own = np.flatnonzero(np.bincount(labels, minlength=classes) >= least)
        rows = [vectors[labels == one].mean(0) for one in own]
        return cls(Positions(classes, own), np.array(rows, np.float32).reshape(len(own), vectors.shape[1]))

    @classmethod
    def read(cls, message: Message, classes: int, width: int) -> ClassMeans:
        """Read what :meth:`parts` put into a message."""
        known = message.positions("known", classes)
        return cls(known, message.vector("means", len(known.indices) * width).reshape(-1, width))

    def parts(self) -> dict[str, Part]:
        """The parts of a message that hold the means."""
        return {"known": self.known, "means": self.rows.ravel()}

    def updated(self, replies: Iterable[tuple[ClassMeans, Vector]]) -> ClassMeans:
        """Average means by their classes' counts. A class that no reply contains keeps its mean."""
        total = np.zeros(self.known.size)
        sums = np.zeros((self.known.size, self.rows.shape[1]))
        for means, counts in replies:
            if not (counts > 0).all():
                raise WireError("a reply counts a class with no example")
            sums[means.known.indices] += counts[:, None] * means.rows.astype(np.float64)
            total[means.known.indices] += counts
        rows, heard = np.zeros(sums.shape, np.float32), total > 0
        rows[self.known.indices] = self.rows
        rows[heard] = sums[heard] / total[heard, None]
        known = Positions.of(heard | self.known.mask())
        return ClassMeans(known, rows[known.indices])

    def squares(self, points: torch.Tensor) -> torch.Tensor:
        """The squared distance of each point to each class's mean; infinite where the class is not known."""
        out = torch.full((len(points), self.known.size), torch.inf, device=points.device)
        if len(self.rows):
            distances = torch.cdist(points, torch.tensor(self.rows, device=points.device))
            out[:, torch.tensor(self.known.indices)] = distances.square()
        return out

    def strays(self, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return each point's mean squared difference from the mean of its class; 0 if the class is unknown."""
        table = torch.zeros(self.known.size, self.rows.shape[1])
        table[torch.tensor(self.known.indices)] = torch.tensor(self.rows)
        known = torch.tensor(self.known.mask(), dtype=torch.float32, device=points.device)
        return known[labels] * (points - table.to(points.device)[labels]).square().mean(1)


@dataclass(frozen=True)
class NearestMean:
    """Predicts the class whose mean is nearest to the input's embedding; by the net where no class is known."""

    weights: Vector
    means: ClassMeans

    def predict(self, forward: Forward, inputs: torch.Tensor) -> torch.Tensor:
        """Return minus the squared distances."""
        if not len(self.means.rows):
            return forward(self.weights, inputs)
        return -self.means.squares(forward.embed(self.weights, inputs)).clamp(max=1e30)
