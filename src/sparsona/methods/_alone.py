"""What methods share whose clients train one expert alone: nothing travels, and the first turn does it all."""

from __future__ import annotations

from dataclasses import dataclass

from sparsona.experts.alone import ExpertName, constant_answer, train_expert
from sparsona.experts.refitted import Refitted
from sparsona.message import Message
from sparsona.method import Fit, Model
from sparsona.training.local import Local


@dataclass(frozen=True)
class AloneState:
    """The client's expert, once it is trained."""

    expert: Refitted | None = None


def fit_alone(name: ExpertName, state: AloneState, local: Local) -> Fit[AloneState]:
    """Train the expert in the client's first turn; later turns change nothing."""
    expert = state.expert or train_expert(name, local)
    return Fit(AloneState(expert), Message(), expert)


def model_alone(state: AloneState, local: Local) -> Model:
    """Return the client's expert; the constant answer of its rows before its first turn."""
    return state.expert or constant_answer(local)
