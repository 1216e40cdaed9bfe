"""Our baselines beside PFLlib's own code: the same clients, splits, batches and first weights.

    git clone https://github.com/TsingZ0/PFLlib
    python benchmarks/parity.py PFLlib [--rounds 10] [--methods fedavg,ditto] [--seeds 0,1,2]

Digits, ten clients, Dirichlet 1, an MLP; the names of the rows say what is otherwise. Their servers and clients run
unchanged, but for three things that this script gives them: the rows of a client, the order of its batches, and all
clients in every round. Both codes are compared at the same point: the model that a client uses after the last
aggregation. `distance` is the largest distance between a client's two models, divided by the distance that ours has
moved from the start.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import io
import logging
import sys
import tempfile
import types
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sparsona.engines.inprocess import InProcess
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.rounds import assemble
from sparsona.federation.setup import Setup
from sparsona.message import Vector
from sparsona.prepare import prepare
from sparsona.training.determinism import make_deterministic
from sparsona.training.runner import ModelRunner
from sparsona.training.vector import FlatModule

BATCH, RATE = 10, 0.05


@dataclass(frozen=True)
class Case:
    """One method in both codes. `streams` names the draws of our batches in the order in which theirs asks for an
    epoch; `model` is where their client keeps what it uses, `hook` the evaluation of their server at that point. With
    `shared` the server's models are compared, not the clients'."""

    server: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)
    streams: tuple[str, ...] = ("train",)
    model: str = "model"
    hook: str = "evaluate"
    norm: bool = False
    method: str = ""
    shared: bool = False
    partition: str = "dirichlet-classes:1"


PFEDME = {"lambda_": 15.0, "eta": RATE, "eta_p": 0.03, "inner": 5}
CASES: dict[str, Case] = {
    "local": Case("local", "Local"),
    "fedavg": Case("avg", "FedAvg"),
    "fedprox": Case("prox", "FedProx", {"mu": 0.1}, {"mu": 0.1}),
    "ditto": Case(
        "ditto", "Ditto", {"lam": 0.5}, {"mu": 0.5}, ("personal", "train"), "model_per", "evaluate_personalized"
    ),
    "fedper": Case("per", "FedPer"),
    "fedrep": Case("rep", "FedRep", streams=("head", "body")),
    "lg-fedavg": Case("lg", "LG_FedAvg", {"top": 1}),
    "lg-fedavg (equal sizes)": Case("lg", "LG_FedAvg", {"top": 1}, method="lg-fedavg", partition="iid"),
    "pfedme": Case("pFedMe", "pFedMe", PFEDME, hook="evaluate_personalized"),
    "pfedme (server)": Case("pFedMe", "pFedMe", PFEDME, hook="evaluate_personalized", method="pfedme", shared=True),
    "per-fedavg": Case("peravg", "PerAvg", {"alpha": RATE}, streams=("train", "train/1"), hook="evaluate_one_step"),
    "apfl": Case("apfl", "APFL", {"alpha": 0.5}, {"alpha": 0.5}, model="model_per"),
    "fedala": Case("ala", "FedALA", {"ala_share": 1.0}, {"rand_percent": 100}),
    "fedala (eleven epochs)": Case(
        "ala", "FedALA", {"ala_share": 1.0, "ala_settled": 1e9}, {"rand_percent": 100, "settled": 1e9}, method="fedala"
    ),
    "scaffold": Case("scaffold", "SCAFFOLD"),
    "fedbn (BatchNorm)": Case("bn", "FedBN", norm=True, method="fedbn"),
    "fedavg (BatchNorm)": Case("avg", "FedAvg", norm=True, method="fedavg"),
}
COMMON: dict[str, Any] = {
    "device": "cpu", "dataset": "", "num_classes": 10, "local_epochs": 1, "batch_size": BATCH,
    "local_learning_rate": RATE, "join_ratio": 1.0, "random_join_ratio": False, "few_shot": 0, "algorithm": "",
    "time_select": False, "goal": "", "time_threthold": 1e9, "save_folder_name": "", "top_cnt": 100,
    "auto_break": False, "eval_gap": 1, "client_drop_rate": 0.0, "train_slow_rate": 0.0, "send_slow_rate": 0.0,
    "dlg_eval": False, "dlg_gap": 1, "batch_num_per_client": 1, "num_new_clients": 0, "fine_tuning_epoch_new": 0,
    "learning_rate_decay": False, "learning_rate_decay_gamma": 1.0, "plocal_epochs": 1, "mu": 0.0, "alpha": 0.5,
    "beta": 1.0, "lamda": 15.0, "K": 5, "p_learning_rate": 0.03, "eta": 1.0, "rand_percent": 80, "layer_idx": 2,
    "server_learning_rate": 1.0, "settled": 0.1,
}  # fmt: skip
"""The settings that PFLlib's servers and clients read, with our values."""


class Net(nn.Module):
    """An MLP in the two parts that PFLlib asks for."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict(flat=nn.Flatten(), first=nn.Linear(64, 50))
        if norm:
            layers["bn"] = nn.BatchNorm1d(50)
        self.base = nn.Sequential(OrderedDict(layers, relu=nn.ReLU()))
        self.head = nn.Linear(50, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.base(inputs))
        return out


class Reached(Exception):
    """Their server has come to the point where both codes are compared."""


def federation(case: Case, name: str, rounds: int, seed: int) -> Setup:
    """Our side: ten clients whose training rows are whole pairs of batches, and the first weights."""
    training = {"batch": BATCH, "lr": RATE, "drop_last": True}
    settings = {"method": case.method or name, "options": case.options, "rounds": rounds, "seed": seed}
    settings |= {
        "training": training,
        "engine": "inprocess",
        "trainer": "plain",
        "max_update_norm": 0,
        "partition": case.partition,
    }
    setup = prepare(settings, model=lambda: Net(case.norm)).setup
    whole = 2 * BATCH
    splits = {
        client: replace(split, train=split.train[: len(split.train) // whole * whole])
        for client, split in setup.federation.splits.items()
    }
    small = [client for client, split in splits.items() if not len(split.train)]
    if small:
        raise SystemExit(f"seed {seed}: {', '.join(small)} has fewer than {whole} training rows; choose another seed")
    return replace(setup, federation=replace(setup.federation, splits=splits))


def ours(setup: Setup, case: Case) -> dict[str, tuple[Vector, Vector]]:
    """Weights and buffers of what each client uses after the last aggregation."""
    rounds = assemble(setup, InProcess(setup), evaluation=Evaluation(every=0, post="participants"))
    rounds.run()
    none = np.zeros(0, np.float32)
    if case.shared:
        return dict.fromkeys(setup.task.clients, (rounds.server.weights, none))
    found = {}
    for outcome in rounds.finish("personal", setup.task.clients):
        assert isinstance(outcome.model, np.ndarray)
        found[outcome.client] = outcome.model, none if outcome.buffers is None else outcome.buffers
    return found


class Feed:
    """What their code asks for data: our rows, in the order of our batches."""

    def __init__(self, setup: Setup, case: Case) -> None:
        self.setup, self.case = setup, case
        self.clients = sorted(setup.task.clients)
        self.round = 0
        self.asked: dict[tuple[str, int, str], int] = {}
        runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
        self.rows = {client: self._tensors(runner, setup.federation.splits[client].train) for client in self.clients}
        self.tests = {client: self._tensors(runner, setup.federation.splits[client].test) for client in self.clients}

    @staticmethod
    def _tensors(runner: ModelRunner, indices: Any) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = runner.batch(indices, False)
        return inputs.clone(), targets.clone()

    def read(self, dataset: str, number: int, is_train: bool = True, few_shot: int = 0) -> Rows:
        """In place of their `read_client_data`."""
        return Rows(self.clients[number], *(self.rows if is_train else self.tests)[self.clients[number]])

    def epoch(self, client: str, stream: str) -> list[np.ndarray[Any, Any]]:
        """The batches of the next epoch of a stream in this round, as our `Local` draws them."""
        key = client, self.round, stream
        rng = self.setup.task.chance.rng(f"batches/{stream}", round=self.round, client=client)
        count = len(self.rows[client][0])
        for _ in range(self.asked.get(key, 0) + 1):
            order = rng.permutation(count)
        self.asked[key] = self.asked.get(key, 0) + 1
        return [order[at : at + BATCH] for at in range(0, count - BATCH + 1, BATCH)]

    def loader(self, client: Any, batch_size: int | None = None) -> Loader:
        """In place of their `load_train_data`."""
        name, streams = self.clients[client.id], self.case.streams
        if self.case.kind == "PerAvg":
            return Loader(self, name, ("adapt",) if batch_size == BATCH else streams, pairs=batch_size != BATCH)
        return Loader(self, name, streams)


@dataclass
class Rows(Sequence[Any]):
    """The rows of one client."""

    client: str
    inputs: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Any) -> Any:
        return self if isinstance(index, slice) else (self.inputs[index], self.targets[index])


@dataclass
class Loader:
    """In place of their DataLoader: each pass is the next epoch of our streams, in turn."""

    feed: Feed
    client: str
    streams: tuple[str, ...]
    pairs: bool = False

    def __len__(self) -> int:
        return len(self.feed.rows[self.client][0]) // BATCH

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        feed, client = self.feed, self.client
        if self.pairs:  # our step j has the j-th batch of either stream; their two trainings are the halves of an epoch
            seen = feed.asked.get((client, feed.round, "half"), 0)
            feed.asked[client, feed.round, "half"] = seen + 1
            both = [self._drawn(stream) for stream in self.streams]
            steps = [np.concatenate(pair) for pair in zip(*both, strict=True)]
            batches = steps[: len(steps) // 2] if seen == 0 else steps[len(steps) // 2 :]
        else:
            turn = feed.asked.get((client, feed.round, "turn"), 0)
            feed.asked[client, feed.round, "turn"] = turn + 1
            batches = feed.epoch(client, self.streams[turn % len(self.streams)])
        inputs, targets = feed.rows[client]
        for batch in batches:
            yield inputs[batch], targets[batch]

    def _drawn(self, stream: str) -> list[np.ndarray[Any, Any]]:
        self.feed.asked.pop((self.client, self.feed.round, stream), None)
        return self.feed.epoch(self.client, stream)


@dataclass
class AlaLoader:
    """In place of the DataLoader of their `utils/ALA.py`: pass k is the first epoch of our stream `ala/k`."""

    rows: Rows
    batch: int
    drop_last: bool = False
    feed: Feed | None = None
    passes: int = 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        assert self.feed is not None
        stream = f"ala/{self.passes}"
        self.passes += 1
        self.feed.asked.pop((self.rows.client, self.feed.round, stream), None)
        for batch in self.feed.epoch(self.rows.client, stream):
            yield self.rows.inputs[batch], self.rows.targets[batch]


def theirs(setup: Setup, case: Case, rounds: int) -> tuple[dict[str, tuple[Vector, Vector]], Feed]:
    """The same of PFLlib's code: weights and buffers at the evaluation after the last aggregation."""
    feed = Feed(setup, case)
    first = Net(case.norm)
    FlatModule(first).load(setup.task.initial)
    common = COMMON | case.theirs | {"model": first, "num_clients": len(feed.clients), "global_rounds": rounds}
    base = importlib.import_module("flcore.clients.clientbase")
    servers = importlib.import_module("flcore.servers.serverbase")
    module = importlib.import_module(f"flcore.servers.server{case.server}")
    clients = importlib.import_module("flcore.clients.clientala")
    learnt = importlib.import_module("utils.ALA")
    for place in (base, servers, clients):
        place.read_client_data = feed.read  # type: ignore[attr-defined]
    base.Client.load_train_data = lambda client, batch_size=None: feed.loader(client, batch_size)
    learnt.DataLoader = lambda rows, batch, drop_last: AlaLoader(rows, batch, drop_last, feed)  # type: ignore[attr-defined]
    server: Any = getattr(module, case.kind)(argparse.Namespace(**common), 0)
    for client in server.clients if case.kind == "FedALA" else ():
        client.ALA.threshold = common["settled"]
    found: dict[str, tuple[Vector, Vector]] = {}
    evaluations = 0

    def everyone() -> list[Any]:
        # Local selects twice in a round; the clients of the second time, after the evaluation, train
        feed.round = max(0, evaluations - (case.kind == "Local"))
        return list(server.clients)

    def compared() -> None:
        nonlocal evaluations
        evaluations += 1
        if evaluations <= rounds:
            return
        for client in server.clients:
            if case.kind == "PerAvg":
                client.train_one_step()
            used = server.global_model if case.shared else getattr(client, case.model)
            flat = FlatModule(copy.deepcopy(used).requires_grad_())
            found[feed.clients[client.id]] = flat.read(), flat.read("buffers")
        raise Reached

    server.select_clients = everyone
    for name in ("evaluate", "evaluate_personalized", "evaluate_one_step"):
        setattr(server, name, compared if name == case.hook else lambda: None)
    with contextlib.suppress(Reached):
        server.train()
    return found, feed


def accuracy(models: dict[str, tuple[Vector, Vector]], feed: Feed, norm: bool) -> float:
    """The mean accuracy of the clients' models on their test rows."""
    scores = []
    for client, (weights, buffers) in models.items():
        net = Net(norm)
        flat = FlatModule(net)
        flat.load(weights)
        if len(buffers):
            flat.load(buffers, "buffers")
        net.eval()
        inputs, targets = feed.tests[client]
        with torch.no_grad():
            scores.append(float((net(inputs).argmax(1) == targets).float().mean()))
    return float(np.mean(scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pfllib", type=Path, help="folder of PFLlib")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default="", help="names, separated by commas [all]")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("sparsona").setLevel(logging.ERROR)
    make_deterministic()
    sys.path.insert(0, str(given.pfllib / "system"))
    for name in ("h5py", "torchvision"):  # for their results and models, which are not used here
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
        sys.modules.setdefault(name, types.ModuleType(name))
    print("| method | theirs | ours | difference | distance |\n|---|---|---|---|---|", flush=True)
    seeds = [int(seed) for seed in given.seeds.split(",")]
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        for name in given.methods.split(",") if given.methods else CASES:
            case, rows = CASES[name], []
            for seed in seeds:
                setup = federation(case, name, given.rounds, seed)
                mine = ours(setup, case)
                with contextlib.redirect_stdout(io.StringIO()):
                    other, feed = theirs(setup, case, given.rounds)
                moved = {client: np.linalg.norm(mine[client][0] - setup.task.initial) for client in mine}
                apart = [float(np.linalg.norm(mine[k][0] - other[k][0]) / moved[k]) for k in mine]
                rows.append((*(accuracy(one, feed, case.norm) for one in (other, mine)), max(apart)))
            their, own, way = np.array(rows).T
            gap = own - their
            spread = f" ± {gap.std(ddof=1) / len(gap) ** 0.5:.4f}" if len(gap) > 1 else ""
            print(
                f"| {name} | {their.mean():.4f} | {own.mean():.4f} | {gap.mean():+.4f}{spread} | {way.max():.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
