"""pFedNet's two solvers, the fused-lasso prox of a client and the server's step on Z; and codes for its updates.

    python benchmarks/pfednet.py [--lengths 100000 1000000 10000000] [--clients 10 100 1000] [--weights 34826]
    python benchmarks/pfednet.py --codes fashion-mnist convnet2 [--results papers/results]

Times are CPU times of one thread, so that other work on the machine matters little; the best of three. The prox is
measured on noise and on a smooth vector with noise, for a gamma that fuses little, much and nearly all, and against
`prox-tv` where that can be imported. The server's step is ADMM on a 5-nearest-neighbour graph until its stopping rule,
from nothing and from where the step before ended.

`--codes` takes the updates that pFedNet's clients make on some data with some model, and has each code send the same
ones: levels by k-means, the fused lasso, QSGD, top-k, ternary. Bytes are those of encoded frames; the error is
|g - decoded| / |g|. Nothing is carried over to the next round, so this is the error before any error feedback. With
`--results` both are kept, from which pFedNet's card makes its verdicts on codes.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from sparsona.api import execute
from sparsona.layout import Layout
from sparsona.message import Levels, Message, Sparse, Vector
from sparsona.methods.compressed import quantise, restored
from sparsona.methods.fedstc import ternarise
from sparsona.methods.pfednet import network_lasso
from sparsona.methods.pfednet.cluster import clustered, fused_lasso, typical
from sparsona.methods.pfednet.graph import knn_graph
from sparsona.methods.pfednet.network_lasso import Norm, network_prox
from sparsona.ops.sparse import top_supports
from sparsona.prepare import prepare
from sparsona.wire import encode
from sparsona_papers._results import Results, machine, results_file
from sparsona_papers._tables import MEASURED


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def prox(lengths: list[int]) -> None:
    try:
        rival: Any = importlib.import_module("prox_tv")
    except ImportError:
        rival = None
    print(f"fused-lasso prox, ns a coordinate (prox-tv {'is here' if rival else 'cannot be imported'})\n")
    print("| coordinates | vector | gamma | runs | pinned end | free end |" + (" prox-tv |" if rival else ""))
    print("|---|---|---|---|---|---|" + ("---|" if rival else ""))
    fused_lasso(np.ones(8, np.float32), 0.1)
    for length in lengths:
        rng = np.random.default_rng(0)
        noise = rng.normal(size=length).astype(np.float32)
        smooth = (noise / 4 + 3 * np.sin(np.linspace(0, 60, length))).astype(np.float32)
        for name, g in (("noise", noise), ("smooth", smooth)):
            for gamma in (0.1, 1.0, 30.0):
                took = [seconds(lambda g=g, c=gamma, p=pin: fused_lasso(g, c, p)) for pin in (True, False)]  # type: ignore[misc]
                row = f"| {length:,} | {name} | {gamma:g} | {1 + np.count_nonzero(np.diff(fused_lasso(g, gamma))):,} |"
                row += "".join(f" {1e9 * t / length:.0f} |" for t in took)
                if rival:
                    wide = g.astype(np.float64)
                    row += f" {1e9 * seconds(lambda w=wide, c=gamma: rival.tv1_1d(w, c)) / length:.0f} |"  # type: ignore[misc]
                print(row, flush=True)


def server(clients: list[int], weights: int) -> None:
    print(f"\nserver's step, {weights:,} weights, k = 5, s\n")
    print("| clients | edges | p | sweeps, cold | s, cold | sweeps, warm | s, warm | s a sweep | peak MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    norms: tuple[Norm, ...] = (2, 1, "inf")
    for nodes in clients:
        for p in norms if nodes < 1000 else (2,):
            rng = np.random.default_rng(1)
            kinds = rng.integers(0, 10, nodes)
            graph = knn_graph(np.eye(10)[kinds] + 0.1 * rng.normal(size=(nodes, 10)), 5)
            centres = rng.normal(size=(10, weights)).astype(np.float32)
            b = centres[kinds] + rng.normal(size=(nodes, weights), scale=0.3).astype(np.float32)
            strength = {1: 0.05, 2: 5.0, "inf": 100.0}[p]
            (cold, stood), first, took = _step(b, graph, strength, p, None)
            b += np.float32(0.02) * rng.normal(size=b.shape).astype(np.float32)
            _, again, later = _step(b, graph, strength, p, stood)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"| {nodes} | {len(graph.edges)} | {p} | {first} | {took:.2f} | {again} | {later:.2f} "
                f"| {took / first:.3f} | {peak:.0f} |",
                flush=True,
            )
            del cold, stood, b


def _step(b: Any, graph: Any, strength: float, p: Norm, start: Any) -> tuple[tuple[Any, Any], int, float]:
    """The solution, how many sweeps it took, and the CPU time."""
    sweeps = 0
    original = network_lasso._push

    def counted(*given: Any) -> None:
        nonlocal sweeps
        sweeps += given[5] == 0
        original(*given)

    with patch.object(network_lasso, "_push", counted):
        began = time.process_time()
        found = network_prox(b, graph, strength, p, rho=0.5, start=start, iterations=50, tolerance=1e-4)
        return found, sweeps, time.process_time() - began


def updates(data: str, model: str, rounds: int = 8) -> tuple[list[Vector], Layout]:
    """What the clients of pFedNet would send if nothing were left out, of the rounds 1, 4 and 8."""
    found: list[Vector] = []
    original = clustered

    def kept(g: Vector, *rest: Any) -> Levels:
        found.append(g.copy())
        return original(g, *rest)

    settings = {"partition": "classes:3", "clients": 10, "rounds": rounds, "training": {"batch": 16, "steps": 10}}
    with patch("sparsona.methods.pfednet.clustered", kept):
        prepared = prepare({"method": "pfednet", "data": data, "model": model, "engine": "inprocess",
                            "options": {"levels": 0}, "evaluation": {"every": 0}, **settings})  # fmt: skip
        execute(prepared)
    chosen = [g for t in (0, 3, 7) for g in found[10 * t : 10 * t + 10]]
    return chosen, prepared.setup.task.layout


def codes(data: str, model: str) -> dict[str, float]:
    """The table of all codes, printed; mean bytes and mean error of each, by its name."""
    given, layout = updates(data, model)
    sizes = [tensor.size for tensor in layout.tensors]
    unit = [typical(g) for g in given]

    def levels(count: int, gamma: float = 0.0) -> Callable[[int, Vector], tuple[Message, Vector]]:
        def code(number: int, g: Vector) -> tuple[Message, Vector]:
            part = clustered(g, sizes, gamma * unit[number], True, count)
            return Message(update=part), part.values

        return code

    def qsgd(count: int) -> Callable[[int, Vector], tuple[Message, Vector]]:
        def code(number: int, g: Vector) -> tuple[Message, Vector]:
            norms, steps = quantise(g, sizes, count, 512, np.random.default_rng(number))
            return Message(steps=steps, norms=norms), restored(norms, steps, sizes, count, 512)

        return code

    def top(share: float) -> Callable[[int, Vector], tuple[Message, Vector]]:
        def code(number: int, g: Vector) -> tuple[Message, Vector]:
            places = top_supports(g, (t.slice for t in layout.tensors), 1 - share)
            part = Sparse(len(g), places, g[places])
            return Message(update=part), part.dense()

        return code

    def signs(share: float) -> Callable[[int, Vector], tuple[Message, Vector]]:
        def code(number: int, g: Vector) -> tuple[Message, Vector]:
            part = ternarise(g, layout, 1 - share)
            return Message(update=part), part.dense()

        return code

    ways = {
        "as it is": levels(0),
        **{f"{n} levels": levels(n) for n in (2, 4, 8, 16, 32)},
        **{f"gamma = {c:g} median": levels(0, c) for c in (0.1, 0.3)},
        "gamma = 0.1 median, 8 levels": levels(8, 0.1),
        **{f"QSGD, {n} step{'s' * (n > 1)}": qsgd(n) for n in (1, 7, 31, 127)},
        **{f"top {100 * share:g} %": top(share) for share in (0.01, 0.1, 0.3)},
        **{f"ternary, {100 * share:g} %": signs(share) for share in (0.01, 0.1, 0.3)},
    }
    print(f"\n{len(given)} updates of {layout.size:,} numbers, {data}, {model}\n")
    print("| code | bytes an update | of float32 | error |\n|---|---|---|---|")
    found: dict[str, float] = {}
    for name, code in ways.items():
        sent, wrong = [], []
        for number, g in enumerate(given):
            message, decoded = code(number, g)
            sent.append(len(encode(message, layout.lengths).data))
            wrong.append(float(np.linalg.norm(g - decoded) / np.linalg.norm(g)))
        found |= {f"{name}, bytes": round(float(np.mean(sent)), 1), f"{name}, error": round(float(np.mean(wrong)), 4)}
        print(f"| {name} | {np.mean(sent):,.0f} | {np.mean(sent) / (4 * layout.size):.4f} | {np.mean(wrong):.4f} |")
    return found


def keep(folder: Path, model: str, found: Mapping[str, float]) -> None:
    """Keep what codes take and lose on a model's updates."""
    kept = Results.read(results_file(folder, "pfednet", size="quick"))
    when = datetime.now(UTC).date().isoformat()
    kept.add(f"{MEASURED}codes-{model}", {"extra": dict(found), "date": when, "machine": machine()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--clients", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--weights", type=int, default=34_826)
    parser.add_argument("--codes", nargs=2, metavar=("DATA", "MODEL"))
    parser.add_argument("--results", type=Path, help="the folder of kept results, for --codes fashion-mnist MODEL")
    given = parser.parse_args()
    if given.codes:
        found = codes(*given.codes)
        if given.results and given.codes[0] == "fashion-mnist":
            keep(given.results, given.codes[1], found)
        return
    prox(given.lengths)
    network_prox(np.eye(3, dtype=np.float32), knn_graph(np.eye(3), 2), 0.1)  # compile
    server(given.clients, given.weights)


if __name__ == "__main__":
    main()
