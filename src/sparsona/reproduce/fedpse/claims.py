"""What the FedPSE paper claims, row against row, and what one would say against it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from sparsona.experiment import build, read
from sparsona.methods.fedpse.owed import ServerState
from sparsona.reproduce import Runs, server_state
from sparsona.reproduce._verdicts import (
    At,
    Check,
    Claim,
    Verdict,
    Word,
    above,
    extra,
    fact,
    first_seeds,
    loses,
    never,
    values,
)
from sparsona.reproduce.fedpse.plan import LAMBDAS, METHODS, SAMPLED, SAMPLES, SPARSITIES, row_of
from sparsona.runs.directory import RunDirectory


def _rising(clients: int, name: str) -> Check:
    """Whether the mean (`distance`) or the variance (`distance_variance`) over the clients rises with lambda.

    Both ends of each step are samples of so many clients, of all seeds: a mean has their standard error, a variance the
    quantiles of F. It rises if every step does, and does not if one step falls.
    """
    from scipy.stats import f

    def steps(runs: Runs) -> Iterator[tuple[float, float, float, int]]:
        """Lambda, the mean and the variance of d, and the variance's degrees of freedom."""
        for ratio in LAMBDAS:
            row = row_of(ratio, "fedpse", clients)
            mean, variance = (values(runs, row, "pre", extra(key)) for key in ("distance", "distance_variance"))
            if mean:
                count = len(mean)
                yield ratio, sum(mean.values()) / count, sum(variance.values()) / count, count * (clients - 1)

    def check(runs: Runs) -> Verdict:
        found = list(steps(runs))
        if len(found) < len(LAMBDAS):
            known = {ratio for ratio, *_ in found}
            return Verdict("not run", f"missing: lambda = {', '.join(f'{r:g}' for r in LAMBDAS if r not in known)}")
        words: list[Word] = []
        for (_, m0, v0, n0), (_, m1, v1, n1) in pairwise(found):
            if name == "distance":
                half = 1.96 * math.sqrt(v0 / n0 + v1 / n1)
                low, high = m1 - m0 - half, m1 - m0 + half
            else:
                low, high = math.log(v1 / v0 / f.ppf(0.975, n1, n0)), math.log(v1 / v0 * f.ppf(0.975, n0, n1))
            words.append("yes" if low > 0 else "no" if high < 0 else "within noise")
        word: Word = "no" if "no" in words else "within noise" if "within noise" in words else "yes"
        shown = [(ratio, mean if name == "distance" else variance) for ratio, mean, variance, _ in found]
        told = ", ".join(f"{ratio:g}: {value:.3g}" for ratio, value in shown)
        return Verdict(word, f"{told}; from step to step: {', then '.join(words)}")

    return check


def _sent(method: str, way: str, low: float, high: float) -> Check:
    """Whether a row sends between `low` and `high` of FedAvg's numbers, at lambda = 1 with ten clients."""
    rows = row_of(1.0, method), row_of(1.0, "fedavg")

    def test(runs: Runs) -> tuple[bool, str] | None:
        pair = first_seeds(runs, *rows)
        if pair is None:
            return None
        one, other = (run["paper_bytes"][way] for run in pair)
        return low <= one / other <= high, f"{one / other:.4f}"

    return fact(test, *rows)


SHORT = "`sparsona reproduce fedpse --size quick`: a CPU minute a run"
CLAIMS = [
    *(
        Claim(
            f"{number}: lambda = 1, {data}, N = {n}: FedPSE above FedAvg, FedSTC and FedSCR at `{point}`",
            above(*(row_of(1.0, m, n, data) for m in ("fedpse", *METHODS[1:4])), point=point), SHORT,
        )
        for number, data in (("C1", "fashion-mnist"), ("C2", "mnist"), ("C2", "imdb"))
        for n in (2, 5, 10)
        for point in ("pre", "post")
    ),
    Claim("C2: lambda = 1, CIFAR-10, N = 10: FedPSE 0.8741 above FedSCR, FedSTC and FedAvg (0.7734, 0.7721, 0.7630)",
          never("the paper's ResNet18 starts from weights that it does not name"),
          "from scratch about 1,500 CPU hours, which would be another experiment"),
    *(
        Claim(
            f"the same on fashion-mnist, N = 10, with whole epochs, at `{point}`",
            above(*(row_of(1.0, f"{m}-epochs") for m in ("fedpse", *METHODS[1:4])), point=point), SHORT,
        )
        for point in ("pre", "post")
    ),
    Claim("Table 1: FedSTC and FedSCR above FedAvg at lambda = 1, fashion-mnist, N = 10 (`pre`): FedSTC",
          above(row_of(1.0, "fedstc"), row_of(1.0, "fedavg")), SHORT),
    Claim("Table 1: FedSTC and FedSCR above FedAvg at lambda = 1, fashion-mnist, N = 10 (`pre`): FedSCR",
          above(row_of(1.0, "fedscr"), row_of(1.0, "fedavg")), SHORT),
    *(
        Claim(
            f"C3: lambda = 0.5, {data}, N = 10: FedPSE above FedAvg, FedSTC and FedSCR at `pre`",
            above(*(row_of(0.5, m, data=data) for m in ("fedpse", *METHODS[1:4]))), SHORT,
        )
        for data in SAMPLES
    ),
    *(
        Claim(f"C3: lambda = 0, {data}, N = 10: FedPSE below FedAvg",
              above(*(row_of(0.0, m, data=data) for m in ("fedavg", "fedpse"))), SHORT)
        for data in SAMPLES
    ),
    *(
        Claim(f"C3: lambda = 0, {data}, N = 10: FedPSE at most 3 points below FedAvg (paper, fashion-mnist: 2.7)",
              loses(At(row_of(0.0, "fedavg", data=data)), At(row_of(0.0, "fedpse", data=data)), 0.03), SHORT)
        for data in SAMPLES
    ),
    Claim("Table 1: lambda = 0, fashion-mnist, N = 10: FedPSE above FedSCR at `pre`",
          above(row_of(0.0, "fedpse"), row_of(0.0, "fedscr")), SHORT),
    *(
        Claim(f"5.5: FedPSE's accuracy at `{point}` rises with lambda: 1 above 0.5 and 0, fashion-mnist, N = 10",
              above(*(row_of(r, "fedpse") for r in reversed(LAMBDAS)), point=point), SHORT)
        for point in ("pre", "post")
    ),
    *(
        Claim(f"FedPSE sends a tenth of FedAvg's numbers {way}, the paper's p = 0.9", _sent("fedpse", way, 0.08, 0.101),
              SHORT)
        for way in ("up", "down")
    ),
    Claim("FedSCR sends a tenth of FedAvg's numbers down, too", _sent("fedscr", "down", 0.0, 0.101), SHORT),
    Claim("Figure 2: FedPSE converges faster than FedSTC and FedSCR, FedAvg is unstable (fashion-mnist, N = 5)",
          never("curves that are measured in every round; no case has them"), "about 4 CPU hours at 100 rounds"),
    Claim("C4: N from 2 to 100: FedPSE above FedSTC and FedSCR at every N (2, 5 and 10: see C1)",
          never("N = 25, 50 and 100 need whole epochs and many rounds: a client has 600 images then"),
          "about 40 CPU hours at 100 rounds"),
    *(
        Claim(
            f"{number}: {part} helps at lambda = {r:g}, N = 10, p = 0.9, at `{point}`",
            above(row_of(r, "fedpse"), f"{row_of(r, 'fedpse')}-{study}", point=point), SHORT,
        )
        for part, study, number, ratios in (("EWA", "no-ewa", "C5", LAMBDAS), ("DPS", "no-dps", "C6", (0.2, 0.5, 1.0)))
        for r in ratios
        for point in ("pre", "post")
    ),
    Claim("C5: EWA gains 0.002 (N = 2), 0.0071 (5) and 0.0143 (10), each the mean over p from 0.1 to 0.9",
          never("gains of a point or less, as means over nine p: p = 0.9 was run"),
          "54 runs: about 80 CPU hours at 100 rounds"),
    *(
        Claim(f"C7: the {what} with lambda, fashion-mnist, N = {n}, last round", _rising(n, name), SHORT)
        for n in (10, 2)
        for what, name in (("mean correlation distance d rises", "distance"),
                           ("variance of d over the clients rises", "distance_variance"))
    ),
    *(
        Claim(f"C8: accuracy at `{point}` is higher with p = {high:g} than with {low:g}, lambda = 1, N = 10",
              above(*(f"{row_of(1.0, 'fedpse')}-p-{p:g}" for p in (high, low)), point=point), SHORT)
        for low, high in pairwise(SPARSITIES)
        for point in ("pre", "post")
    ),
    *(
        Claim(f"C9: FedPSE best with {share:g} of the clients a round, lambda = 1, N = 10, at `{point}`",
              above(*(f"{row_of(1.0, m)}-sample-{share:g}" for m in ("fedpse", *METHODS[1:4])), point=point), SHORT)
        for share in SAMPLED
        for point in ("pre", "post")
    ),
    *(
        Claim(f"against it: `local` is above FedPSE at lambda = 1 (`{point}`)",
              above(row_of(1.0, "local"), row_of(1.0, "fedpse"), point=point), SHORT)
        for point in ("pre", "post")
    ),
    Claim(
        "against it: FedAvg fine-tuned is above FedPSE at `post`, lambda = 1",
        above(row_of(1.0, "fedavg"), row_of(1.0, "fedpse"), point="ft", other_point="post"), SHORT,
    ),
]  # fmt: skip


def read_distances(folder: RunDirectory) -> dict[str, float]:
    """The mean and the variance of the clients' correlation distances in the last round."""
    if build(read(folder.experiment_file))[0].method != "fedpse":
        return {}
    found = np.array(list(server_state(folder.path, ServerState).distance.values()))
    return {"distance": float(found.mean()), "distance_variance": float(found.var())} if len(found) else {}
