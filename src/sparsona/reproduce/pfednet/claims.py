"""What pFedNet's draft claims, and what is asked of it here."""

from __future__ import annotations

from collections.abc import Iterator

from sparsona.reproduce import Runs
from sparsona.reproduce._verdicts import At, Check, Claim, above, fact, loses, never
from sparsona.reproduce.pfednet.plan import BEST, COMPARED, GAMMAS, LEVELS, ROUNDED, SEEDS, TUNED


def _falls(data: str, kind: str, amounts: tuple[float, ...], way: int) -> Check:
    """Whether bytes up change one way from value to value."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        rows = [runs.get(f"{data}-{kind}-{amount:g}") for amount in amounts]
        if not all(rows):
            return None
        sent = [row[min(row)]["bytes"]["up"] for row in rows if row]
        falls = [way * count for count in sent]
        return falls == sorted(falls), ", ".join(f"{a:g}: {n:,}" for a, n in zip(amounts, sent, strict=True))

    return fact(test, *(f"{data}-{kind}-{amount:g}" for amount in amounts))


def _saved(one: str, other: str, at_most: float, *ways: str) -> Check:
    """Whether a row takes at most so much of another's bytes, all `ways` together."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        few, plain = runs.get(one), runs.get(other)
        if not plain or not few:
            return None
        counts = [sum(run["bytes"][way] for way in ways) for run in (few[min(few)], plain[min(plain)])]
        return counts[0] <= at_most * counts[1], f"{counts[0] / counts[1]:.3f} of the bytes"

    return fact(test, one, other)


SWEPT = "`sparsona reproduce pfednet --quick`: half a CPU hour for all sweeps"
TUNING = "`sparsona reproduce pfednet --quick --only '*-tuned-*'`: half a CPU hour"
ROUNDING = "`sparsona reproduce pfednet --quick --only '*-rounded-*'`: ten CPU minutes"


def claims() -> Iterator[Claim]:
    """All claims; the draft's own are (a) to (c)."""
    rivals = [name for name in TUNED if name != "pfednet"]
    for data in COMPARED:
        mine = f"{data}-tuned-pfednet"
        for others in (("local",), ("fedavg",), rivals):
            who = " and ".join(f"`{name}`" for name in others) if len(others) == 1 else "all of its rivals"
            yield Claim(
                f"{data}: pFedNet above {who} at `pre`, all tuned on validation samples",
                above(mine, *(f"{data}-tuned-{name}" for name in others)),
                TUNING,
            )
        yield Claim(
            f"{data}: pFedNet as it comes takes at most 40 % of FedAvg's bytes up",
            _saved(mine, f"{data}-tuned-fedavg", 0.4, "up"),
            TUNING,
        )
        yield Claim(
            f"{data}: pFedNet as it comes takes at most 40 % of FedAvg's bytes, both ways together",
            _saved(mine, f"{data}-tuned-fedavg", 0.4, "up", "down"),
            TUNING,
        )
    for data in (*COMPARED, "fashion"):
        plain = f"{data}-rounded-0"
        for levels in ROUNDED[1:]:
            few = f"{data}-rounded-{levels}"
            yield Claim(
                f"(b) {data}: {levels} levels lose less than half a point at `pre`",
                loses(At(plain), At(few), 0.005),
                ROUNDING,
            )
            yield Claim(
                f"(b) {data}: {levels} levels take less than a quarter of the bytes up",
                _saved(few, plain, 0.25, "up"),
                ROUNDING,
            )
    for data in SEEDS:
        yield Claim(f"{data}: lambda = 0 is `local`", loses(At(f"{data}-local"), At(f"{data}-lam-0"), 0.01), SWEPT)
    for data in BEST:
        yield Claim(f"(a) {data}: the larger gamma, the fewer bytes up", _falls(data, "gamma", GAMMAS, -1), SWEPT)
        yield Claim(f"(b) {data}: the fewer levels, the fewer bytes up", _falls(data, "levels", LEVELS, 1), SWEPT)
        yield Claim(
            f"(c) {data}: gamma = 0.1 loses less than a point at `pre`",
            loses(At(f"{data}-lam-{BEST[data]:g}"), At(f"{data}-gamma-0.1"), 0.01),
            SWEPT,
        )
    yield Claim(
        "pFedNet's abstract: best accuracy among its baselines on medical images",
        never("the private data of its experiments are not public"),
        "nothing that we could run",
    )
