"""The wire: a :class:`~sparsona.message.Message` as bytes and back, without loss, close to its entropy.

>>> import numpy as np
>>> from sparsona.message import Message, Sparse
>>> message = Message(update=Sparse(1000, np.array([3, 500]), np.array([0.5, -2.0], np.float32)), examples=20)
>>> frame = encode(message)
>>> frame.ledger.header, frame.ledger.positions, frame.ledger.values
(32, 4, 10)
>>> decode(frame.data, Limit(elements=2000)).sparse("update").indices
array([  3, 500])
"""

from sparsona.wire.buffers import Ledger
from sparsona.wire.frame import LONGEST_EMPTY, DecodeCache, EncodeCache, Frame, Limit, decode, encode, reference_in
from sparsona.wire.kinds import PackingName, Tensors
from sparsona.wire.references import Reference

__all__ = [
    "LONGEST_EMPTY", "DecodeCache", "EncodeCache", "Frame", "Ledger", "Limit", "PackingName", "Reference", "Tensors",
    "decode", "encode", "reference_in",
]  # fmt: skip
