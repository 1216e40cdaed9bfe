"""What FedPSE's server owes its clients: every common choice once, whatever becomes of their replies."""

from __future__ import annotations

import numpy as np

from sparsona.message import Sparse
from sparsona.methods.fedpse.owed import Owed
from sparsona.ops.packed import Packed


def entry(value: float) -> Packed:
    return Packed.of(Sparse(1, np.array([0]), np.array([value], np.float32)))


def sent(owed: Owed, client: str) -> float:
    return float(owed.updates[client].sparse().values[0])


def begun() -> Owed:
    """k was sent 1 and trains; what was common to the round meanwhile is 10."""
    owed = Owed().given({"k": entry(1)}, Owed(), ())
    return owed.broadcast(entry(10), {"k"}).given({"a": entry(0)}, owed, ())


def test_a_late_reply_that_counts_brings_what_was_missed() -> None:
    owed = begun()
    after = owed.broadcast(entry(100), ()).given({"k": entry(5)}, owed, {"k"})
    assert sent(after, "k") == 15, "its choice in place of the last round's common one"
    assert not after.missed


def test_a_late_reply_that_does_not_count_leaves_nothing_missed() -> None:
    """The client goes back and is sent 111: its next own choice is all that it gets then."""
    owed = begun()
    owed = owed.broadcast(entry(100), ()).given({"a": entry(0)}, owed, ())
    assert sent(owed, "k") == 111
    assert not owed.missed
    after = owed.broadcast(entry(1000), ()).given({"k": entry(5)}, owed, ())
    assert sent(after, "k") == 5


def test_a_client_that_is_late_again_has_missed_the_new_round_only() -> None:
    owed = begun()
    owed = owed.broadcast(entry(100), ()).given({"a": entry(0)}, owed, ())
    owed = owed.broadcast(entry(1000), {"k"}).given({"a": entry(0)}, owed, ())
    after = owed.broadcast(entry(9), ()).given({"k": entry(5)}, owed, {"k"})
    assert sent(after, "k") == 1005


def test_a_reply_in_its_own_round_has_missed_nothing() -> None:
    """Between the two nobody's reply counted, so no common choice has cleared what was missed."""
    owed = begun()
    assert sent(owed, "k") == 11
    after = owed.broadcast(entry(100), ()).given({"k": entry(5)}, owed, ())
    assert sent(after, "k") == 5
