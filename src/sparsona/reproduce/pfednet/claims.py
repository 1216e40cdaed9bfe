"""What pFedNet's draft claims, and what is asked of it here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparsona.reproduce import Runs, score
from sparsona.reproduce._verdicts import At, Check, Claim, above, fact, first_seeds, loses, never, within
from sparsona.reproduce.pfednet.plan import BEST, COMPARED, GAMMAS, LEVELS, ROUNDED, SEEDS, TUNED


def _falls(data: str, rows_by_amount: Mapping[float, str], way: int) -> Check:
    """Whether bytes up change one way from value to value."""
    names, amounts = _at(data, *rows_by_amount.values()), list(rows_by_amount)

    def test(runs: Runs) -> tuple[bool, str] | None:
        rows = first_seeds(runs, *names)
        if rows is None:
            return None
        sent = [run["bytes"]["up"] for run in rows]
        falls = [way * count for count in sent]
        return falls == sorted(falls), ", ".join(f"{a:g}: {n:,}" for a, n in zip(amounts, sent, strict=True))

    return fact(test, *names)


def _better_than(data: str, one: str, other: str) -> Check:
    """Whether a row has fewer bytes up than another and at most half a point less accuracy."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        pair = first_seeds(runs, *_at(data, one, other))
        if pair is None:
            return None
        a, b = pair
        gap = (score(a, "pre") or 0.0) - (score(b, "pre") or 0.0)
        share = a["bytes"]["up"] / b["bytes"]["up"]
        return share < 1 and gap >= -0.005, f"{share:.3f} of the bytes, {gap:+.4f} at `pre`, one seed"

    return fact(test, *_at(data, one, other))


def _at(data: str, *variants: str) -> tuple[str, ...]:
    return tuple(f"{data}-{variant}" for variant in variants)


def _saved(one: str, other: str, at_most: float, *ways: str) -> Check:
    """Whether a row takes at most so much of another's bytes, all `ways` together."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        pair = first_seeds(runs, one, other)
        if pair is None:
            return None
        counts = [sum(run["bytes"][way] for way in ways) for run in pair]
        return counts[0] <= at_most * counts[1], f"{counts[0] / counts[1]:.3f} of the bytes"

    return fact(test, one, other)


SWEPT = "`sparsona reproduce pfednet --size quick`: half a CPU hour for all sweeps"
TUNING = "`sparsona reproduce pfednet --size quick --only '*-tuned-*'`: half a CPU hour"
ROUNDING = "`sparsona reproduce pfednet --size quick --only '*-rounded-*'`: ten CPU minutes"


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
        yield Claim(f"{data}: lambda = 0 is `local`, within a point", within(0.01, *_at(data, "local", "lam-0")), SWEPT)
    for data in BEST:
        gammas = {0.0: f"lam-{BEST[data]:g}", **{gamma: f"gamma-{gamma:g}" for gamma in GAMMAS}}
        yield Claim(f"(a) {data}: the larger gamma, the fewer bytes up", _falls(data, gammas, -1), SWEPT)
        by_levels = {float(count): f"levels-{count}" for count in LEVELS}
        yield Claim(f"(b) {data}: the fewer levels, the fewer bytes up", _falls(data, by_levels, 1), SWEPT)
        for few in ("gamma-0.1", "levels-8"):
            yield Claim(
                f"the draft: a better trade-off than quantised gradients: {few} against QSGD with 7 steps, {data}",
                _better_than(data, few, "qsgd-7"),
                SWEPT,
            )
        yield Claim(
            f"(c) {data}: gamma = 0.1 loses less than a point at `pre`",
            loses(At(f"{data}-lam-{BEST[data]:g}"), At(f"{data}-gamma-0.1"), 0.01),
            SWEPT,
        )
    yield Claim(
        "pFedNet's abstract: best accuracy among its baselines on medical images",
        never("the draft has no such experiments; its authors' code reads LUNA16 and BraTS2017, which are not here"),
        "no estimate: the settings are not given",
    )
