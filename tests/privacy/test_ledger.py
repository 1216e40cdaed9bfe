from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparsona.errors import RunError
from sparsona.privacy import PrivacySettings
from sparsona.privacy.ledger import OwnerLedger
from sparsona.privacy.mechanism import BudgetSpent, Mechanism

ASKED = PrivacySettings(epsilon=3.0, delta=1e-5)


def plan(settings: PrivacySettings) -> Mechanism:
    return Mechanism.planned(settings, examples=100, batch=50, queries=8)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "privacy.json"


def test_runs_share_the_owners_budget_and_the_last_one_gets_what_is_left(file: Path) -> None:
    ledger = OwnerLedger(file, epsilon=4.0, delta=3e-5)
    first = ledger.planned("a", ASKED, plan)
    assert first.epsilon(8) <= 3.0
    ledger.begin("a", first, b"turn")[1](2)
    second = OwnerLedger(file, 4.0, 3e-5).planned("b", ASKED, plan)
    assert second.noise > first.noise
    assert first.epsilon(8) + second.epsilon(8) <= 4.0
    again = OwnerLedger(file, 4.0, 3e-5)
    again.begin("b", second, b"turn")[1](1)
    with pytest.raises(BudgetSpent, match="spent"):
        again.planned("c", ASKED, plan)
    assert OwnerLedger(file, 4.0, 3e-5).planned("a", ASKED, plan) == first


def test_a_small_run_leaves_delta_for_later_ones(file: Path) -> None:
    ledger = OwnerLedger(file, epsilon=4.0, delta=1e-6)
    for run, left in (("a", 4.0), ("b", 3.0), ("c", 2.0)):
        found = ledger.planned(run, PrivacySettings(epsilon=1.0, delta=1e-5), plan)
        assert found.delta <= 1.01e-6 / left
        ledger.begin(run, found, b"turn")[1](1)
    assert ledger.reserved[1] <= 1e-6


def test_a_run_without_an_own_budget_gets_the_owners(file: Path) -> None:
    found = OwnerLedger(file, epsilon=2.0, delta=1e-6).planned("a", PrivacySettings(), plan)
    assert found.delta == 1e-6
    assert 1.9 < found.epsilon(8) <= 2.0


def test_a_noise_that_would_exceed_the_budget_is_refused_before_the_first_query(file: Path) -> None:
    ledger = OwnerLedger(file, epsilon=1.0, delta=1e-5)
    loud = ledger.planned("a", PrivacySettings(noise=0.5), plan)
    with pytest.raises(BudgetSpent, match="exceed"):
        ledger.begin("a", loud, b"turn")[1](1)
    assert not file.exists()


def test_queries_go_on_from_the_last_one_and_a_cut_off_turn_has_the_same_ones_again(file: Path) -> None:
    ledger = OwnerLedger(file)
    mechanism = ledger.planned("a", ASKED, plan)
    first, charge = ledger.begin("a", mechanism, b"round 1")
    charge(first + 3)
    assert OwnerLedger(file).begin("a", mechanism, b"round 1")[0] == 0
    assert OwnerLedger(file).begin("a", mechanism, b"round 1, other weights")[0] == 3
    later = OwnerLedger(file)
    first, charge = later.begin("a", mechanism, b"round 2")
    charge(first + 1)
    assert OwnerLedger(file).begin("a", mechanism, b"round 1")[0] == 4
    assert 0 < later.spent("a") < mechanism.epsilon(8) == later.reserved[0]
    assert later.spent("b") == 0
    assert math.isinf(later.epsilon)


KILLED = """
import sys
from pathlib import Path
from sparsona.privacy.ledger import OwnerLedger
from sparsona.privacy.mechanism import Mechanism

ledger = OwnerLedger(Path(sys.argv[1]))
mechanism = Mechanism(1.0, 50.0, 0.5, 1e-5, 10**6)
for turn in range(10**6):
    first, charge = ledger.begin("a", mechanism, str(turn).encode())
    charge(first + 1)
    print(first + 1, flush=True)
"""


def test_a_killed_process_has_spent_at_least_what_it_has_said(file: Path) -> None:
    spent = 0
    for turns in (3, 8):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(turns):
                told = int(child.stdout.readline())
            os.kill(child.pid, signal.SIGKILL)
        assert told > spent
        ledger = OwnerLedger(file)
        mechanism = Mechanism(1.0, 50.0, 0.5, 1e-5, 10**6)
        spent = ledger.begin("a", mechanism, b"the next turn")[0]
        assert spent >= told


def test_a_damaged_ledger_ends_all_runs(file: Path) -> None:
    file.write_text("{")
    with pytest.raises(RunError, match="damaged"):
        OwnerLedger(file)
