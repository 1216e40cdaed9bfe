"""docs/wire-format.md: its example is a frame."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from wire_cases import same

from sparsona.message import Message, Positions, Stamp
from sparsona.wire import Limit, Reference, decode, encode

PAGE = (Path(__file__).parents[2] / "docs" / "wire-format.md").read_text()


def test_the_example_is_the_frame_that_it_says() -> None:
    (block,) = re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL)
    data = bytes.fromhex("".join(re.split(r"  +(?=[^ ])", line)[0] for line in block.splitlines()))
    weights, mask = np.array([0.5, 0.25, -1], np.float32), np.arange(300) % 3 == 0
    held = Reference.of({"w": weights, "mask": Positions.of(mask)})
    mask[[3, 4]] = False, True
    message = Message(w=weights, mask=Positions.of(mask), examples=20).stamped(Stamp(3, 0, (2, 0)))
    assert same(decode(data, Limit(1000), references={held.fingerprint: held}.get), message)
    assert encode(message, reference=held).data == data
    assert f"{len(data)} bytes; without the reference it would take {len(encode(message).data)}." in PAGE
    assert held.fingerprint.hex() in PAGE
