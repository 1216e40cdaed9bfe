from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sparsona.engines.network.memory import MOST_ROLLBACKS, SCORES_PER_ROUND, NodeMemory
from sparsona.errors import WireError
from sparsona.federation.delivery import ClientMemory


def memory(folder: Path) -> NodeMemory:
    return NodeMemory(folder, ClientMemory(np.zeros(2, np.float32)), "va", "rows")


def test_a_server_may_go_back_a_few_times_also_over_restarts(tmp_path: Path) -> None:
    for number in range(MOST_ROLLBACKS):
        kept = memory(tmp_path)
        kept.record((0, 0), b"%d" % number, ClientMemory(np.ones(2, np.float32)), {}, b"reply")
        kept.roll_back((0, 0))
        assert not kept.memory.state.any(), "as before the turn"
    kept.record((0, 0), b"last", ClientMemory(np.ones(2, np.float32)), {}, b"reply")
    with pytest.raises(WireError, match="gone back 20 times"):
        memory(tmp_path).roll_back((0, 0))
    assert memory(tmp_path).answered((0, 0), b"last") == ({}, b"reply")


def test_evaluations_are_counted_over_restarts(tmp_path: Path) -> None:
    for _ in range(SCORES_PER_ROUND * (1 + MOST_ROLLBACKS)):
        memory(tmp_path).count_scored(1)
    with pytest.raises(WireError, match="more evaluations"):
        memory(tmp_path).count_scored(1)
    memory(tmp_path).count_scored(2)
