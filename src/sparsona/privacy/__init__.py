"""Differential privacy of a client's training rows: the mechanism, its accountant, and the owner's ledger.

One mechanism answers every question about training rows that may leave a client: a *query*. It takes each row with
probability `rate`, clips its gradient to the norm `clip`, adds up, and adds normal noise of deviation `noise * clip`.
:class:`sparsona.training.local.Local` asks nothing else with a budget, so all that a client sends is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparsona.errors import InputError
from sparsona.options import option


@dataclass(frozen=True)
class PrivacySettings:
    """The differential privacy of each client's training rows, with respect to replacing one of them."""

    epsilon: float | None = option(
        None, "privacy budget of each client for the whole run (not given: no differential privacy)", gt=0
    )
    delta: float = option(1e-5, "probability with which the bound epsilon may fail", ge=1e-10, lt=1)
    clip: float = option(1.0, "maximum norm of the gradient of one row", ge=1e-5, le=1e5)
    noise: float | None = option(
        None, "deviation of the noise in units of clip, in place of epsilon (not given: found from epsilon)", ge=0.1
    )

    @property
    def is_on(self) -> bool:
        """True if the run has a budget; raises `InputError` if it is given twice."""
        if self.epsilon is not None and self.noise is not None:
            raise InputError("privacy.epsilon and privacy.noise exclude each other: drop one of them")
        return self.epsilon is not None or self.noise is not None


NO_PRIVACY = PrivacySettings()
