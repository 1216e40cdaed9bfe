"""What a vector costs on the wire, in bytes and in time, against zstd, COO and a plain copy.

    python benchmarks/wire.py [--quick] [--times] [--only vectors|references]

Random vectors of three sizes, and real ones: weights and updates of two networks trained on Fashion-MNIST. Every row
is decoded and compared bit for bit. zstd-19 gets every layout of the same content that we could think of (pairs,
positions first, a bitmap, the dense vector; bytes as they are and grouped by significance), and its best counts.
Times are processor times of one thread, the best of several, taken in turn: compare columns, not machines.

The last table is of 20 rounds of FedAvg: every model that is sent, up against the downlink that it answers and down
against the downlink before, beside the same model alone and zstd-19 of the difference in bytes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import zstandard
from rich import box
from rich.console import Console
from rich.table import Table

import sparsona
from sparsona import data
from sparsona.errors import InputError
from sparsona.message import IndexSet, Message, Part, Sparse, Vector
from sparsona.method import Arrival, ServerContext
from sparsona.methods.fedavg import FedAvg
from sparsona.models import MODELS
from sparsona.ops.server import ServerState
from sparsona.training.determinism import make_deterministic
from sparsona.wire import Frame, Limit, Reference, Tensors, decode, encode

SIZES = {34_826: "convnet2", 1_663_370: "cnn-mcmahan", 11_220_132: "resnet18-gn"}
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {"resnet18-gn": ((3, 32, 32), 100)}
DENSITIES = (0.5, 0.1, 0.01)


@dataclass(frozen=True)
class Row:
    """One vector, whole or on a support."""

    source: str
    layout: Tensors
    values: Vector
    indices: IndexSet | None = None

    @property
    def size(self) -> int:
        return sum(self.layout)

    @property
    def part(self) -> Part:
        return self.values if self.indices is None else Sparse(self.size, self.indices, self.values)

    @property
    def coo(self) -> bytes:
        """Positions as int64, then float32 values: what a program without a codec would send."""
        return (b"" if self.indices is None else self.indices.tobytes()) + self.values.tobytes()


def module(name: str) -> torch.nn.Module:
    shape, outputs = SHAPES.get(name, ((1, 28, 28), 10))
    torch.manual_seed(0)
    return MODELS.get(name)(shape, outputs)


def lengths(net: torch.nn.Module) -> Tensors:
    return tuple(p.numel() for p in net.parameters())


def flat(net: torch.nn.Module) -> Vector:
    with torch.no_grad():
        return torch.cat([p.reshape(-1) for p in net.parameters()]).numpy().copy()


def top(vector: Vector, density: float) -> IndexSet:
    count = round(density * len(vector))
    return np.sort(np.argpartition(-np.abs(vector), count - 1)[:count])


def random_rows(size: int) -> Iterator[Row]:
    """Normal values; positions by chance."""
    rng, layout = np.random.default_rng(size), lengths(module(SIZES[size]))
    vector = (rng.standard_normal(size) * 0.01).astype(np.float32)
    for density in DENSITIES:
        indices = np.flatnonzero(rng.random(size) < density)
        yield Row("random", layout, vector[indices], indices)
    yield Row("random", layout, vector)


def train(net: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor, steps: int) -> None:
    chance = torch.Generator().manual_seed(steps)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(steps):
        batch = torch.randint(len(targets), (32,), generator=chance)
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(inputs[batch]), targets[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def real_rows(name: str, quick: bool) -> Iterator[Row]:
    """A network after some training on all classes, and what a client that has three of them then sends."""
    images = data.load("fashion-mnist")
    inputs = torch.from_numpy(images.inputs.astype(np.float32) / 255)
    targets = torch.from_numpy(images.targets.astype(np.int64))
    net = module(name)
    train(net, inputs, targets, 50 if quick else 300)
    before = flat(net)
    own = targets < 3
    train(net, inputs[own], targets[own], 20 if quick else 100)
    after, layout = flat(net), lengths(net)
    update = after - before
    for density in DENSITIES:
        indices = top(update, density)
        yield Row("update", layout, update[indices], indices)
    yield Row("update", layout, update)
    yield Row("weights", layout, after)


def grouped(raw: bytes, width: int) -> bytes:
    """The bytes of numbers by significance: all lowest bytes first."""
    return np.frombuffer(raw, np.uint8).reshape(-1, width).T.tobytes()


def zstd_19(row: Row) -> int:
    """The smallest of several layouts."""
    values = row.values.tobytes()
    tries = [values, grouped(values, 4)]
    if row.indices is not None:
        mask = np.zeros(row.size, np.uint8)
        mask[row.indices] = 1
        dense = np.zeros(row.size, np.float32)
        dense[row.indices] = row.values
        gaps = np.diff(row.indices, prepend=-1).astype(np.int32).tobytes()
        where = [row.indices.tobytes(), grouped(gaps, 4), np.packbits(mask).tobytes()]
        tries = [*(w + v for w in where for v in tries), dense.tobytes()]
    coder = zstandard.ZstdCompressor(level=19)
    return min(len(coder.compress(t)) for t in tries)


def check(row: Row, frame: Frame) -> None:
    back = decode(frame.data, Limit(row.size), row.layout).parts["v"]
    part = row.part
    for a, b in (
        [(part, back)] if isinstance(part, np.ndarray) else zip(vars(part).values(), vars(back).values(), strict=True)
    ):
        if np.asarray(a).tobytes() != np.asarray(b).tobytes():
            raise AssertionError(f"{row.source} of {row.size} did not come back")


def best(actions: list[Callable[[], object]], times: int) -> list[float]:
    """The shortest time of each action in milliseconds of this thread, all taken in turn."""
    out = [math.inf] * len(actions)
    for _ in range(times):
        for i, action in enumerate(actions):
            start = time.thread_time()
            action()
            out[i] = min(out[i], 1000 * (time.thread_time() - start))
    return out


def size_cells(row: Row, frame: Frame) -> list[str]:
    ours, coo = len(frame.data), len(row.coo)
    zstd = zstd_19(row)
    positions = ["", "", ""]
    if row.indices is not None:
        bits, bound = (8 * x / len(row.indices) for x in (frame.ledger.positions, frame.ledger.bound))
        positions = [f"{bits:.3f}", f"{bound:.3f}", f"{bits / bound:.4f}"]
    per = 8 * frame.ledger.values / len(row.values)
    return [*positions, f"{per:.2f}", f"{ours:,}", f"{ours / zstd:.3f}", f"{ours / coo:.3f}"]


def time_cells(row: Row, frame: Frame, times: int) -> list[str]:
    message, limit, plain = Message(v=row.part), Limit(row.size), row.coo
    array = np.frombuffer(plain, np.uint8)
    fast, slow = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    packed = fast.compress(plain)
    there, back, copy, zip3, unzip3 = best(
        [
            lambda: encode(message, row.layout),
            lambda: decode(frame.data, limit, row.layout),
            lambda: array.copy(),
            lambda: fast.compress(plain),
            lambda: slow.decompress(packed),
        ],
        times,
    )
    speeds = [f"{4 * row.size / ms / 1000:,.0f}" for ms in (there, back)]
    return [f"{ms:.2f}" for ms in (there, back, there + back, copy, zip3, unzip3)] + speeds


@dataclass(frozen=True)
class Sent:
    """A model that was sent, and what the receiver had before."""

    round: int
    up: bool
    layout: Tensors
    values: Vector
    held: Vector


def federation(model: str, clients: int, examples: int, rounds: int) -> list[Sent]:
    """What travels in FedAvg on Fashion-MNIST with learning rate 0.1, one epoch a round and the default partition's
    skew of classes: two of the replies and the next model of every round.
    """
    images = data.load("fashion-mnist")
    chance = np.random.default_rng(0)
    shares = chance.dirichlet(np.full(10, 0.3), clients)
    own = {}
    for client in range(clients):
        classes = chance.choice(10, examples, p=shares[client])
        rows = np.array([chance.choice(np.flatnonzero(images.targets == c)) for c in classes])
        own[f"c{client}"] = (images.inputs[rows].astype(np.float32) / 255, images.targets[rows])
    sent: list[Sent] = []

    class Recorded(FedAvg):
        def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
            following, layout = super().aggregate(server, arrivals, context), context.task.layout
            for arrival in arrivals[:2]:
                reply = arrival.message.vector("weights", layout.size)
                sent.append(Sent(context.round, True, layout.lengths, reply, server.weights))
            sent.append(Sent(context.round, False, layout.lengths, following.weights, server.weights))
            return following

    sparsona.run(
        Recorded(), data=own, model=module(model), rounds=rounds, engine="inprocess", training={"lr": 0.1, "batch": 32}
    )
    return sent


def zstd_difference(sent: Sent) -> int:
    """zstd-19 of the difference in each byte, grouped by significance; of the xor, if that is smaller."""
    new, old = (v.view(np.uint32) for v in (sent.values, sent.held))
    coder = zstandard.ZstdCompressor(level=19)
    tries = [new - old, new ^ old]
    return min(len(coder.compress(grouped(t.tobytes(), 4))) for t in tries)


def weigh(sent: Sent, zstd: bool) -> tuple[list[int], list[float]]:
    """Bytes of a model (raw, against, alone, zstd-19); milliseconds to encode and to decode it, against and alone."""
    message, held = Message(v=sent.values), Reference.of({"v": sent.held})
    limit, find = Limit(len(sent.values)), {held.fingerprint: held}.get
    frame, alone = encode(message, sent.layout, reference=held), encode(message, sent.layout)
    if decode(frame.data, limit, sent.layout, references=find).vector("v").tobytes() != sent.values.tobytes():
        raise AssertionError(f"a model of round {sent.round} did not come back")
    times = best(
        [
            lambda: encode(message, sent.layout, reference=held),
            lambda: decode(frame.data, limit, sent.layout, references=find),
            lambda: encode(message, sent.layout),
            lambda: decode(alone.data, limit, sent.layout),
        ],
        3,
    )
    return [sent.values.nbytes, len(frame.data), len(alone.data), zstd_difference(sent) if zstd else 0], times


def reference_table(quick: bool) -> Table:
    """One line for the first rounds, one for the others, one for all, in both directions."""
    columns = ["size", "way", "rounds", "against", "alone", "zstd-19", "enc", "dec", "enc alone", "dec alone"]
    out = Table(title="Against a reference: share of raw, milliseconds a model", box=box.MARKDOWN, title_justify="left")
    for name in ["model", *columns]:
        out.add_column(name, justify="left" if name in ("model", "way") else "right", no_wrap=True)
    for model, clients, examples in (("convnet2", 10, 600), ("cnn-mcmahan", 4, 300)):
        sent = federation(model, clients, 100 if quick else examples, 4 if quick else 20)
        start = sent[0].round
        for up in (True, False):
            # zstd-19 takes most of the time: every fifth round is enough to see what it can do
            weighed = [(s.round - start, *weigh(s, (s.round - start) % 5 == 0)) for s in sent if s.up == up]
            for first, last in ((0, 4),) if quick else ((0, 4), (4, 20), (0, 20)):
                some = [(size, ms) for round, size, ms in weighed if first <= round < last]
                raw, against, alone, zstd = np.sum([size for size, _ in some], axis=0).tolist()
                tried = sum(size[0] for size, _ in some if size[3])
                shares = [f"{against / raw:.3f}", f"{alone / raw:.3f}", f"{zstd / tried:.3f}" if tried else ""]
                times = [f"{ms:.2f}" for ms in np.mean([ms for _, ms in some], axis=0)]
                way, rounds = "up" if up else "down", f"{first + 1} to {last}"
                out.add_row(model, f"{raw // 4 // len(some):,}", way, rounds, *shares, *times)
    return out


def table(title: str, columns: list[str]) -> Table:
    out = Table(title=title, box=box.MARKDOWN, title_justify="left")
    for name in ["vector", "size", "density", *columns]:
        out.add_column(name, justify="left" if name == "vector" else "right", no_wrap=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="the two smaller sizes, little training, fewer repetitions"
    )
    parser.add_argument("--times", action="store_true", help="the second table only: zstd-19 takes most of the time")
    parser.add_argument("--only", choices=("vectors", "references"), help="the first two tables, or the last one")
    asked = parser.parse_args()
    quick = asked.quick
    make_deterministic()
    console = Console(width=150)
    if asked.only != "references":
        print_vectors(console, quick, asked.times)
    if asked.only != "vectors":
        try:
            console.print(reference_table(quick))
        except InputError as error:
            print(f"no federation: {error}")


def print_vectors(console: Console, quick: bool, only_times: bool) -> None:
    sizes = table("Bytes", ["bits/pos", "bound", "of bound", "bits/value", "bytes", "of zstd-19", "of COO"])
    times = table("Milliseconds", ["encode", "decode", "both", "memcpy", "zstd-3", "unzstd-3", "enc MB/s", "dec MB/s"])
    rows = [row for size in list(SIZES)[: 2 if quick else 3] for row in random_rows(size)]
    try:
        rows += [row for name in ("convnet2", "cnn-mcmahan") for row in real_rows(name, quick)]
    except InputError as error:
        print(f"no real updates: {error}")
    for row in rows:
        frame = encode(Message(v=row.part), row.layout)
        check(row, frame)
        density = "dense" if row.indices is None else f"{len(row.indices) / row.size:.2g}"
        start = [row.source, f"{row.size:,}", density]
        repeat = 3 if quick or row.size > 10**7 else 9
        times.add_row(*start, *time_cells(row, frame, repeat if row.size > 10**5 else 30))
        if not only_times:
            sizes.add_row(*start, *size_cells(row, frame))
    if not only_times:
        console.print(sizes)
    console.print(times)


if __name__ == "__main__":
    main()
