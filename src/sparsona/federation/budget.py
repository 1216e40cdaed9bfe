"""The privacy budget of a run: what must be off with one, and the mechanism of each client."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sparsona.errors import InputError
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.setup import Setup
from sparsona.layout import Layout
from sparsona.method import ClientId
from sparsona.privacy import PrivacySettings
from sparsona.privacy.mechanism import Mechanism


def mechanisms(
    setup: Setup, settings: PrivacySettings, evaluation: Evaluation, sample: float = 1.0
) -> Mapping[ClientId, Mechanism]:
    """Return the mechanism of each client, for the queries that its method plans over the run.

    Raises `InputError` with the reason where the guarantee could not hold. `sample` is the share of clients that a
    round asks: a client plans for its expected turns and three deviations more.
    """
    _check(setup, evaluation)
    rounds, config = setup.task.rounds, setup.config
    turns = min(rounds, math.ceil(rounds * sample + 3 * math.sqrt(rounds * sample * (1 - sample))))
    uses = 1 + sum(evaluation.due(round, rounds) for round in range(rounds))
    alone = "alone" in setup.personal.pool
    found = {}
    for client, split in setup.federation.splits.items():
        examples = len(split.train)

        def steps(examples: int = examples, **changes: float | None) -> int:
            return replace(config, **changes).batches(examples)  # type: ignore[arg-type]

        planned = setup.method.queries(steps)
        each = planned.round + (steps() if alone else 0)
        total = planned.once + math.ceil(turns * each) + uses * planned.use
        found[client] = Mechanism.planned(settings, examples, config.batch, total, planned.use)
    return found


def _check(setup: Setup, evaluation: Evaluation) -> None:
    """Refuse settings that use a client's rows outside of privatised queries."""
    config, personal, buffers = setup.config, setup.personal, Layout.of_buffers(setup.module).size
    reasons = {
        "the model has BatchNorm or other buffers, which mix rows: choose a model without": buffers > 0,
        "training.logit_prior counts the classes of all rows: leave it out": config.logit_prior,
        "training.class_weights count the classes of all rows: leave them out": config.class_weights != "none",
        "training.order=stored samples no rows: choose shuffled": config.order == "stored",
        "evaluation.ft trains once more in each evaluation: leave it out": evaluation.ft,
        "personal.pool has trees or a linear model, which no gradients train: leave them out": bool(
            {"trees", "linear"} & set(personal.pool)
        ),
        "the weights of the pool are fitted to validation rows: set personal.weights=equal": personal.told > 0,
    }
    for reason, found in reasons.items():
        if found:
            raise InputError(f"with a privacy budget: {reason}")
