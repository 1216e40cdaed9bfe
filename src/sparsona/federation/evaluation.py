"""When, where and by what models are measured."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from sparsona.options import option
from sparsona.personal.kept import KeepName


def _listed(given: Any) -> Any:
    """Return names of metrics, given as a list or as texts with commas."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return given
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class Evaluation:
    """When, where and by what models are measured."""

    every: int = option(1, "evaluate every N rounds (0: only after the last)", ge=0)
    post: Literal["everyone", "participants"] = option(
        "everyone", "clients measured after training; everyone trains clients that were not sampled just for that"
    )
    ft: bool = option(False, "also measure the pre model after one epoch of training")
    keep: KeepName = option(
        "last",
        "model that a client keeps: of the last round, the best validation score's (best), or its own best one's",
    )
    patience: int = option(0, "stop after N evaluations without a better mean validation score (0: never)", ge=0)
    metrics: Annotated[tuple[str, ...], BeforeValidator(_listed)] = option(
        (), "metrics to measure; the first decides in choices and reports (none: accuracy, or mae)"
    )
    positive: str = option("", "the class that sensitivity, precision and the like are about (none: the second of two)")

    threshold: str = option(
        "", "threshold of the positive class, chosen on validation rows: youden, or sensitivity=0.9 (none: 0.5)"
    )

    def due(self, round: int, rounds: int) -> bool:
        """True if models are measured in this round, counted from 0."""
        return round + 1 == rounds or (self.every > 0 and (round + 1) % self.every == 0)


EVERY_ROUND, LAST_ROUND = Evaluation(), Evaluation(every=0)
