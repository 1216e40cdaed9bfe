"""What the pFedGate paper claims, row against row."""

from __future__ import annotations

from collections.abc import Iterator

from sparsona.reproduce import MEASURED, Runs
from sparsona.reproduce._verdicts import (
    At,
    Check,
    Claim,
    above,
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
from sparsona.reproduce.pfedgate.plan import ABLATIONS, BASELINES, MODELS, PRINTED, RARE

WHOLE = "`sparsona reproduce pfedgate`: about 250 CPU hours"


def claims(quick: bool) -> Iterator[Claim]:
    """All claims of the paper, those that cannot be run here included."""
    rest = "`sparsona reproduce pfedgate --quick`: three CPU minutes a run" if quick else WHOLE
    for data in MODELS if not quick else ("fashion-mnist",):

        def of(*names: str, data: str = data) -> tuple[str, ...]:
            return tuple(f"{data}-{name}" for name in names)

        rivals = [name for name in BASELINES if not quick or name not in RARE]
        for point in ("pre", "post"):
            for what, read_by in (("weighted mean", by_size), ("bottom decile", bottom)):
                yield Claim(
                    f"C1: {data}: density 0.3 above all baselines of this table, {what}, `{point}`",
                    above(*of("pfedgate-0.3", *rivals), point=point, of=read_by),
                    rest,
                )
        whole, half, third, few, other = (
            At(row, "post", by_size)
            for row in of(
                "pfedgate-1",
                "pfedgate-0.5",
                "pfedgate-0.3",
                "pfedgate-0.5-20%",
                "pfedgate-0.5-closed" if quick else "pfedgate-0.5-open",
            )
        )
        zero, three = (other, half) if quick else (half, other)
        yield Claim(
            f"C2: {data}: from density 1 to 0.3 at most 2.5 points are lost, weighted, `post`",
            loses(whole, third, 0.025),
            rest,
        )
        yield Claim(
            f"C3: {data}: 20 % participation costs less than a point, weighted, `post`", loses(half, few, 0.01), rest
        )
        for name in ABLATIONS:
            yield Claim(
                f"C4: {data}: the whole gate above {name}, weighted, `post`"
                f" (paper, EMNIST: {PRINTED['']} and {PRINTED[name]})",
                above(*of("pfedgate-0.5", f"pfedgate-0.5-{name}"), point="post", of=by_size),
                rest,
            )
        yield Claim(
            f"C5: {data}: five blocks a tensor above two, weighted, `post`",
            above(*of("pfedgate-0.5", "pfedgate-0.5-blocks-2"), point="post", of=by_size),
            rest,
        )
        yield Claim(
            f"C5: {data}: ten blocks a tensor gain less than a point on five, weighted, `post`",
            loses(At(of("pfedgate-0.5-blocks-10")[0], "post", by_size), half, 0.01),
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
            above(*of("heterofl", "heterofl-all-labels"), point="post", of=by_size),
            rest,
        )
        yield Claim(
            f"C7: {data}: the global model alone is at least 7 points below the personal ones, density 0.5, `post`",
            exceeds(half, At(half.row, "pre", extra("server_weighted")), 0.07),
            rest,
        )
        yield Claim(f"C10: {data}: two thirds of the model go up at density 0.5", _sent(half.row), rest)
        if quick:
            for density in ("0.5", "1"):
                zero, three = (At(f"leaf-{density}-start-{start}", "post", by_size) for start in (0, 3))
                yield Claim(
                    f"leaf-cnn, density {density}: the paper's start (0) not below an open one (3), weighted, `post`",
                    loses(three, zero, 0.0),
                    rest,
                )
            yield Claim(
                "leaf-cnn, density 0.5: the ReLU on the authors' outputs costs accuracy, weighted, `post`",
                above("leaf-0.5-start-0", "leaf-0.5-start-0-relu", point="post", of=by_size),
                rest,
            )
        for rival in ("fedavg", "local"):
            yield Claim(
                f"against it: {data}: `{rival}` at `post` is above pFedGate 0.5 at `post`, weighted",
                above(*of(rival, "pfedgate-0.5"), point="post", of=by_size),
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
            WHOLE,
        )
        yield Claim(
            f"C8: {data}: 8 local epochs are at least a point below one (paper: 2.5), weighted, `post`",
            exceeds(half, At(of("pfedgate-0.5-epochs-8")[0], "post", by_size), 0.01),
            WHOLE,
        )
        yield Claim(
            f"C9: {data}: alpha from 0.4 to 0.01 costs at most 2.5 points at density 1, weighted, `post`",
            loses(whole, At(of("pfedgate-1-alpha-0.01")[0], "post", by_size), 0.025),
            WHOLE,
        )
    for model in MODELS.values():
        for what, most in (("time", 0.72), ("memory", 0.66)):
            yield Claim(
                f"C11: {model}: a step at density 0.3 takes at most {most} of FedAvg's {what}, batch 128",
                _measured(f"{MEASURED}step-{model}", what, most),
                "`python benchmarks/pfedgate.py --batches 128`: two CPU minutes",
            )
    yield Claim(
        "Table 1 on EMNIST and FEMNIST",
        never("the data are not on this machine"),
        "about 300 CPU hours each, once `sparsona data get emnist` or `femnist` has run",
    )


def _sent(row: str) -> Check:
    """Whether between 0.6 and 0.75 of the model's numbers go up in a client's turn."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        own = runs.get(row)
        if not own:
            return None
        shares = [
            run["paper_bytes"]["up"] / (4 * run["weights"] * run["clients"] * run["rounds"]) for run in own.values()
        ]
        return 0.6 < min(shares) <= max(shares) < 0.75, ", ".join(f"{share:.3f}" for share in shares)

    return fact(test, row)


def _measured(row: str, what: str, most: float) -> Check:
    """Whether a share that `benchmarks/pfedgate.py` has measured is at most so much. It rounds to hundredths."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        found = [extra(what)(run, "") for run in runs.get(row, {}).values()]
        return None if not found or found[0] is None else (found[0] <= most, f"{found[0]:.2f}")

    return fact(test, row)
