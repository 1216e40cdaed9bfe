"""The rules of an owner: the limits of the experiments that its node accepts."""

from dataclasses import dataclass

from sparsona.base import is_file
from sparsona.data import PATHS
from sparsona.engines.network.setup import check_networkable
from sparsona.errors import InputError
from sparsona.experiment import Experiment
from sparsona.registry import split_spec
from sparsona.words import counted


@dataclass(frozen=True)
class Rules:
    """The limits that an owner sets. Empty `methods` allow every method."""

    methods: tuple[str, ...] = ()
    most_epochs: int = 20
    most_weights: int = 10**8
    scores: bool = True
    model: bool = False
    least_rows: int = 20
    most_rounds: int = 1000
    most_proposals: int = 100
    epsilon: float | None = None
    """The privacy budget over all runs; None: the owner has none, and a run may bring its own."""
    delta: float = 1e-6

    def check(self, experiment: Experiment) -> None:
        """Raise `InputError` if the owner does not allow this experiment, whatever the rows are."""
        check_networkable(experiment)
        if self.methods and experiment.method not in self.methods:
            raise InputError(f"the owner allows {', '.join(self.methods)}, not {experiment.method}")
        if experiment.rounds > self.most_rounds:
            raise InputError(f"the owner allows {counted(self.most_rounds, 'round')}, not {experiment.rounds}")
        if self.least_rows > 1:
            experiment.training.check_least(self.least_rows)
        if is_file(experiment.base):
            raise InputError("the base is named by its hash, not by a file of the owner")
        for option, value in experiment.options.items():
            if isinstance(value, str) and split_spec(value)[0] in PATHS:
                raise InputError(f"{option} = {value!r} names a file of the owner: only --data is read")

    def check_epochs(self, experiment: Experiment, examples: int) -> None:
        """Raise `InputError` if a round makes more passes over `examples` training rows than the owner allows."""
        passes = experiment.training.most_examples(examples) / max(1, examples)
        if passes > self.most_epochs:
            raise InputError(f"the owner allows {counted(self.most_epochs, 'epoch')} a round, not {passes:.1f}")


def in_words(experiment: Experiment) -> str:
    """Describe a proposal for the owner."""
    config = experiment.training
    return (
        f"{experiment.method} {experiment.options or ''} on model {experiment.model}, "
        f"{counted(experiment.rounds, 'round')} of {counted(config.epochs, 'epoch')}"
    )
