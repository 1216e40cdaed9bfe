"""Every random choice is derived from (seed, purpose, round, client, layer). There is no global generator."""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

_turn = threading.RLock()
"""Held by the thread that uses torch's generator."""

if hasattr(os, "register_at_fork"):  # not on Windows; a forked child must not wait for a thread that it does not have
    os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release)


@lru_cache(maxsize=4096)
def _number(text: str) -> bytes:
    """Return a stable 64-bit number for a name; Python's own hash changes with every process."""
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return _bytes(int.from_bytes(digest, "little"))


def _bytes(number: int) -> bytes:
    """Return a non-negative number in as many 32-bit words as needed, the lowest first; 0 needs one."""
    return number.to_bytes(4 * max(1, (number.bit_length() + 31) // 32), "little")


@dataclass(frozen=True)
class Chance:
    """The source of all randomness of one run. With a `secret`, no stream reveals another one.

    The same arguments give the same numbers, in any process and order:

    >>> a = Chance(0).rng("batches", round=3, client="c1").integers(100, size=3)
    >>> b = Chance(0).rng("batches", round=3, client="c1").integers(100, size=3)
    >>> bool((a == b).all())
    True
    """

    seed: int
    secret: bytes = field(default=b"", repr=False)

    def _names(self, purpose: str, round: int, client: str) -> bytes:
        names = b"".join((_bytes(self.seed), _number(purpose), _bytes(int(round)), _number(client)))
        return hashlib.blake2b(names, key=self.secret).digest() if self.secret else names

    def _sequence(self, purpose: str, round: int, client: str, layer: int) -> np.random.SeedSequence:
        words = np.frombuffer(self._names(purpose, round, client) + _bytes(int(layer)), "<u4")
        return np.random.SeedSequence(words.astype(np.uint32))

    def rng(self, purpose: str, *, round: int = 0, client: str = "", layer: int = 0) -> np.random.Generator:
        """Return a generator for this purpose."""
        return np.random.Generator(np.random.PCG64(self._sequence(purpose, round, client, layer)))

    @contextmanager
    def torch(self, purpose: str, *, round: int = 0, client: str = "", device: str = "cpu") -> Iterator[None]:
        """Seed torch's generator in this block (dropout, initial weights), and restore it afterwards.

        Torch has one generator for all threads, so another thread's block waits, and two runs do not mix their numbers.
        """
        with _turn:
            yield from self._seeded(purpose, round, client, device)

    def _seeded(self, purpose: str, round: int, client: str, device: str) -> Iterator[None]:
        state = self._sequence(purpose, round, client, 0).generate_state(1, np.uint64)[0]
        seed = int(state & np.uint64(2**63 - 1))
        # Not torch.manual_seed: it also notes the seed, with a stack trace, for every kind of device that torch knows
        # and has not started. That took a quarter of a tiny client's turn, and the notes were never forgotten.
        generators = [torch.default_generator]
        if device.startswith("cuda"):
            torch.cuda.init()  # type: ignore[no-untyped-call]
            generators.append(torch.cuda.default_generators[torch.device(device).index or 0])
        before = [generator.get_state() for generator in generators]
        for generator in generators:
            generator.manual_seed(seed)
        try:
            yield
        finally:
            for generator, kept in zip(generators, before, strict=True):
                generator.set_state(kept)
