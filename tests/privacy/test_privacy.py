from __future__ import annotations

import pytest

from sparsona.errors import InputError
from sparsona.privacy import NO_PRIVACY, PrivacySettings


def test_a_budget_is_an_epsilon_or_a_noise_but_not_both() -> None:
    assert not NO_PRIVACY.is_on
    assert PrivacySettings(epsilon=1.0).is_on
    assert PrivacySettings(noise=1.0).is_on
    with pytest.raises(InputError, match="exclude each other"):
        _ = PrivacySettings(epsilon=1.0, noise=1.0).is_on
