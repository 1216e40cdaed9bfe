"""The claims of the pFedGate paper, on data that replace its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from sparsona.methods.pfedgate import PFedGate
from sparsona.methods.pfedgate.blocks import Cut
from sparsona.models._build import build_model
from sparsona.training.vector import FlatModule
from sparsona_papers._checks import flops, measured, share
from sparsona_papers._differences import RowAt, Runs, by_size
from sparsona_papers._paper import Size
from sparsona_papers._tables import MEASURED
from sparsona_papers._verdicts import Claim, above, exceeds, fact, loses, never
from sparsona_papers.pfedgate import shared_claims as shared
from sparsona_papers.pfedgate.checks import combined, growth
from sparsona_papers.pfedgate.own_claims import own_claims
from sparsona_papers.pfedgate.plan import BASELINES, COMMAND, MODELS, data_of, rows
from sparsona_papers.pfedgate.printed import printed
from sparsona_papers.pfedgate.settings import FIXED, SCALES
from sparsona_papers.pfedgate.shared_claims import ClaimScope, same_cost

COSTS: dict[Size, str] = {
    "quick": COMMAND.of_runs("quick", "*"),
    "day": f"{COMMAND.of_runs('day', '*')}; other rows are in `--size quick`",
    "whole": COMMAND.of_runs("whole", "*"),
}
CURVES = COMMAND.of_runs("quick", "*-curve-*")
C11 = "density 0.3, batch 128"
TABLE_2 = {
    "density 0.5, batch 32": {"time": 0.79, "memory": 0.81},
    "density 0.3, batch 32": {"time": 0.76, "memory": 0.65},
    "density 0.5, batch 128": {"time": 0.83, "memory": 0.82},
    "density 0.5, batch 512": {"time": 0.79, "memory": 0.84},
    "density 0.3, batch 512": {"time": 0.74, "memory": 0.72},
}
"""The paper's shares of FedAvg's time and memory, beside those of C11."""


def claims(size: Size) -> Iterator[Claim]:
    """Return all claims of the paper: on replacement data, on its own data sets, and those without data."""
    found = [] if size == "paper" else [claim for data in data_of(size) for claim in _stand_ins(size, data)]
    once: dict[str, Claim] = {}
    for claim in (*found, *(_short() if size == "quick" else ()), *_everywhere(), *own_claims()):
        once.setdefault(claim.text, claim)
    yield from once.values()


def _stand_ins(size: Size, data: str) -> Iterator[Claim]:
    """Fashion-MNIST for EMNIST, and in the whole CIFAR-10 itself."""
    where = ClaimScope((data,), same_cost(COSTS[size]), base_ending=FIXED if size in ("quick", "day") else "")
    rivals = [row.name for row in rows(size, data) if row.name in BASELINES]
    told = ", ".join(rivals) if size == "day" else shared.ALL_BASELINES
    yield from shared.table_1(where, rivals, ("pre", "post"), told)
    yield shared.sparse_loses_little(where)
    yield from shared.above_heterofl(where)
    yield shared.few_participants(where)
    yield shared.few_participants_of_fedavg(where)
    yield shared.mixed_densities(where)
    yield where.loses(
        f"ours: {data}: the same if the output layer is always kept (`whole_output`): at most 2.5 points are lost",
        (where.base("pfedgate-0.5"), "pfedgate-mixed-whole-output"),
        most=0.025,
    )
    for what, row in (("densities of 0.5 and 0.1", "mixed"), ("two blocks a tensor", "0.5-blocks-2")):
        yield where.exceeds(
            f"ours: {data}: with {what} a whole output layer is worth something, weighted, `post`",
            (f"pfedgate-{row}-whole-output", f"pfedgate-{row}"),
        )
    yield from shared.ablations(where, "C4", lambda name: f"paper, EMNIST: {_percent('')} and {_percent(f'-{name}')}")
    yield shared.five_blocks(where)
    yield where.exceeds(
        f"ours: {data}: the same if the output layer is always kept (`whole_output`): five blocks above two",
        (where.base("pfedgate-0.5"), "pfedgate-0.5-blocks-2-whole-output"),
    )
    yield shared.ten_blocks(where)
    for epochs in (1, 5, 10):
        yield from shared.new_clients(where, epochs)
    three, zero = ("", "-closed") if SCALES[size].start > 0 else ("-open", "")
    yield where.loses(
        f"{data}: the paper's start (0) is not below an open one (3), weighted, `post`",
        (f"pfedgate-0.5{three}", f"pfedgate-0.5{zero}"),
        most=0.0,
    )
    yield where.exceeds(
        f"{data}: HeteroFL's own-label mask at the test is worth something, weighted, `post`",
        ("heterofl", "heterofl-all-labels"),
    )
    yield from _server_model(where)
    yield shared.sent_up(where)
    for row, density, most in (("0.5", "0.5", 0.55), ("0.3-repo", "0.3 with `ste=repo`", 0.35)):
        yield Claim(
            f"Table 5: {data}: training at density {density} takes at most {most} of FedAvg's operations, gate"
            " included",
            share(f"{data}-pfedgate-{row}", f"{data}-fedavg", flops, most),
            COSTS[size],
        )
    for density in ("1", "0.5", "0.3"):
        text = f"Table 1: {data}: density {density} above FedAvg as sent, weighted, `pre` (rates chosen at `post`)"
        yield where.above(text, f"pfedgate-{density}", "fedavg", point="pre")
    for rival in ("fedavg", "local"):
        text = f"against it: {data}: `{rival}` at `post` is above pFedGate 0.5 at `post`, weighted"
        yield where.exceeds(text, (rival, "pfedgate-0.5"))
    yield Claim(
        f"against it: {data}: FedAvg fine-tuned (`ft`) is above pFedGate 0.5 at `post`, weighted",
        above(f"{data}-fedavg", f"{data}-pfedgate-0.5", point="ft", other_point="post", of=by_size),
        COSTS[size],
    )
    eight = (
        COMMAND.of_runs("quick", "*-epochs-8-*", f"{data}-{where.base('pfedgate-0.5')}-[123]")
        if size == "quick"
        else COSTS[size]
    )
    yield from shared.local_epochs(where, same_cost(eight))
    yield shared.skewed_labels(where, "1", "2.55")
    yield where.loses(
        f"{data}: `ste=repo`, whose steps are smaller, loses at most 2.5 points at density 0.3, weighted, `post`",
        (where.base("pfedgate-0.3"), "pfedgate-0.3-repo"),
        most=0.025,
    )


def _server_model(where: ClaimScope) -> Iterator[Claim]:
    """The server's model as it is, beside the personal ones."""
    scores = partial(shared.with_server, where, reading="server_weighted")
    yield where.claim(
        f"C7: {where}: the server's model as it is is at least 7 points below the personal ones, density 0.5, `post`"
        ' (the paper\'s has an epoch more of training, since it "can be very bad" without)',
        lambda data: [exceeds(*scores(data, "0.5"), 0.07)],
    )
    yield where.claim(
        f"Table 10: {where}: the server's model as it is is further behind at density 0.5 than at 1, weighted"
        " (paper, after an epoch more: 10.82 and 7.64 points)",
        lambda data: [combined(growth, *scores(data, "0.5"), *scores(data, "1"), least=0.0)],
    )


def _short() -> Iterator[Claim]:
    """Return claims that only short runs test: the gate's start, the cuts of blocks, the speed of learning, trees."""
    for density in ("0.5", "1"):
        zero, three = (RowAt(f"leaf-{density}-start-{start}", "post", by_size) for start in (0, 3))
        yield Claim(
            f"leaf-cnn, density {density}: the paper's start (0) not below an open one (3), weighted, `post`",
            loses(three, zero, 0.0),
            COMMAND.of_runs("quick", f"leaf-{density}-start-[03]-?"),
        )
    yield Claim(
        "leaf-cnn, density 0.5: the ReLU on the authors' outputs costs accuracy, weighted, `post`",
        above("leaf-0.5-start-0", "leaf-0.5-start-0-relu", point="post", of=by_size),
        COMMAND.of_runs("quick", "leaf-0.5-start-0-*"),
    )
    yield Claim(
        "5.2.2: leaf-cnn, density 0.5, start 3: blocks of whole channels (`split=channel`) lose at most 2.5 points on"
        " equal ones, weighted, `post`",
        loses(RowAt("leaf-0.5-start-3", "post", by_size), RowAt("leaf-0.5-start-3-channels", "post", by_size), 0.025),
        COMMAND.of_runs("quick", "leaf-0.5-start-3-*"),
    )

    curves = ClaimScope(("fashion-mnist",), same_cost(CURVES), "-curve")
    for density, most in (("1", 1.0), ("0.5", 1.0), ("0.3", 1.15)):
        yield shared.speed(curves, (density,), ("fedavg", "fedem"), most)
    yield from shared.ablation_speeds(curves)
    dealt = ClaimScope(("fashion-mnist",), same_cost(COMMAND.of_runs("quick", "*-shards-*")))
    yield shared.gates_alike(dealt)
    yield shared.gates_alike(dealt, "gates give blocks like scales", "scales alike")


def _everywhere() -> Iterator[Claim]:
    """Return claims that no run of a federation decides."""

    def bench(batch: str) -> str:
        return f"`python benchmarks/pfedgate.py --batches {batch} --results papers/results`"

    for model in MODELS.values():
        for what, most in (("time", 0.72), ("memory", 0.66)):
            yield Claim(
                f"C11: {model}: a step at density 0.3 takes at most {most} of FedAvg's {what}, batch 128",
                measured(f"{MEASURED}step-{model}", f"{what}, {C11}", most),
                bench("128"),
            )
    for of, shares in TABLE_2.items():
        for what, most in shares.items():
            yield Claim(
                f"Table 2: lenet-cifar: a step at {of} takes at most {most} of FedAvg's {what}",
                measured(f"{MEASURED}step-lenet-cifar", f"{what}, {of}", most),
                bench(of.rpartition(" ")[2]),
            )
    yield Claim(
        "7.4: lenet-cifar: a step at density 0.3 takes at most 0.28 of the time of FedEM's three, batch 128",
        measured(f"{MEASURED}step-lenet-cifar", f"time, {C11}", 0.28, times=1 / 3),
        bench("128"),
    )
    yield Claim(
        "7.4: a step at density 0.3 takes at most 0.66 of FedEM's memory, CIFAR-10, batch 128 (its table 2 has 0.58,"
        " and 0.66 of FedAvg's)",
        never("FedEM trains its three models one after another: beside C11 it would measure two models that lie idle"),
        "no command: the benchmark has no FedEM",
    )
    yield Claim(
        "Theorem 1: the smaller the density, the better a model generalises",
        never("a bound, and no gap between training and test samples is printed beside it"),
        "no command: Table 1 and Figure 5 say what densities score",
    )
    yield Claim("Table 5: the gate has at most 6.3 % of the model's weights, CIFAR-10, one path", fact(_gate_share))
    yield Claim(
        "5.2.2: an attention operator can be split by its heads",
        never("no net here has heads, nor has one of the paper's experiments"),
        "no command: it would need a net with attention",
    )
    yield Claim(
        "Figure 7: the histogram of the gates' weights becomes stable, CIFAR-10",
        never("the rates fall to a tenth after three quarters of the rounds: whatever learns becomes stable then"),
        "no command: no run could say no",
    )


def _percent(ending: str) -> str:
    """The paper's number on EMNIST for a row of density 0.5, by how its name ends."""
    return f"{100 * (printed('emnist', f'pfedgate-0.5{ending}')[0] or math.nan):.2f}"


def _gate_share(_: Runs) -> tuple[bool, str]:
    """Return the share of the gate's weights: its linear map has one row of the image's size per block."""
    image = (3, 32, 32)
    layout = FlatModule(build_model("lenet-cifar", image, 10)).layout
    share = math.prod(image) * len(Cut.of(layout, PFedGate().blocks)) / layout.size
    return share <= 0.063, f"{share:.2f}"
