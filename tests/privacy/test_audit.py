"""The audit of benchmarks/audit.py, with fewer canaries: broken builds are caught, the real one is not."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import audit

CANARIES, ROUNDS = 300, 4


def test_without_privacy_the_attack_finds_all_canaries() -> None:
    found = audit.audited("fedspa", math.inf, CANARIES, ROUNDS)
    assert found["found"] > 0.9
    assert found["bound"] > 2


@pytest.mark.parametrize("method", ["fedavg", "fedpse"])
def test_with_a_budget_it_measures_less_than_is_claimed(method: str) -> None:
    found = audit.audited(method, 1.0, CANARIES, ROUNDS)
    assert found["bound"] <= found["claimed"] <= 1.0


@pytest.mark.parametrize("build", audit.BROKEN)
def test_a_broken_mechanism_is_caught(build: str) -> None:
    share, broken = audit.BROKEN[build]
    assert audit.audited("fedavg", 1.0, CANARIES, ROUNDS, share, broken)["bound"] > 1.0


def test_noise_after_the_choice_of_entries_is_caught() -> None:
    assert audit.late_noise(1.0, CANARIES, ROUNDS)["bound"] > 1.0
