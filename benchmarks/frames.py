"""Hostile frames: every one must be refused by a WireError or decoded within its limit, and soon.

    python benchmarks/frames.py [--frames 1000000] [--seed 0] [--against]

Real frames of every method, up and down, are damaged (bits flipped, bytes replaced, cut off, two put together, lengths
blown up, noise) and given a right checksum, so that the reader has to look at all of it. The reader holds the
references of the real frames. Foreign is any other exception. The slowest frame is compared with the honest decoding of
as many numbers as the limit allows. `--against` damages vectors that are coded against a reference, and nothing else.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import xxhash

from sparsona.engines.inprocess import InProcess
from sparsona.errors import WireError
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.references import usable
from sparsona.federation.rounds import assemble
from sparsona.federation.worker import Job, Outcome
from sparsona.message import Message
from sparsona.methods import METHODS
from sparsona.testing import tiny_setup
from sparsona.training.determinism import make_deterministic
from sparsona.wire import Limit, Reference, decode, encode
from sparsona.wire.frame import reference_in

SIZES = (64, 65, 79, 80, 127, 1023, 1024, 1025, 1039, 1040, 2048, 3000)
"""Numbers of the vectors of :func:`frames_against`: whole blocks and chunks, and one more or fewer."""


def real_frames(held: dict[bytes, Reference]) -> list[bytes]:
    """What each method sends in three rounds of three clients; what a frame may be coded against goes into `held`."""
    frames: list[bytes] = []

    class Kept(InProcess):
        def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
            for job in jobs:
                (outcome,) = super().run([job])
                down = b"".join(job.down)
                frames.extend(data for data in (down, outcome.frame.data) if data)
                if down:
                    keep(held, decode(down, setup.limit(), setup.task.layout.lengths, references=held.get))
                yield outcome

    for _, kind in METHODS:
        setup = tiny_setup(kind())
        assemble(setup, Kept(setup), evaluation=LAST_ROUND).run()
    return sorted(set(frames))


def frames_against(held: dict[bytes, Reference]) -> list[bytes]:
    """Vectors coded against a reference as differences: small and large steps, some numbers far from their old ones."""
    rng, frames = np.random.default_rng(1), []
    for size in SIZES:
        for step in (-12, -5, -1):
            old = rng.normal(size=size).astype(np.float32)
            new = old + rng.normal(size=size).astype(np.float32) * np.float32(2.0**step)
            new[rng.random(size) < 0.02] *= np.float32(-1000)
            message = Message(weights=new)
            frames.append(encode(message, reference=keep(held, Message(weights=old))).data)
    return frames


def keep(held: dict[bytes, Reference], message: Message) -> Reference:
    """Hold what another message may be coded against."""
    reference = Reference.of(usable(message.parts))
    held[reference.fingerprint] = reference
    return reference


def damaged(frames: list[bytes], rng: random.Random) -> bytes:
    """One frame with some harm done to it and a right checksum."""
    body = bytearray(rng.choice(frames)[:-4])
    harm = rng.randrange(7)
    if harm == 0:
        for _ in range(rng.randint(1, 8)):
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    elif harm == 1:
        at = rng.randrange(len(body))
        body[at : at + rng.randint(1, 16)] = rng.randbytes(rng.randint(1, 16))
    elif harm == 2:
        del body[rng.randrange(3, len(body)) :]
    elif harm == 3:
        other = rng.choice(frames)
        body[rng.randrange(3, len(body)) :] = other[rng.randrange(len(other)) : -4]
    elif harm == 4:
        at = rng.randrange(3, len(body))
        body[at : at + 1] = b"\xff" * rng.randint(1, 9) + b"\x7f"
    elif harm == 5:  # names, lengths and tables stand near the start
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(3, min(len(body), 150))
            body[at] = min(255, max(0, body[at] + rng.choice((-16, -2, -1, 1, 2, 16))))
    else:
        body[3:] = rng.randbytes(rng.randint(1, 400))
    return bytes(body) + (xxhash.xxh3_64_intdigest(body) % 2**32).to_bytes(4, "little")


def decoded(
    frame: bytes, limit: Limit, lengths: tuple[int, ...] | None, held: dict[bytes, Reference]
) -> tuple[str, float]:
    """What becomes of a frame, and the processor's seconds."""
    start = time.process_time()
    try:
        decode(frame, limit, lengths, references=held.get)
        kind = "decoded"
    except WireError:
        kind = "refused"
    except Exception as error:  # noqa: BLE001  (that is what is counted)
        kind = f"foreign: {type(error).__name__}: {error}"
    return kind, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--against", action="store_true", help="damage vectors that are coded against a reference")
    given = parser.parse_args()
    make_deterministic()
    setup = tiny_setup(METHODS.get("fedavg")())
    held: dict[bytes, Reference] = {}
    lengths, limit = (None, Limit(2 * max(SIZES))) if given.against else (setup.task.layout.lengths, setup.limit())
    frames = frames_against(held) if given.against else real_frames(held)
    rng, honest = random.Random(given.seed), honest_seconds(limit)
    referring = sum(reference_in(frame) is not None for frame in frames)
    print(
        f"{len(frames)} frames, {referring} with a reference; honest decoding {honest * 1e3:.2f} ms",
        flush=True,
    )
    found: Counter[str] = Counter()
    slowest, began = 0.0, time.monotonic()
    for number in range(given.frames):
        frame = damaged(frames, rng)
        kind, seconds = decoded(frame, limit, lengths, held)
        found[kind] += 1
        if seconds > slowest:  # again: the first time may have compiled a kernel, or shared the processor
            slowest = max(slowest, min(decoded(frame, limit, lengths, held)[1] for _ in range(5)))
        if (number + 1) % 100_000 == 0:
            print(
                f"{number + 1}: {dict(found)}, slowest {slowest * 1e3:.1f} ms, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    print(f"{given.frames} frames: {dict(found)}; the slowest took {slowest / honest:.1f} x the honest decoding")


def honest_seconds(limit: Limit) -> float:
    """The processor's time for a dense message of as many numbers as the limit allows; the best of some."""
    values = np.random.default_rng(0).normal(size=limit.elements - 8).astype(np.float32)
    frame = encode(Message(weights=values)).data
    times = []
    for _ in range(20):
        start = time.process_time()
        decode(frame, limit)
        times.append(time.process_time() - start)
    return max(min(times), 1e-5)


if __name__ == "__main__":
    main()
