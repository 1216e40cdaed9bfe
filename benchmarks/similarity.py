"""The N x N similarity of N clients' replies, from their frames: SPFL's `aggregate` of a measuring pass, against what
one would write first.

    python benchmarks/similarity.py [--clients 10 100 500] [--weights 1660000]

Each measurement is a process of its own. The frames lie in a file that is mapped, as they lie in the loop's memory:
what tracemalloc counts is what a way needs beside them, decoded replies included.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sparsona.federation.delivery import PendingReply
from sparsona.federation.gate import Arrivals
from sparsona.layout import Layout, Tensor
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ServerContext
from sparsona.methods.spfl import SPFL
from sparsona.ops import pairwise
from sparsona.ops.pairwise import Matrix
from sparsona.testing import tiny_setup
from sparsona.wire import Limit, decode, encode

TENSORS = {"conv1": (0.003, 0.5), "conv2": (0.03, 0.3), "fc1": (0.96, 0.2), "fc2": (0.007, 1.0)}
"""Four tensors, about those of a small convolutional net: their shares of the weights, and what SPFL weighs them by."""


def layout_of(weights: int) -> Layout:
    bounds = np.cumsum([0, *(int(share * weights) for share, _ in TENSORS.values())]).tolist()
    places = zip(TENSORS, bounds, [*bounds[1:-1], weights], strict=False)
    return Layout(tuple(Tensor(f"{name}.weight", (stop - start, 1), start, stop) for name, start, stop in places))


def aggregate(arrivals: Sequence[Arrival], layout: Layout) -> Matrix:
    """The method itself."""
    start = np.zeros(layout.size, np.float32)
    task = replace(tiny_setup(SPFL()).task, layout=layout, initial=start)
    return SPFL().aggregate(SPFL().start_server(task), arrivals, ServerContext(task, 0)).similarity.stages["base"]


def held(arrivals: Sequence[Arrival], layout: Layout) -> Matrix:
    """The same with all replies decoded at once."""
    pairwise.HELD = sys.maxsize
    return aggregate(arrivals, layout)


def decoded(arrivals: Sequence[Arrival]) -> list[Vector]:
    return [a.message.vector("weights") for a in arrivals]


def naive(arrivals: Sequence[Arrival], layout: Layout) -> Matrix:
    """All updates as one matrix in float64, normalised, times itself."""
    stacked = np.stack(decoded(arrivals)).astype(np.float64)
    out = np.zeros((len(stacked), len(stacked)))
    for tensor, (_, weight) in zip(layout.tensors[:3], TENSORS.values(), strict=False):
        part = stacked[:, tensor.slice]
        unit = part / np.linalg.norm(part, axis=1, keepdims=True)
        out += weight * (unit @ unit.T)
    return out


def pairs(arrivals: Sequence[Arrival], layout: Layout) -> Matrix:
    """As the authors' code does: a cosine for every pair and tensor."""
    vectors = decoded(arrivals)
    out = np.zeros((len(vectors), len(vectors)))
    for tensor, (_, weight) in zip(layout.tensors[:3], TENSORS.values(), strict=False):
        for i, one in enumerate(vectors):
            for j in range(i + 1):
                a, b = one[tensor.slice].astype(np.float64), vectors[j][tensor.slice].astype(np.float64)
                out[i, j] += weight * float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
                out[j, i] = out[i, j]
    return out


WAYS = {"aggregate": aggregate, "held": held, "naive": naive, "pairs": pairs}


def write(file: Path, clients: int, weights: int) -> list[int]:
    """The frames of random replies, one after another; where each ends."""
    ends, layout = [0], layout_of(weights)
    with file.open("wb") as out:
        for i in range(clients):
            update = np.random.default_rng(i).normal(scale=1e-3, size=weights).astype(np.float32)
            ends.append(ends[-1] + out.write(encode(Message(weights=update, measured=1), layout.lengths).data))
    return ends


def measure(way: str, file: Path, ends: Sequence[int], weights: int) -> dict[str, float]:
    """Processor seconds and memory of one way, in this process."""
    frames, layout = np.memmap(file, np.uint8, "r"), layout_of(weights)
    replies = [PendingReply(0, f"c{i:04}", 0, 0, frames[a:b]) for i, (a, b) in enumerate(itertools.pairwise(ends))]
    start = Message(weights=np.zeros(weights, np.float32))

    def read(reply: PendingReply) -> Arrival:
        message = decode(reply.frame.tobytes(), Limit(3 * weights), layout.lengths)
        return Arrival(reply.client, message, 0, lambda: start)

    arrivals = Arrivals(replies, read)
    aggregate(arrivals[:1], layout)  # compiles what is compiled
    tracemalloc.start()
    began = time.process_time()
    matrix = WAYS[way](arrivals, layout)
    seconds = time.process_time() - began
    return {"seconds": seconds, "mb": tracemalloc.get_traced_memory()[1] / 1e6, "check": float(np.abs(matrix).sum())}


def too_much(way: str, clients: int, weights: int) -> str | None:
    """Why a way is left out, if it is."""
    gigabytes = 20 * clients * weights / 1e9
    if way == "naive" and gigabytes > 8:
        return f"left out: it would take about {gigabytes:.0f} GB"
    return "left out: it would take an hour" if way == "pairs" and clients > 200 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 500])
    parser.add_argument("--weights", type=int, default=1_660_000)
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--one", nargs=3, metavar=("WAY", "FILE", "ENDS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        way, file, ends = args.one
        print(json.dumps(measure(way, Path(file), json.loads(Path(ends).read_text()), args.weights)))
        return
    print(
        "| clients | weights | way | CPU seconds | MB beside the frames | sum of cosines |\n|---|---|---|---|---|---|"
    )
    for clients in args.clients:
        with tempfile.TemporaryDirectory() as folder:
            file, ends = Path(folder) / "frames", Path(folder) / "ends.json"
            ends.write_text(json.dumps(write(file, clients, args.weights)))
            for way in args.ways:
                start = f"| {clients} | {args.weights:,} | {way} |"
                if reason := too_much(way, clients, args.weights):
                    print(start, reason, "| | |", flush=True)
                    continue
                command = [sys.executable, __file__, "--one", way, str(file), str(ends)]
                done = subprocess.run([*command, "--weights", str(args.weights)], capture_output=True, check=True)
                found = json.loads(done.stdout)
                print(start, f"{found['seconds']:.2f} | {found['mb']:.1f} | {found['check']:.9f} |", flush=True)


if __name__ == "__main__":
    main()
