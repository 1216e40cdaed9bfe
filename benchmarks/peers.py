"""FedAvg on other frameworks, for benchmarks/simulation.py; each function needs its package installed beside ours.

They stay out of the lock. A way to have them without touching this environment:

    python -m venv ../peers && ../peers/bin/pip install -e . pfl "flwr[simulation]" fluke-fl
    ../peers/bin/python benchmarks/simulation.py

fluke-fl pulls a torchvision that must fit the build of torch; it does without, so uninstall that if it does not fit.
Each is used as its documentation says, with evaluation off; a round to warm up is not counted. Each runs in a process
of its own, `python benchmarks/peers.py NAME WORKERS WORK`, which prints the rate last: Flower and Ray change the
environment for all that is started later, and what the peers load would count as memory of Sparsona.
"""

# mypy: ignore-errors
# The peers are not installed where this is type-checked.

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from simulation import Work

RATE = 0.01


def _speed(work: Work, marks: list[float]) -> float:
    """Units a second from the marks at the ends of rounds, the first of which is the end of the warm-up."""
    return (len(marks) - 1) * work.sampled * work.each / (marks[-1] - marks[0])


def pfl(work: Work, workers: int) -> float:
    """pfl-research: the simulated backend, one process with torch's default threads."""
    import pfl.data
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    inputs, targets = work.inputs(), work.targets()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = work.module()

        def forward(self, x):
            return self.inner(x)

        def loss(self, x, y, eval=False):
            self.eval() if eval else self.train()
            return F.cross_entropy(self(x), y)

        def metrics(self, x, y, eval=False):
            return {"loss": Weighted(0.0, len(y))}

    class Marks(TrainingProcessCallback):
        def __init__(self) -> None:
            self.at: list[float] = []

        def after_central_iteration(self, aggregate_metrics, model, *, central_context=None, **_):
            self.at.append(time.perf_counter())
            return False, pfl.metrics.Metrics()

    def user(_: str):
        return pfl.data.dataset.Dataset([inputs, targets])

    names = [str(number) for number in range(work.clients)]
    sampler = pfl.data.sampling.get_user_sampler("random", names)
    train = pfl.data.federated_dataset.FederatedDataset(user, sampler)
    module = Net()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    marks = Marks()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds + 1,
            evaluation_frequency=10**9,
            train_cohort_size=work.sampled,
            val_cohort_size=0,
        ),
        SimulatedBackend(train, train),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=work.batch),
        callbacks=[marks],
    )
    return _speed(work, marks.at)


def flower(work: Work, workers: int) -> float:
    """Flower's simulation engine on Ray, one core a client."""
    os.environ.setdefault("RAY_DISABLE_DOCKER_CPU_WARNING", "1")
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client_app, server_app = ClientApp(), ServerApp()
    marks: list[float] = []

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        module, inputs, targets = work.module(), work.inputs(), work.targets()
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        module.train()
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        for chosen in torch.randperm(work.samples).split(work.batch):
            optimizer.zero_grad()
            F.cross_entropy(module(inputs[chosen]), targets[chosen]).backward()
            optimizer.step()
        arrays, counted = ArrayRecord(module.state_dict()), MetricRecord({"num-examples": work.samples})
        return Message(content=RecordDict({"arrays": arrays, "metrics": counted}), reply_to=message)

    class Timed(FedAvg):
        def aggregate_train(self, *args, **kwargs):
            out = super().aggregate_train(*args, **kwargs)
            marks.append(time.perf_counter())
            return out

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = Timed(
            fraction_train=work.sampled / work.clients, fraction_evaluate=0.0, min_available_nodes=work.clients
        )
        strategy.start(grid, ArrayRecord(work.module().state_dict()), num_rounds=work.rounds + 1)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": workers}}
    run_simulation(server_app, client_app, num_supernodes=work.clients, backend_config=resources)
    return _speed(work, marks)


def fluke(work: Work, workers: int) -> float:
    """fluke: its FedAvg, one process with torch's default threads."""
    from fluke import DDict, FlukeENV
    from fluke.algorithms.fedavg import FedAVG
    from fluke.data import DataContainer, DataSplitter
    from fluke.server import Server

    inputs, targets = work.inputs(), work.targets()
    everyone = inputs.repeat(work.clients, 1, 1, 1), targets.repeat(work.clients)
    data = DataContainer(*everyone, inputs[:10], targets[:10], 10)
    splitter = DataSplitter(data, distribution="iid", client_split=0.0, keep_test=True, server_test=True)
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, server=False, locals=False)
    hyper = DDict(
        model=work.module(),
        client=DDict(
            batch_size=work.batch,
            local_epochs=1,
            loss="CrossEntropyLoss",
            optimizer=DDict(name="SGD", lr=RATE),
            scheduler=DDict(name="StepLR", step_size=10**6, gamma=1.0),
        ),
        server=DDict(weighted=True),
    )
    algorithm = FedAVG(work.clients, splitter, hyper)
    marks: list[float] = []
    aggregate = Server.aggregate

    def timed(self, *args, **kwargs):
        out = aggregate(self, *args, **kwargs)
        marks.append(time.perf_counter())
        return out

    Server.aggregate = timed
    try:
        algorithm.run(n_rounds=work.rounds + 1, eligible_perc=work.sampled / work.clients)
    finally:
        Server.aggregate = aggregate
    return _speed(work, marks)


if __name__ == "__main__":
    name, workers, work = sys.argv[1:]
    print({"pfl": pfl, "flwr": flower, "fluke": fluke}[name](Work.of(json.loads(work)), int(workers)))
