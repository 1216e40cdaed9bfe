"""What the pFedGate paper claims, row against row, on data that stand in for its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from sparsona.methods.pfedgate import PFedGate
from sparsona.methods.pfedgate.blocks import Cut
from sparsona.models._build import build_model
from sparsona.reproduce import MEASURED, Runs, Size
from sparsona.reproduce._checks import flops, measured, share
from sparsona.reproduce._price import in_words
from sparsona.reproduce._verdicts import (
    At,
    Claim,
    above,
    accuracy,
    all_of,
    bottom,
    by_size,
    exceeds,
    extra,
    fact,
    lag,
    loses,
    never,
    newcomers,
    within,
)
from sparsona.reproduce.pfedgate.checks import combined, growth, ratio, sent
from sparsona.reproduce.pfedgate.hours import PRICE
from sparsona.reproduce.pfedgate.own_claims import own_claims
from sparsona.reproduce.pfedgate.plan import ABLATIONS, BASELINES, MODELS, data_of, rows
from sparsona.reproduce.pfedgate.printed import printed
from sparsona.reproduce.pfedgate.readings import rounds_to
from sparsona.reproduce.pfedgate.settings import SCALES
from sparsona.training.vector import Flat

COSTS: dict[Size, str] = {
    "quick": PRICE.of_runs("quick", "*"),
    "day": f"{PRICE.of_runs('day', '*')}; other rows are in `--size quick`",
    "whole": PRICE.of_runs("whole", "*"),
}
MASK = PRICE.of_runs("day", "*-heterofl-all-labels-*")
"""The one rival of the day's tables that was added last."""
CURVES = PRICE.of_runs("quick", "*-curve-*")


def claims(size: Size) -> Iterator[Claim]:
    """All claims of the paper: on stand-ins, on its own data sets, and what needs no data. Each stands there once."""
    found = [*(() if size == "paper" else _stand_ins(size)), *(_short() if size == "quick" else ())]
    once: dict[str, Claim] = {}
    for claim in (*found, *_everywhere(), *own_claims()):
        once.setdefault(claim.text, claim)
    yield from once.values()


def _stand_ins(size: Size) -> Iterator[Claim]:
    """Fashion-MNIST for EMNIST, and in the whole CIFAR-10 itself."""
    rest, opened = COSTS[size], SCALES[size].start > 0
    for data in data_of(size):

        def of(*names: str, data: str = data) -> tuple[str, ...]:
            return tuple(f"{data}-{name}" for name in names)

        def end(name: str, data: str = data) -> At:
            """A row after local training, weighted."""
            return At(f"{data}-{name}", "post", by_size)

        best = MASK if size == "day" else rest
        rivals = [row.name for row in rows(size, data) if row.name in BASELINES]
        told = ", ".join(rivals) if size == "day" else "all baselines of this table"
        for point in ("pre", "post"):
            for what, read_by in (("weighted mean", by_size), ("bottom decile", bottom)):
                yield Claim(
                    f"C1: {data}: density 0.3 above {told}, {what}, `{point}`",
                    above(*of("pfedgate-0.3", *rivals), point=point, of=read_by),
                    best,
                )
        for density, at in product(("1", "0.5"), ("pre", "post")):
            yield Claim(
                f"Table 1: {data}: density {density} above {told}, weighted mean, `{at}`",
                above(*of(f"pfedgate-{density}", *rivals), point=at, of=by_size),
                best,
            )
        whole, half, third, few, other = (
            end(f"pfedgate-{name}") for name in ("1", "0.5", "0.3", "0.5-20%", "0.5-closed" if opened else "0.5-open")
        )
        zero, three = (other, half) if opened else (half, other)
        yield Claim(
            f"C2: {data}: from density 1 to 0.3 at most 2.5 points are lost, weighted, `post`",
            loses(whole, third, 0.025),
            rest,
        )
        yield Claim(
            f"C3: {data}: 20 % participation costs less than a point, weighted, `post`", loses(half, few, 0.01), rest
        )
        yield Claim(
            f"Table 3: {data}: 20 % participation costs FedAvg more than a point, weighted, `post` (paper: 1.45 to 3.56"
            " for the baselines)",
            exceeds(end("fedavg"), end("fedavg-20%"), 0.01),
            rest,
        )
        yield Claim(
            f"Figure 5: {data}: densities of 0.5 and 0.1 side by side lose at most 2.5 points on 0.5, weighted, `post`",
            loses(half, end("pfedgate-mixed"), 0.025),
            rest,
        )
        yield Claim(
            f"ours: {data}: the same if the output layer is always kept (`whole_output`): at most 2.5 points are lost",
            loses(half, end("pfedgate-mixed-whole-output"), 0.025),
            rest,
        )
        for what, row in (("densities of 0.5 and 0.1", "mixed"), ("two blocks a tensor", "0.5-blocks-2")):
            yield Claim(
                f"ours: {data}: with {what} a whole output layer is worth something, weighted, `post`",
                exceeds(end(f"pfedgate-{row}-whole-output"), end(f"pfedgate-{row}")),
                rest,
            )
        for name in ABLATIONS:
            yield Claim(
                f"C4: {data}: the whole gate above {name}, weighted, `post`"
                f" (paper, EMNIST: {_percent('pfedgate-0.5')} and {_percent(f'pfedgate-0.5-{name}')})",
                exceeds(end("pfedgate-0.5"), end(f"pfedgate-0.5-{name}")),
                rest,
            )
        yield Claim(
            f"Table 4: {data}: the first norm matters more: without the second above without the first, weighted,"
            " `post`",
            exceeds(end("pfedgate-0.5-no-post-norm"), end("pfedgate-0.5-no-pre-norm")),
            rest,
        )
        yield Claim(
            f"C5: {data}: five blocks a tensor above two, weighted, `post`",
            exceeds(end("pfedgate-0.5"), end("pfedgate-0.5-blocks-2")),
            rest,
        )
        yield Claim(
            f"ours: {data}: the same if the output layer is always kept (`whole_output`): five blocks above two",
            exceeds(half, end("pfedgate-0.5-blocks-2-whole-output")),
            rest,
        )
        yield Claim(
            f"C5: {data}: ten blocks a tensor gain less than a point on five, weighted, `post`",
            loses(end("pfedgate-0.5-blocks-10"), half, 0.01),
            rest,
        )
        for epochs in (1, 5, 10):
            (run,) = of(f"pfedgate-0.5-new-{epochs}")
            yield Claim(
                f"C6: {data}: new clients are less than a point behind, `post`, epochs: {epochs}",
                loses(At(run, "post"), At(run, "post", newcomers), 0.01),
                rest,
            )
            yield Claim(
                f"C6: {data}: new clients are less far behind than FedAvg's, `post`, epochs: {epochs}",
                above(*of("fedavg-new", f"pfedgate-0.5-new-{epochs}"), point="post", of=lag),
                rest,
            )
        yield Claim(
            f"{data}: the paper's start (0) is not below an open one (3), weighted, `post`",
            loses(three, zero, 0.0),
            rest,
        )
        yield Claim(
            f"{data}: HeteroFL's own-label mask at the test is worth something, weighted, `post`",
            exceeds(end("heterofl"), end("heterofl-all-labels")),
            rest,
        )
        yield Claim(
            f"C7: {data}: the server's model as it is is at least 7 points below the personal ones, density 0.5, `post`"
            ' (the paper\'s has an epoch more of training, since it "can be very bad" without)',
            exceeds(half, At(half.row, "pre", accuracy("server_weighted")), 0.07),
            rest,
        )
        yield Claim(
            f"Table 10: {data}: the server's model as it is is further behind at density 0.5 than at 1, weighted"
            " (paper, after an epoch more: 10.82 and 7.64 points)",
            combined(growth, half, _server(half.row), whole, _server(whole.row), least=0.0),
            rest,
        )
        yield Claim(f"C10: {data}: two thirds of the model go up at density 0.5", sent(half.row), rest)
        for row, told, most in (("0.5", "0.5", 0.55), ("0.3-repo", "0.3 with `ste=repo`", 0.35)):
            yield Claim(
                f"Table 5: {data}: training at density {told} takes at most {most} of FedAvg's operations, gate"
                " included",
                share(f"{data}-pfedgate-{row}", f"{data}-fedavg", flops, most),
                rest,
            )
        for rival in ("fedavg", "local"):
            yield Claim(
                f"against it: {data}: `{rival}` at `post` is above pFedGate 0.5 at `post`, weighted",
                exceeds(end(rival), end("pfedgate-0.5")),
                rest,
            )
        yield Claim(
            f"against it: {data}: FedAvg fine-tuned (`ft`) is above pFedGate 0.5 at `post`, weighted",
            above(*of("fedavg", "pfedgate-0.5"), point="ft", other_point="post", of=by_size),
            rest,
        )
        yield Claim(
            f"C8: {data}: 1, 2 and 4 local epochs are within a point, `post`",
            within(0.01, half.row, *of("pfedgate-0.5-epochs-2", "pfedgate-0.5-epochs-4"), point="post"),
            rest,
        )
        yield Claim(
            f"C8: {data}: 8 local epochs are at least a point below one (paper: 2.5), weighted, `post`",
            exceeds(half, end("pfedgate-0.5-epochs-8"), 0.01),
            PRICE.of_runs("quick", "*-epochs-8-*", f"{half.row}-[123]") if size == "quick" else rest,
        )
        yield Claim(
            f"C9: {data}: accuracy falls from alpha = 0.4 to 0.01 at density 1, weighted, `post` (paper: by 2.55)",
            exceeds(whole, end("pfedgate-1-alpha-0.01")),
            rest,
        )
        yield Claim(
            f"{data}: `ste=repo`, whose steps are smaller, loses at most 2.5 points at density 0.3, weighted, `post`",
            loses(third, end("pfedgate-0.3-repo"), 0.025),
            rest,
        )


def _short() -> Iterator[Claim]:
    """What only short runs are there for: where the gate starts, how blocks are cut, how soon it learns, trees."""
    for density in ("0.5", "1"):
        zero, three = (At(f"leaf-{density}-start-{start}", "post", by_size) for start in (0, 3))
        yield Claim(
            f"leaf-cnn, density {density}: the paper's start (0) not below an open one (3), weighted, `post`",
            loses(three, zero, 0.0),
            PRICE.of_runs("quick", f"leaf-{density}-start-[03]-?"),
        )
    yield Claim(
        "leaf-cnn, density 0.5: the ReLU on the authors' outputs costs accuracy, weighted, `post`",
        above("leaf-0.5-start-0", "leaf-0.5-start-0-relu", point="post", of=by_size),
        PRICE.of_runs("quick", "leaf-0.5-start-0-*"),
    )
    yield Claim(
        "5.2.2: leaf-cnn, density 0.5, start 3: blocks of whole channels (`split=channel`) lose at most 2.5 points on"
        " equal ones, weighted, `post`",
        loses(At("leaf-0.5-start-3", "post", by_size), At("leaf-0.5-start-3-channels", "post", by_size), 0.025),
        PRICE.of_runs("quick", "leaf-0.5-start-3-*"),
    )

    def curve(name: str) -> str:
        return f"fashion-mnist-{name}-curve"

    def later(one: str, other: str, share: float) -> tuple[At, At]:
        return At(curve(one), "pre", rounds_to(share)), At(curve(other), "pre", rounds_to(share))

    for density, most in (("1", 1.0), ("0.5", 1.0), ("0.3", 1.15)):
        told = "no more rounds than" if most == 1 else f"at most {most} times the rounds of"
        yield Claim(
            f"Theorem 2, Table 9: fashion-mnist: to 90 % of its best score density {density} takes {told} FedAvg and"
            " FedEM, weighted, `pre`",
            all_of(combined(ratio, *later(f"pfedgate-{density}", r, 0.9), most=most) for r in ("fedavg", "fedem")),
            CURVES,
        )
    for name in ABLATIONS:
        faster = name == "client-wise"
        order = ("pfedgate-0.5", f"pfedgate-0.5-{name}") if faster else (f"pfedgate-0.5-{name}", "pfedgate-0.5")
        yield Claim(
            f"Table 4: fashion-mnist: {name} is {'faster' if faster else 'slower'} than the whole gate: rounds to 80 %"
            " of its best score, weighted, `pre`",
            combined(ratio, *later(*order, 0.8), least=1.0),
            CURVES,
        )
    for what, key in (("gates have moved alike", "gates alike"), ("gates give blocks like scales", "scales alike")):
        yield Claim(
            f"Figure 4: fashion-mnist: where ten clients with two shards each share labels their {what}, density 0.3",
            combined(float, At("fashion-mnist-pfedgate-0.3-shards", "post", extra(key)), least=0.0),
            PRICE.of_runs("quick", "*-shards-*"),
        )


def _everywhere() -> Iterator[Claim]:
    """What no run of a federation decides."""
    bench = f"`python benchmarks/pfedgate.py --batches 128`: {in_words(1 / 30)}"
    for model in MODELS.values():
        for what, most in (("time", 0.72), ("memory", 0.66)):
            yield Claim(
                f"C11: {model}: a step at density 0.3 takes at most {most} of FedAvg's {what}, batch 128",
                measured(f"{MEASURED}step-{model}", what, most),
                bench,
            )
    yield Claim(
        "7.4: lenet-cifar: a step at density 0.3 takes at most 0.28 of the time of FedEM's three, batch 128",
        measured(f"{MEASURED}step-lenet-cifar", "time", 0.28, times=1 / 3),
        bench,
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


def _server(row: str) -> At:
    """What the server's model of a row scores, the clients weighted by their sizes."""
    return At(row, "pre", accuracy("server_weighted"))


def _percent(row: str) -> str:
    """The paper's number for a row on EMNIST."""
    return f"{100 * (printed('emnist', row)[0] or math.nan):.2f}"


def _gate_share(_: Runs) -> tuple[bool, str]:
    """The weights of the gate's linear map, a row of the image a block, against the model's."""
    image = (3, 32, 32)
    layout = Flat(build_model("lenet-cifar", image, 10)).layout
    share = math.prod(image) * len(Cut.of(layout, PFedGate().blocks)) / layout.size
    return share <= 0.063, f"{share:.2f}"
