"""The claims of pFedNet's draft, and our own questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import mean

from sparsona_papers._checks import bytes_sent, share
from sparsona_papers._differences import RowAt, Runs, Summary, extra, first_seeds
from sparsona_papers._tables import MEASURED
from sparsona_papers._verdicts import Check, Claim, Verdict, above, exceeds, fact, loses, never, within
from sparsona_papers.pfednet.plan import (
    BEST,
    COMMAND,
    COMPARED,
    DEFAULT,
    GAMMAS,
    LAMBDAS,
    LEVELS,
    ROUNDED,
    SEEDS,
    TUNED,
)

HALF_A_POINT = 0.005
CODED = ("logistic", "convnet2")
"""The models on whose updates `benchmarks/pfednet.py` compares codes."""
BY_LEVELS = tuple(f"{count} levels" for count in (2, *ROUNDED[1:]))
BY_GAMMA = tuple(f"gamma = {gamma:g} median" for gamma in (0.1, 0.3))
BY_QSGD = tuple(f"QSGD, {steps} steps" for steps in (7, 31, 127))


def _falls(data: str, rows_by_amount: Mapping[float, str], way: int) -> Check:
    """Check whether bytes up only fall, or only rise, from value to value."""
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
    """Check whether a row has fewer bytes up than another and loses at most half a point; the loss has an interval."""
    mine, rival = _at(data, one, other)

    def check(runs: Runs) -> Verdict:
        kept, pair = loses(RowAt(rival), RowAt(mine), HALF_A_POINT)(runs), first_seeds(runs, mine, rival)
        if pair is None or kept.word == "not run":
            return kept
        share = pair[0]["bytes"]["up"] / pair[1]["bytes"]["up"]
        return Verdict("no" if share >= 1 else kept.word, f"{share:.3f} of the bytes up; {kept.note}")

    return check


def _with_validation(runs: Runs, row: str) -> set[int]:
    """The seeds of a row that were scored on validation samples."""
    return {seed for seed, run in runs.get(row, {}).items() if "pre" in (run.get("validation") or {})}


def _preferred(data: str) -> Check:
    """Check whether the lambda of the byte-saving runs is the positive one that validation samples choose."""
    rows = {lam: f"{data}-lam-{lam:g}" for lam in LAMBDAS if lam > 0}

    def test(runs: Runs) -> tuple[bool, str] | None:
        seeds = set.intersection(*(_with_validation(runs, row) for row in rows.values()))
        if not seeds:
            return None
        found = {lam: mean(runs[row][seed]["validation"]["pre"] for seed in seeds) for lam, row in rows.items()}
        told = ", ".join(f"{lam:g}: {score:.4f}" for lam, score in found.items())
        return max(found, key=found.__getitem__) == BEST[data], told

    return fact(test, *rows.values())


def _at(data: str, *variants: str) -> tuple[str, ...]:
    return tuple(f"{data}-{variant}" for variant in variants)


def _measured(summary: Summary, code: str) -> tuple[float, float] | None:
    """The bytes and the error of a code, None where it was not measured."""
    size, error = (extra(f"{code}, {what}")(summary, "") for what in ("bytes", "error"))
    return None if size is None or error is None else (size, error)


def _codes_row(model: str) -> str:
    """What `benchmarks/pfednet.py` has measured of codes on a model's updates."""
    return f"{MEASURED}codes-{model}"


def _known_codes(runs: Runs, model: str, *codes: str) -> dict[str, tuple[float, float]] | None:
    """The bytes and the error of each code; None where one of them was not measured."""
    found = first_seeds(runs, _codes_row(model))
    measured = {code: _measured(found[0], code) for code in codes} if found else {}
    known = {code: pair for code, pair in measured.items() if pair is not None}
    return known if len(known) == len(codes) else None


def _dominated(model: str, mine: tuple[str, ...], rivals: tuple[str, ...]) -> Check:
    """Check whether for each of some codes one of ours has fewer bytes and less error on the same updates."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        known = _known_codes(runs, model, *mine, *rivals)
        if known is None:
            return None
        told = []
        for rival in rivals:
            better = [own for own in mine if all(a < b for a, b in zip(known[own], known[rival], strict=True))]
            told.append((bool(better), f"{rival}: {better[-1] if better else 'none'}"))
        return all(word for word, _ in told), "; ".join(text for _, text in told)

    return fact(test, _codes_row(model))


def _finer(model: str, codes: tuple[str, ...]) -> Check:
    """Return whether each of some codes has more bytes and less error than the one before it, on the same updates."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        known = _known_codes(runs, model, *codes)
        if known is None:
            return None
        told = ", ".join(f"{code}: {size:,.0f} bytes, error {error:.3g}" for code, (size, error) in known.items())
        return all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(known.values())), told

    return fact(test, _codes_row(model))


def claims() -> Iterator[Claim]:
    """All claims; the draft's own are (a) to (c)."""
    yield from _compared()
    yield from _rounded()
    for data in SEEDS:
        yield Claim(
            f"{data}: lambda = 0 is `local`, within a point (a sweep read on test samples; no choice rests on it)",
            within(0.01, *_at(data, "local", "lam-0")),
            COMMAND.of_runs("quick", f"{data}-l[ao][cm]*"),
        )
    yield from _bytes()
    yield Claim(
        "pFedNet's abstract: best accuracy among its baselines on medical images",
        never("the draft has no such experiments; its authors' code reads LUNA16 and BraTS2017, which are not here"),
        "no estimate: the settings are not given",
    )


def _compared() -> Iterator[Claim]:
    rivals = [name for name in TUNED if name != "pfednet"]
    for data in COMPARED:
        mine, cost = f"{data}-tuned-pfednet", COMMAND.of_runs("quick", f"{data}-tuned-*")
        for others in (("local",), ("fedavg",), rivals):
            who = " and ".join(f"`{name}`" for name in others) if len(others) == 1 else "all of its rivals"
            yield Claim(
                f"{data}: pFedNet above {who} at `pre`, all tuned on validation samples",
                above(mine, *(f"{data}-tuned-{name}" for name in others)),
                cost,
            )
        for ways, told in ((("up",), " up"), (("up", "down"), ", both ways together")):
            yield Claim(
                f"{data}: pFedNet as it comes takes at most 40 % of FedAvg's bytes{told}",
                share(mine, f"{data}-tuned-fedavg", bytes_sent(*ways), 0.4),
                cost,
            )


def _rounded() -> Iterator[Claim]:
    """Return the claims about the cost and the savings of few levels."""
    for data in (*COMPARED, "fashion"):
        plain, cost = f"{data}-rounded-0", COMMAND.of_runs("quick", f"{data}-rounded-*")
        for levels in ROUNDED[1:]:
            few = f"{data}-rounded-{levels}"
            default = ", the default," if levels == DEFAULT else ""
            yield Claim(
                f"(b) {data}: {levels} levels{default} lose less than half a point at `pre`",
                loses(RowAt(plain), RowAt(few), HALF_A_POINT),
                cost,
            )
            yield Claim(
                f"(b) {data}: {levels} levels{default} take less than a quarter of the bytes up",
                share(few, plain, bytes_sent("up"), 0.25),
                cost,
            )
        yield Claim(
            f"against it: {data}: {DEFAULT} levels, the default, lose something at `pre` that can be measured",
            exceeds(RowAt(plain), RowAt(f"{data}-rounded-{DEFAULT}")),
            cost,
        )


def _bytes() -> Iterator[Claim]:
    """Return the claims about saved bytes, at a lambda chosen on validation samples."""
    for data, lam in BEST.items():
        swept = f"lambda = {lam:g}, validation's choice"
        yield Claim(
            f"{data}: of the lambdas above 0 validation samples choose {lam:g}, at which bytes are saved (rate 0.05)",
            _preferred(data),
            COMMAND.of_runs("quick", f"{data}-lam-*"),
        )
        gammas = {0.0: f"lam-{lam:g}", **{gamma: f"gamma-{gamma:g}" for gamma in GAMMAS}}
        yield Claim(
            f"(a) {data}: the larger gamma, the fewer bytes up ({swept})",
            _falls(data, gammas, -1),
            COMMAND.of_runs("quick", f"{data}-[gl]a*"),
        )
        by_levels = {float(count): f"levels-{count}" for count in LEVELS}
        yield Claim(
            f"(b) {data}: the fewer levels, the fewer bytes up ({swept})",
            _falls(data, by_levels, 1),
            COMMAND.of_runs("quick", f"{data}-levels-*"),
        )
        for few in ("gamma-0.1", "levels-8"):
            yield Claim(
                f"the draft: a better trade-off than quantised gradients: {few} has fewer bytes up than QSGD with 7 "
                f"steps under FedAvg and loses at most half a point at `pre`, {data} ({swept})",
                _better_than(data, few, "qsgd-7"),
                COMMAND.of_runs("quick", f"{data}-[glq][aes][mvg]*"),
            )
        yield Claim(
            f"(c) {data}: gamma = 0.1 loses less than a point at `pre` ({swept})",
            loses(RowAt(f"{data}-lam-{lam:g}"), RowAt(f"{data}-gamma-0.1"), 0.01),
            COMMAND.of_runs("quick", f"{data}-[gl]a*"),
        )
    yield Claim(
        "the draft: shortened updates do not impair convergence in theory",
        never("a theorem, without a rate that runs could be compared with; (b) and (c) say what accuracy they cost"),
        "no command: no run decides it",
    )
    for model in CODED:
        cost = f"`python benchmarks/pfednet.py --codes fashion-mnist {model} --results papers/results`"
        yield Claim(
            "the draft: the more clusters of values, the more accurate the update, and the more bytes, fashion-mnist, "
            f"{model}",
            _finer(model, BY_LEVELS),
            cost,
        )
        for what, mine in (("number of levels", BY_LEVELS), ("gamma", BY_GAMMA)):
            yield Claim(
                "the draft: a better trade-off than quantised gradients on the same updates: for each of QSGD's 7, 31 "
                f"and 127 steps some {what} has fewer bytes and less error, fashion-mnist, {model}",
                _dominated(model, mine, BY_QSGD),
                cost,
            )
