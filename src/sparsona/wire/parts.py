"""Code a part as its kind's number and its body, by itself or against a part that the receiver has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparsona.errors import WireError
from sparsona.message import Part
from sparsona.wire import against, floats
from sparsona.wire.buffers import Piece, Reader
from sparsona.wire.kinds import KINDS, PACKINGS, PackingName, Tensors, number_of
from sparsona.wire.references import FINGERPRINT

AGAINST = 64
"""Added to the kind of a part that is coded against the part of the same name in the reference."""

NAMING = FINGERPRINT
"""The bytes that naming the reference costs: a part is coded against it if that saves more."""


def encode(
    part: Part, layout: Tensors | None, packing: PackingName = "tight", base: Part | None = None
) -> tuple[int, Piece]:
    """Return the kind of `part` and its body: against `base`, which the receiver has, if that is shorter."""
    number = number_of(part)
    body = None if base is None or packing == "plain" else _encode_against(number, part, base, layout)
    if body is not None:
        below = body.ledger.total + NAMING
        if isinstance(part, np.ndarray) and part.dtype == np.float32 and floats.encode_below(part, below) is None:
            return number + AGAINST, body
    alone = KINDS[number].encode(part, layout, PACKINGS[packing])
    return (number, alone) if body is None or alone.ledger.total <= below else (number + AGAINST, body)


def _encode_against(number: int, part: Part, base: Part, layout: Tensors | None) -> Piece | None:
    way = KINDS[number].against
    body = way.encode(part, base, layout) if way is not None and against.fits(part, base) else None
    if way is None or body is None:
        return None
    return Piece(body.chunks, replace(body.ledger, against=body.ledger.total, against_plain=way.plain(part)))


def decode(kind: int, reader: Reader, layout: Tensors | None, base: Part | None = None) -> Part:
    """Return the part of `kind` that comes next; `base` is the part of its name in the reference."""
    if kind in KINDS:
        return KINDS[kind].decode(reader, layout)
    way = KINDS[kind - AGAINST].against if kind - AGAINST in KINDS else None
    if way is None:
        raise WireError(f"a part is of kind {kind}, which does not exist")
    if base is None or number_of(base) != kind - AGAINST:
        held = "nothing" if base is None else f"a {type(base).__name__}"
        raise WireError(f"a part of kind {kind - AGAINST} is coded against {held} in the reference")
    return way.decode(reader, base, layout)
