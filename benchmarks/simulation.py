"""How fast a federation is simulated: bare torch loops, Sparsona, and the peers that are installed beside it.

    python benchmarks/simulation.py [--quick] [--works W1 W3] [--methods fedavg fedpse fedspa] [--repeats N]
                                    [--fedjax PYTHON] [--keep docs/speed.json]

One table per work, all rows of it in one run, so that ratios hold whatever the machine. Samples are random, of the
shape of MNIST: their content costs nothing. Every row trains the same model on as many samples with the same batches:

    (a)  a bare loop as one writes it in torch: one process, default threads
    (b)  the limit: a process a core, one thread each, channels_last, weights and gradients in flat buffers; clients
         are trained and nothing is sent, aggregated or measured
    (c)  sparsona, on the pool unless its row says otherwise: everything encoded, sent, decoded and aggregated;
         evaluation off, as in (a) and (b)

    W1   convnet2, 10 clients x 6,000 samples, batch 64                    samples a second
    W2   cnn-mcmahan, 10 clients x 1,000 samples, batch 64                 samples a second
    W3   mlp 784-50-10, 200 clients x 30 samples, 20 a round, batch 10     client updates a second
    W4   mlp 64-50-10, the same                                            client updates a second
    W5   W3 with 2,000 clients, 200 a round                                client updates a second
    W6   W4 with 2,000 clients, 200 a round                                client updates a second

All rows are measured in turn, (b) between them, and then again, as often as `--repeats` says: by default 3 times for W3
to W6, where a row takes a second or two, and once for W1, W2 and with `--quick`. The median counts: the machine may be
faster at one time than at another.

Memory is the most that all processes of a row held together. The last table says where the time of a W1 round goes when
everyone is also tested in every round. Peers run in processes of their own (benchmarks/peers.py), FedJAX with another
interpreter (benchmarks/fedjax_peer.py).
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import math
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.chance import Chance
from sparsona.data.dataset import ClientSplit, Dataset, Federation
from sparsona.engines import Engine
from sparsona.engines.child import ENVIRONMENT
from sparsona.engines.inprocess import InProcess
from sparsona.engines.pool import Pool, WorkerPool
from sparsona.errors import InputError
from sparsona.federation import rounds as rounds_module
from sparsona.federation import worker as client_module
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import Sampled
from sparsona.federation.setup import Setup
from sparsona.method import Task as MethodTask
from sparsona.methods import METHODS
from sparsona.models import MODELS
from sparsona.system import cores
from sparsona.training.config import TrainConfig
from sparsona.training.fused import TrainerName, choose_trainer
from sparsona.training.objective import classification
from sparsona.training.runner import ModelRunner, channels_last
from sparsona.training.vector import FlatModule
from sparsona.wire import PackingName

CLASSES, RATE, HIDDEN = 10, 0.01, 50
BARE, LIMIT = "(a) bare loop", "(b) the limit"


@dataclass(frozen=True)
class Way:
    """How sparsona is asked to run."""

    trainer: TrainerName | Literal["auto"] = "auto"
    packing: PackingName = "tight"
    engine: Literal["pool", "inprocess"] = "pool"

    def __str__(self) -> str:
        default, chosen = Way(), []
        if self.trainer != default.trainer:
            chosen.append(f", --trainer {self.trainer}")
        if self.packing != default.packing:
            chosen.append(f" --packing {self.packing}")
        if self.engine != default.engine:
            chosen.append(f" --engine {self.engine}")
        return "".join(chosen)


PLAIN = Way()


@dataclass(frozen=True)
class Work:
    """One thing to be measured: `clients` of `samples` each, `sampled` of them a round. Every row is measured `repeats`
    times."""

    name: str
    model: str
    clients: int
    samples: int
    sampled: int
    batch: int
    rounds: int
    unit: str
    ways: tuple[Way, ...] = (PLAIN,)
    shape: tuple[int, ...] = (1, 28, 28)
    repeats: int = 1

    @property
    def each(self) -> int:
        """How many units a client's turn counts."""
        return 1 if self.unit == "updates" else self.samples

    def as_json(self) -> str:
        """All but the ways, which are sparsona's."""
        return json.dumps({field.name: getattr(self, field.name) for field in fields(self) if field.name != "ways"})

    @staticmethod
    def of(given: dict[str, Any]) -> Work:
        """The work that :meth:`as_json` has written."""
        return Work(**{**given, "shape": tuple(given["shape"])})

    def inputs(self) -> torch.Tensor:
        """Prepared samples of one client."""
        return torch.from_numpy(np.random.default_rng(0).normal(size=(self.samples, *self.shape)).astype(np.float32))

    def targets(self) -> torch.Tensor:
        return torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, self.samples))

    def module(self) -> nn.Module:
        with Chance(0).torch("initial weights"):
            return MODELS.get(self.model)(self.shape, CLASSES)

    def setup(self, method: str, way: Way = PLAIN, tested: int = 10) -> Setup:
        total = self.clients * self.samples + tested * self.clients
        rng = np.random.default_rng(0)
        data = Dataset(
            "random",
            rng.integers(0, 255, (total, *self.shape), np.uint8),
            rng.integers(0, CLASSES, total),
            CLASSES,
            mean=(0.5,),
            std=(0.29,),
        )
        names = [f"c{number:04d}" for number in range(self.clients)]
        train = np.arange(self.clients * self.samples).reshape(self.clients, -1)
        test = np.arange(self.clients * self.samples, total).reshape(self.clients, -1)
        none = np.zeros(0, np.int64)
        shares = {name: ClientSplit(name, train[i], none, test[i]) for i, name in enumerate(names)}
        flat = FlatModule(self.module())
        task = MethodTask(flat.layout, flat.read(), tuple(names), 10**6, self.shape, CLASSES, Chance(0))
        config = TrainConfig(batch=self.batch, lr=RATE)
        federation = Federation(data, shares)
        means = METHODS.get(method)(), task, federation, flat.module, classification(), config, "cpu"
        return Setup(*means, choose_trainer(way.trainer, flat.module, data.inputs, "cpu"), way.packing)


TINY = (PLAIN, Way(packing="plain"), Way(engine="inprocess"), Way(packing="plain", engine="inprocess"))
WORKS = (
    Work("W1", "convnet2", 10, 6000, 10, 64, 3, "samples"),
    Work("W2", "cnn-mcmahan", 10, 1000, 10, 64, 3, "samples"),
    Work("W3", "mlp", 200, 30, 20, 10, 100, "updates", TINY, repeats=3),
    Work("W4", "mlp", 200, 30, 20, 10, 100, "updates", TINY, (1, 8, 8), repeats=3),
    Work("W5", "mlp", 2000, 30, 200, 10, 10, "updates", TINY, repeats=3),
    Work("W6", "mlp", 2000, 30, 200, 10, 10, "updates", TINY, (1, 8, 8), repeats=3),
)


# (a) -----------------------------------------------------------------------------------------------------------------


def bare(work: Work) -> float:
    """FedAvg as one writes it: a model, an optimiser a client, the mean of the state dicts."""
    module, inputs, targets = work.module(), work.inputs(), work.targets()
    shared = {name: value.clone() for name, value in module.state_dict().items()}

    def round_() -> None:
        nonlocal shared
        total = {name: torch.zeros_like(value) for name, value in shared.items()}
        for _ in range(work.sampled):
            module.load_state_dict(shared)
            module.train()
            optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
            for chosen in torch.split(torch.randperm(work.samples), work.batch):
                optimizer.zero_grad()
                F.cross_entropy(module(inputs[chosen]), targets[chosen]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            for name, value in module.state_dict().items():
                total[name] += value / work.sampled
        shared = total

    return _rate(work, round_)


def _rate(work: Work, round_: Callable[[], None]) -> float:
    """Units a second over the work's rounds, after one to warm up."""
    round_()
    began = time.perf_counter()
    for _ in range(work.rounds):
        round_()
    return work.rounds * work.sampled * work.each / (time.perf_counter() - began)


# (b) -----------------------------------------------------------------------------------------------------------------


def limit(work: Work, processes: int) -> float:
    """What the cores can train if nothing else has to be done."""
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    context = multiprocessing.get_context("spawn")
    lines = []
    for _ in range(processes):
        ours, theirs = context.Pipe()
        process = context.Process(target=_limit_process, args=(theirs, work), daemon=True)
        process.start()
        lines.append((ours, process))
    os.environ.clear()
    os.environ.update(before)
    for line, _ in lines:
        line.recv()
    turns = work.rounds * work.sampled
    shares = [turns // processes + (number < turns % processes) for number in range(processes)]
    began = time.perf_counter()
    for (line, _), share in zip(lines, shares, strict=True):
        line.send(share)
    for line, process in lines:
        line.recv()
        process.join()
    return turns * work.each / (time.perf_counter() - began)


def _limit_process(line: Connection[Any, Any], work: Work) -> None:
    torch.set_num_threads(1)
    module = work.module()
    inputs, targets = work.inputs(), work.targets()
    weights = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    gradient = torch.zeros_like(weights)
    at = 0
    for parameter in module.parameters():
        place = slice(at, at := at + parameter.numel())
        parameter.data, parameter.grad = weights[place].view_as(parameter), gradient[place].view_as(parameter)
    start = weights.clone()

    def turn() -> None:
        weights.copy_(start)
        module.train()
        for chosen in torch.split(torch.randperm(work.samples), work.batch):
            gradient.zero_()
            loss = F.cross_entropy(module(channels_last(inputs[chosen])), targets[chosen])
            loss.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                weights.add_(gradient, alpha=-RATE)

    turn()
    line.send("ready")
    for _ in range(line.recv()):
        turn()
    line.send("done")


# (c) -----------------------------------------------------------------------------------------------------------------


def loop_of(setup: Setup, engine: Engine, work: Work, evaluation: Evaluation) -> Rounds:
    return assemble(setup, engine, Sampled(sample=work.sampled / work.clients), evaluation)


def ours(work: Work, method: str, way: Way, worker_pool: WorkerPool, workers: int) -> float:
    """Sparsona from the first downlink of a round to the aggregated model."""
    setup = work.setup(method, way)
    engine: Engine = Pool(setup, workers, worker_pool) if way.engine == "pool" else InProcess(setup)
    loop = loop_of(setup, engine, work, Evaluation(every=0))
    forget_peak([os.getpid(), *(process.pid for process in worker_pool.processes)])

    def round_() -> None:
        loop.run_log.write(loop._round(loop.done).values())
        loop.done += 1

    try:
        return _rate(work, round_)
    finally:
        engine.close()


# Where a round's time goes -------------------------------------------------------------------------------------------


@contextmanager
def timed(spent: dict[str, float]) -> Iterator[None]:
    """Within this block, seconds by what they were spent on."""
    places: list[tuple[Any, str, str]] = [
        (client_module, "encode", "encode"), (client_module, "decode", "decode"),
        (rounds_module, "encode", "encode"), (rounds_module, "decode", "decode"),
        (Rounds, "_aggregate", "aggregate"), (ModelRunner, "scores", "evaluate"), (ModelRunner, "train", "train"),
    ]  # fmt: skip
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, what in places:
        setattr(owner, name, _watched(getattr(owner, name), what, spent))
    try:
        yield
    finally:
        for owner, name, function in saved:
            setattr(owner, name, function)


def _watched(function: Callable[..., Any], what: str, spent: dict[str, float]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        before, began = dict(spent), time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            inner = sum(spent.values()) - sum(before.values())
            spent[what] = spent.get(what, 0.0) + time.perf_counter() - began - inner

    return call


def shares_of_a_round(work: Work, method: str, tested: int) -> dict[str, float]:
    """The share of a round's time by what it was spent on, in one process; everyone is tested before and after."""
    setup = work.setup(method, tested=tested)
    engine = InProcess(setup)
    loop = loop_of(setup, engine, work, Evaluation())
    spent: dict[str, float] = {}
    loop._round(loop.done)
    with timed(spent):
        began = time.perf_counter()
        loop._round(loop.done + 1)
        whole = time.perf_counter() - began
    engine.close()
    found = {what: seconds / whole for what, seconds in sorted(spent.items())}
    return {**found, "other": 1 - sum(found.values())}


# Peers ---------------------------------------------------------------------------------------------------------------


def peers(fedjax: Path | None) -> dict[str, Callable[[Work, int], float]]:
    """The peers that are installed beside Sparsona, and FedJAX where its interpreter is given. See docs/speed.md."""
    installed = [name for name in ("pfl", "flwr", "fluke") if importlib.util.find_spec(name) is not None]
    found: dict[str, Callable[[Work, int], float]] = {name: partial(peer_rate, name) for name in installed}
    if fedjax is not None:
        found["fedjax"] = partial(fedjax_rate, fedjax)
    return found


def peer_rate(name: str, work: Work, workers: int) -> float:
    """FedAvg on a peer, in a process of its own."""
    return printed_rate([sys.executable, str(Path(__file__).parent / "peers.py"), name, str(workers), work.as_json()])


def fedjax_rate(python: Path, work: Work, workers: int) -> float:
    """FedAvg on FedJAX's compiled backend, which takes all cores by itself; perceptrons only."""
    if work.model != "mlp":
        raise InputError("benchmarks/fedjax_peer.py has perceptrons only")
    sizes = {"inputs": math.prod(work.shape), "hidden": HIDDEN, "classes": CLASSES}
    asked = sizes | {name: getattr(work, name) for name in ("clients", "samples", "sampled", "batch", "rounds")}
    script = Path(__file__).parent / "fedjax_peer.py"
    return printed_rate([str(python), str(script), *(f"--{name}={value}" for name, value in asked.items())])


def printed_rate(command: list[str]) -> float:
    """The rate that a process prints last. If it fails, the error is the last line of what it says."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InputError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return float(done.stdout.split()[-1])


# Memory --------------------------------------------------------------------------------------------------------------


def forget_peak(processes: Sequence[int]) -> None:
    """Let the kernel measure the most memory anew."""
    for process in processes:
        Path(f"/proc/{process}/clear_refs").write_text("5")


def peak_mb(processes: Sequence[int]) -> float:
    """The most memory that these processes have held since :func:`forget_peak`, shared pages counted in each."""
    lines = [line for pid in processes for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


# The tables ----------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: for a look, not for a table")
    parser.add_argument("--works", nargs="+", default=[work.name for work in WORKS], metavar="W")
    parser.add_argument("--methods", nargs="+", default=["fedavg", "fedpse", "fedspa"], metavar="METHOD")
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--repeats", type=int, metavar="N", help="how often every row is measured")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep what was measured, for docs/generate/speed.py")
    parser.add_argument("--fedjax", type=Path, metavar="PYTHON", help="an interpreter that has FedJAX")
    asked = parser.parse_args()
    works = [quick(work) if asked.quick else work for work in WORKS if work.name in asked.works]
    if asked.repeats is not None:
        works = [replace(work, repeats=max(1, asked.repeats)) for work in works]
    methods = [name for name in asked.methods if name in METHODS.names()]
    machine = (
        f"{platform.processor() or platform.machine()}, {asked.workers} cores, torch {torch.__version__}, "
        f"Python {platform.python_version()}{', --quick' if asked.quick else ''}"
    )
    kept: dict[str, Any] = {}
    lines = [f"{datetime.date.today()}, {machine}", "", *tables(works, methods, asked.workers, asked.fedjax, kept)]
    first = works[0]
    if first.name == "W1":
        lines += ["", "Where a W1 round goes, everyone tested in every round:", "", *breakdown(first, methods)]
    print("\n".join(lines))
    if asked.keep:
        keep(asked.keep, kept, {"date": str(datetime.date.today()), "machine": machine})


def keep(file: Path, works: dict[str, Any], when: dict[str, str]) -> None:
    """Replace these works in a file of what was measured."""
    before = json.loads(file.read_text()) if file.exists() else {}
    after = before | {name: {**when, **work} for name, work in works.items()}
    file.write_text(json.dumps(dict(sorted(after.items())), indent=1) + "\n")


def quick(work: Work) -> Work:
    fewer = {
        "W1": {"samples": 1000, "rounds": 1},
        "W2": {"samples": 300, "rounds": 1},
        "W3": {"rounds": 20},
        "W4": {"rounds": 20},
        "W5": {"rounds": 2},
        "W6": {"rounds": 2},
    }
    return replace(work, repeats=1, **fewer[work.name])  # type: ignore[arg-type]


@dataclass
class Row:
    """What was measured of one row of one work; `mb` where it was measured, too."""

    rates: list[float] = field(default_factory=list)
    mb: float = 0.0


def tables(works: list[Work], methods: list[str], workers: int, fedjax: Path | None, kept: dict[str, Any]) -> list[str]:
    """One table per work; what was measured goes into `kept`."""
    out: list[str] = []
    known = peers(fedjax)
    with WorkerPool(workers) as worker_pool:
        for work in works:
            rows: dict[str, Row] = {}
            failed: dict[str, str] = {}
            for _ in range(work.repeats):
                measure(work, rows, methods, {k: v for k, v in known.items() if k not in failed}, worker_pool, failed)
            out += ["", *table_of(work, rows, [name for name in known if name not in failed])]
            out += [f"{name} is left out: {why}" for name, why in failed.items()]
            measured = {name: {"rates": [round(r, 1) for r in row.rates], "mb": row.mb} for name, row in rows.items()}
            kept[work.name] = {"unit": work.unit, "rows": measured}
    return out


def measure(
    work: Work,
    rows: dict[str, Row],
    methods: list[str],
    known: dict[str, Callable[[Work, int], float]],
    worker_pool: WorkerPool,
    failed: dict[str, str],
) -> None:
    """Every row of a work once, and (b) between them. A peer that fails has no row, and is `failed` with the reason."""
    workers = worker_pool.size

    def note(name: str, function: Callable[[], float]) -> None:
        print(f"{work.name}: {name} ...", file=sys.stderr, flush=True)
        rate = function()
        rows.setdefault(name, Row()).rates.append(rate)

    note(BARE, partial(bare, work))
    note(LIMIT, partial(limit, work, workers))
    for method in methods:
        for way in work.ways:
            name = f"(c) sparsona {method}{way}"
            note(name, partial(ours, work, method, way, worker_pool, workers))
            workers_used = worker_pool.processes if way.engine == "pool" else []
            peak = peak_mb([os.getpid(), *(process.pid for process in workers_used)])
            rows[name].mb = max(rows[name].mb, peak)
        note(LIMIT, partial(limit, work, workers))
    for name, function in known.items():
        try:
            note(name, partial(function, work, workers))
        except Exception as error:  # noqa: BLE001  (a peer may fail in any way)
            rows.pop(name, None)
            failed[name] = f"{type(error).__name__}: {error}"
            print(f"{name} is left out: {failed[name]}", file=sys.stderr, flush=True)


def table_of(work: Work, rows: dict[str, Row], named: list[str]) -> list[str]:
    rates = {name: float(np.median(row.rates)) for name, row in rows.items()}
    fastest = max(named, key=lambda name: rates[name], default="")
    heads = [work.name, f"{work.unit}/s", "from", "to", "of (a)", "of (b)", f"of {fastest}" if fastest else "", "MB"]
    out = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    for name, rate in rates.items():
        row = rows[name]
        spread = [f"{min(row.rates):,.0f}", f"{max(row.rates):,.0f}"] if len(row.rates) > 1 else ["", ""]
        shares = [f"{rate / rates[base]:.2f}" if base else "" for base in (BARE, LIMIT, fastest)]
        cells = [name, f"{rate:,.0f}", *spread, *shares, f"{row.mb:,.0f}" if row.mb else ""]
        out.append(f"| {' | '.join(cells)} |")
    often = "once" if work.repeats == 1 else f"{work.repeats} times"
    return [*out, "", f"Every row was measured {often}, (b) {len(rows[LIMIT].rates)} times; the median counts."]


def breakdown(work: Work, methods: list[str]) -> list[str]:
    found = {}
    torch.set_num_threads(1)
    for method in methods:
        print(f"{work.name}: shares of a round, {method} ...", file=sys.stderr, flush=True)
        found[method] = shares_of_a_round(work, method, tested=work.samples // 6)
    whats = ["train", "encode", "decode", "aggregate", "evaluate", "other"]
    out = ["| | " + " | ".join(whats) + " | all but train |", "|---" * (2 + len(whats)) + "|"]
    for method, shares in found.items():
        cells = [f"{100 * shares.get(what, 0.0):.1f} %" for what in whats]
        out.append(f"| {method} | " + " | ".join(cells) + f" | {100 * (1 - shares['train']):.1f} % |")
    return out


if __name__ == "__main__":
    main()
