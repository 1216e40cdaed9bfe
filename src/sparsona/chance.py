"""Every random choice is derived from (seed, purpose, round, client, layer). There is no global generator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


def _number(text: str) -> int:
    """A stable 64-bit number for a name: Python's own hash changes with every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Chance:
    """The source of all randomness of one run.

    The same arguments give the same numbers, whoever asks, in whatever order:

    >>> a = Chance(0).rng("batches", round=3, client="c1").integers(100, size=3)
    >>> b = Chance(0).rng("batches", round=3, client="c1").integers(100, size=3)
    >>> bool((a == b).all())
    True
    """

    seed: int

    def _sequence(self, purpose: str, round: int, client: str, layer: int) -> np.random.SeedSequence:
        return np.random.SeedSequence([self.seed, _number(purpose), round, _number(client), layer])

    def rng(self, purpose: str, *, round: int = 0, client: str = "", layer: int = 0) -> np.random.Generator:
        """A generator of its own for this purpose."""
        return np.random.Generator(np.random.PCG64(self._sequence(purpose, round, client, layer)))

    @contextmanager
    def torch(self, purpose: str, *, round: int = 0, client: str = "", device: str = "cpu") -> Iterator[None]:
        """Within this block torch's generator is ours (dropout, initial weights); afterwards it is as it was."""
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
