"""The N x N similarity of N clients' updates: ours, which streams blocks of columns, against the naive stack.

    python benchmarks/similarity.py [--clients 10 100 500] [--weights 1660000]

Each measurement is a process of its own, so that its peak of memory is its own. The updates lie in a file that is
mapped, not read, as frames lie in the loop's memory: what is counted is what the similarity needs beside them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparsona.message import Vector
from sparsona.ops.pairwise import cosines

TENSORS = (0.003, 0.03, 0.96, 0.007)
"""The shares of the weights in four tensors, about those of a small convolutional net."""


def spans_of(weights: int) -> list[slice]:
    bounds = np.cumsum([0, *(int(share * weights) for share in TENSORS[:-1])])
    return [slice(int(a), int(b)) for a, b in zip(bounds, [*bounds[1:], weights], strict=True)]


def naive(vectors: list[Vector], spans: list[slice]) -> npt.NDArray[np.float64]:
    """What one would write first: all updates as one matrix in float64, normalised, times itself."""
    stacked = np.stack(vectors).astype(np.float64)
    out = np.zeros((len(vectors), len(vectors)))
    for span in spans:
        part = stacked[:, span]
        unit = part / np.linalg.norm(part, axis=1, keepdims=True)
        out += unit @ unit.T / len(spans)
    return out


def pairs(vectors: list[Vector], spans: list[slice]) -> npt.NDArray[np.float64]:
    """As the authors' code does: a cosine for every pair and tensor."""
    out = np.zeros((len(vectors), len(vectors)))
    for span in spans:
        for i, one in enumerate(vectors):
            for j in range(i + 1):
                a, b = one[span].astype(np.float64), vectors[j][span].astype(np.float64)
                value = float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b)) / len(spans)
                out[i, j] += value
                out[j, i] = out[i, j]
    return out


def streamed(vectors: list[Vector], spans: list[slice]) -> npt.NDArray[np.float64]:
    return sum((cosines(vectors, [span]) / len(spans) for span in spans), np.zeros((len(vectors), len(vectors))))


WAYS = {"streamed": streamed, "naive": naive, "pairs": pairs}


def measure(way: str, file: Path, clients: int, weights: int) -> dict[str, float]:
    """Processor seconds and memory of one way, in this process."""
    updates = np.memmap(file, np.float32, "r", shape=(clients, weights))
    vectors = [np.asarray(updates[i]) for i in range(clients)]
    for vector in vectors:
        vector.sum()
    tracemalloc.start()
    began = time.process_time()
    matrix = WAYS[way](vectors, spans_of(weights))
    seconds = time.process_time() - began
    return {"seconds": seconds, "mb": tracemalloc.get_traced_memory()[1] / 1e6, "check": float(matrix.sum())}


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
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], Path(args.one[1]), args.clients[0], args.weights)))
        return
    print("| clients | weights | way | CPU seconds | MB beside the updates | ratio |\n|---|---|---|---|---|---|")
    for clients in args.clients:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "updates"
            made = np.memmap(file, np.float32, "w+", shape=(clients, args.weights))
            for i in range(clients):
                made[i] = np.random.default_rng(i).normal(size=args.weights)
            made.flush()
            del made
            base = 0.0
            for way in args.ways:
                start = f"| {clients} | {args.weights:,} | {way} |"
                if reason := too_much(way, clients, args.weights):
                    print(start, reason, "| | |", flush=True)
                    continue
                command = [sys.executable, __file__, "--one", way, str(file), "--clients", str(clients)]
                done = subprocess.run([*command, "--weights", str(args.weights)], capture_output=True, check=True)
                found = json.loads(done.stdout)
                base = base or found["seconds"]
                ratio = found["seconds"] / base
                print(start, f"{found['seconds']:.2f} | {found['mb']:.1f} | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
