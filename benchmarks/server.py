"""What FedPSE's server costs: EWA and DPS for 100 clients of 1,663,370 weights at p = 0.9.

    python benchmarks/server.py [--clients 100]

Ours folds sparse replies and works on index sets; the other is the straightforward numpy version, on dense vectors as
in the paper's listings. Both get the same decoded replies and keep what each client is owed: as much, of the same
values. Each runs in a process of its own; memory is the peak above what the replies themselves take.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import numpy as np

from sparsona.chance import Chance
from sparsona.message import Message, Sparse, Vector
from sparsona.method import Arrival, ServerContext, Task
from sparsona.methods.fedpse import FedPSE
from sparsona.models.small import cnn_mcmahan
from sparsona.ops.sparse import Packed, kept, top_supports
from sparsona.training.vector import FlatModule

P = 0.9


def task() -> Task:
    chance = Chance(0)
    with chance.torch("initial weights"):
        flat = FlatModule(cnn_mcmahan((1, 28, 28), 10))
    return Task(flat.layout, flat.read(), (), 1, (1, 28, 28), 10, chance)


def replies(where: Task, clients: int) -> list[Arrival]:
    """Top-k updates whose supports overlap as those of clients with a common part do."""
    rng, size = np.random.default_rng(0), where.layout.size
    shared = rng.standard_normal(size, np.float32)
    spans = [t.slice for t in where.layout.tensors]
    out = []
    for number in range(clients):
        update = shared + rng.standard_normal(size, np.float32)
        sparse = Sparse.take(update, top_supports(update, spans, P))
        out.append(Arrival(f"c{number:03d}", Message(update=sparse, examples=100 + number), 0))
    return out


def sparse_version(arrivals: Sequence[Arrival], context: ServerContext) -> list[Packed]:
    method = FedPSE(sparsity=P)
    return list(method.aggregate(method.start_server(context.task), arrivals, context).owed.updates.values())


def dense_version(arrivals: Sequence[Arrival], context: ServerContext) -> list[Vector]:
    """Figures 10 to 12 of the paper, their errors mended: indices are arrays of zeros and ones."""
    updates = [a.message.sparse("update").dense() for a in arrivals]
    examples = [float(a.message.examples()) for a in arrivals]
    count = reduce(
        np.add, (np.sign(np.absolute(u)).astype(np.float64) * n for u, n in zip(updates, examples, strict=True))
    )
    total = reduce(np.add, (u.astype(np.float64) * n for u, n in zip(updates, examples, strict=True)))
    mean = np.divide(total, count, out=np.zeros(len(total)), where=count > 0).astype(np.float32)
    owed = [np.zeros_like(u) for u in updates]
    for layer, tensor in enumerate(context.task.layout.tensors):
        s = mean[tensor.slice]
        top = s.copy()
        top[np.argsort(-np.absolute(s), kind="stable")[kept(tensor.size, P) :]] = 0
        s_index = np.sign(np.absolute(top))
        s_norm = top / (float(np.linalg.norm(top)) or 1.0)
        for arrival, update, out in zip(arrivals, updates, owed, strict=True):
            rng = context.rng("dps", arrival.client, layer)
            u = update[tensor.slice]
            c_index = np.sign(np.absolute(u))
            u_norm = u / (float(np.linalg.norm(u)) or 1.0)
            distance = 0.5 - 0.5 * float(np.dot(s_norm, u_norm))
            both = np.multiply(s_index, c_index)
            server_only, client_only = np.flatnonzero(s_index - both), np.flatnonzero(c_index - both)
            rest = np.count_nonzero(s_index) - np.count_nonzero(both)
            theirs = min(int(np.floor(distance * rest + 0.5)), len(client_only))
            from_client = np.sort(rng.choice(client_only, theirs, replace=False))
            from_server = np.sort(rng.choice(server_only, rest - theirs, replace=False))
            index = np.zeros(tensor.size)
            index[np.concatenate((np.flatnonzero(both), from_server, from_client))] = 1
            out[tensor.slice] = np.multiply(s, index)
    return owed


def memory(field: str) -> float:
    """A line of this process's status, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def one(version: str, clients: int) -> None:
    """Run one version; print what it took, how many entries the clients are owed, and the sum of their magnitudes."""
    where = task()
    arrivals, context = replies(where, clients), ServerContext(where, 0)
    run = sparse_version if version == "sparse" else dense_version
    run(replies(where, 2), context)  # what is compiled on first use is compiled here
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    began = time.process_time()
    owed = run(arrivals, context)
    seconds = time.process_time() - began
    peak = memory("VmHWM") - before
    values = [e.values if isinstance(e, Packed) else e[e != 0] for e in owed]
    magnitude = sum(float(np.abs(v.astype(np.float64)).sum()) for v in values)
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "entries": sum(map(len, values)), "magnitude": magnitude}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--one", choices=("sparse", "dense"), help="run one version in this process")
    args = parser.parse_args()
    if args.one:
        one(args.one, args.clients)
        return
    found = {}
    for version in ("sparse", "dense"):
        command = [sys.executable, __file__, "--one", version, "--clients", str(args.clients)]
        found[version] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ours, theirs = found["sparse"], found["dense"]
    print(f"EWA + DPS, {args.clients} clients x {task().layout.size:,} weights, p = {P}\n")
    print("| version | CPU seconds | peak MB above the replies |\n|---|---|---|")
    print(f"| dense numpy | {theirs['seconds']:.2f} | {theirs['peak_mb']:.0f} |")
    print(f"| Sparsona | {ours['seconds']:.2f} | {ours['peak_mb']:.0f} |")
    faster, smaller = theirs["seconds"] / ours["seconds"], theirs["peak_mb"] / ours["peak_mb"]
    print(f"\n{faster:.1f} x faster, 1/{smaller:.1f} of the memory; ", end="")
    alike = ours["entries"] == theirs["entries"] and abs(ours["magnitude"] / theirs["magnitude"] - 1) < 1e-3
    print(f"both owe the clients {ours['entries']:,} entries" if alike else "THE RESULTS DIFFER")


if __name__ == "__main__":
    main()
