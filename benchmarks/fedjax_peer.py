"""FedAvg on FedJAX, for benchmarks/simulation.py. FedJAX needs an environment of its own, without Sparsona:

    python -m venv ../fedjax
    ../fedjax/bin/pip install fedjax==0.0.17 jax==0.4.25 jaxlib==0.4.25 "numpy<2" "scipy<1.13" dm-haiku==0.0.12
    python benchmarks/simulation.py --fedjax ../fedjax/bin/python

Used as its documentation says: a perceptron of Haiku, `fedjax.algorithms.fed_avg`, clients trained by the compiled
backend. Some rounds to compile are not counted. Prints updates a second.
"""

# mypy: ignore-errors
# FedJAX is not installed where this is type-checked.

from __future__ import annotations

import argparse
import time

import fedjax
import haiku as hk
import jax
import numpy as np

RATE = 0.01
WARM = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("inputs", "hidden", "classes", "clients", "samples", "sampled", "batch", "rounds"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asked = parser.parse_args()

    def forward(batch):
        layers = [hk.Linear(asked.hidden), jax.nn.relu, hk.Linear(asked.classes)]
        return hk.Sequential(layers)(batch["x"])

    def loss(batch, outputs):
        return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], outputs)

    rng = np.random.default_rng(0)
    examples = {
        b"%06d" % number: {
            "x": rng.normal(size=(asked.samples, asked.inputs)).astype(np.float32),
            "y": rng.integers(0, asked.classes, asked.samples),
        }
        for number in range(asked.clients)
    }
    data = fedjax.InMemoryFederatedData(examples)
    model = fedjax.create_model_from_haiku(
        hk.transform(forward), {k: v[:1] for k, v in examples[b"000000"].items()}, loss
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(RATE),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=asked.batch, num_epochs=1),
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, num_clients=asked.sampled, seed=0)
    began = 0.0
    with fedjax.for_each_client_backend("jit"):
        for number in range(WARM + asked.rounds):
            if number == WARM:
                jax.block_until_ready(state.params)
                began = time.perf_counter()
            sampler.set_round_num(number)
            state, _ = algorithm.apply(state, sampler.sample())
    jax.block_until_ready(state.params)
    print(asked.rounds * asked.sampled / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
