"""Verdicts: yes, no, within noise, not run; with intervals over seeds."""

from __future__ import annotations

from typing import Any

import pytest

from sparsona_papers._differences import (
    UNTUNED,
    RowAt,
    accuracy,
    bottom,
    by_size,
    difference,
    extra,
    interval,
    lag,
    newcomers,
    score,
)
from sparsona_papers._noise import with_noise
from sparsona_papers._registry import PAPERS
from sparsona_papers._results import Results, digest_of
from sparsona_papers._tables import Part, runs_of, verdicts
from sparsona_papers._verdicts import Claim, Verdict, above, all_of, any_of, exceeds, fact, loses, never, within


def run(pre: float, samples: int | None = 1000, **more: Any) -> dict[str, Any]:
    scores = {"mean": pre, "weighted": pre + 0.1, "bottom_decile": pre - 0.1}
    return {"metric": "accuracy", "accuracy": {"pre": scores}, "test_samples": samples, **more}


def rows(**found: list[float]) -> Any:
    return {name: {seed: run(value) for seed, value in enumerate(values)} for name, values in found.items()}


def test_differences_are_paired_by_seed() -> None:
    runs = rows(a=[0.50, 0.70, 0.90], b=[0.48, 0.68, 0.88])
    gap = difference(runs, RowAt("a"), RowAt("b"))
    assert gap is not None
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.02, 0.02, 0.02), abs=1e-9), "the seeds' spread cancels"
    assert above("a", "b")(runs).word == "yes"
    assert above("b", "a")(runs).word == "no"
    shuffled = rows(a=[0.50, 0.70, 0.90], b=[0.88, 0.68, 0.48])
    assert above("a", "b")(shuffled).word == "within noise"
    assert "3 seeds" in above("a", "b")(shuffled).note


def test_only_seeds_that_both_have_count() -> None:
    runs = {**rows(a=[0.9, 0.1]), "b": {0: run(0.5)}}
    gap = difference(runs, RowAt("a"), RowAt("b"))
    assert gap is not None
    assert gap.value == pytest.approx(0.4)
    assert gap.seeds == 1
    assert difference(runs, RowAt("a"), RowAt("c")) is None


def test_students_t() -> None:
    told = interval([0.01, 0.03])
    assert told.high - told.value == pytest.approx(12.706 * 0.01, rel=1e-3), "two seeds say little"
    assert interval([0.01, 0.02, 0.03]).high - 0.02 == pytest.approx(4.303 * 0.01 / 3**0.5, rel=1e-3)


def test_one_seed_has_the_interval_of_its_test_samples() -> None:
    near, far = {"a": {1: run(0.52)}, "b": {1: run(0.5)}}, {"a": {1: run(0.6)}, "b": {1: run(0.5)}}
    assert above("a", "b")(near).word == "within noise"
    assert above("a", "b")(far).word == "yes"
    assert "one seed" in above("a", "b")(far).note
    unknown = {"a": {1: run(0.9, None)}, "b": {1: run(0.1, None)}}
    assert above("a", "b")(unknown).word == "within noise", "nothing is known of the noise"
    assert above("a", "b", of=bottom)(far).word == "within noise", "a few clients' samples"


def test_above_all_needs_all() -> None:
    runs = rows(a=[0.9, 0.91, 0.9], b=[0.5, 0.5, 0.5], c=[0.9, 0.9, 0.91])
    assert above("a", "b")(runs).word == "yes"
    assert above("a", "b", "c")(runs).word == "within noise"
    assert above("b", "a", "c")(runs).word == "no"
    assert above("a", "b", "d")(runs).word == "not run"
    assert "missing: d" in above("a", "b", "d")(runs).note
    assert "against c" in above("a", "b", "c")(runs).note


def test_the_note_tells_of_the_rival_that_decides() -> None:
    """Not of the nearest one, if that is surely below."""
    runs = rows(a=[0.90, 0.90, 0.90], near=[0.89, 0.891, 0.889], far=[0.80, 0.95, 0.85])
    assert above("a", "near")(runs).word == "yes"
    found = above("a", "near", "far")(runs)
    assert (found.word, found.note.endswith("against far")) == ("within noise", True)
    assert within(0.02, "a", "near", "far")(runs).note.endswith("a against far")


def test_one_rival_of_many_that_is_above_by_chance_decides_nothing() -> None:
    runs = rows(a=[0.50, 0.50, 0.50], b=[0.52, 0.53, 0.525], c=[0.4, 0.4, 0.4], d=[0.4, 0.4, 0.4])
    slightly = rows(a=[0.50, 0.50, 0.50], b=[0.514, 0.53, 0.525], c=[0.4, 0.4, 0.4], d=[0.4, 0.4, 0.4])
    assert above("a", "b")(slightly).word == above("a", "b")(runs).word == "no"
    assert above("a", "b", "c", "d")(runs).word == "no"
    chance = above("a", "b", "c", "d")(slightly)
    assert (chance.word, chance.note.endswith("against b (± 0.0361 as one of 3 rivals)")) == ("within noise", True)
    gap = difference(slightly, RowAt("a"), RowAt("b"))
    assert gap is not None
    assert gap.high_of(3) - gap.value == pytest.approx((gap.high - gap.value) * 7.649 / 4.303, rel=1e-3)


def test_losing_little_and_being_within() -> None:
    runs = rows(a=[0.9, 0.901, 0.9], b=[0.895, 0.896, 0.896], c=[0.8, 0.8, 0.8])
    assert loses(RowAt("a"), RowAt("b"), 0.01)(runs).word == "yes"
    assert loses(RowAt("a"), RowAt("c"), 0.01)(runs).word == "no"
    assert loses(RowAt("a"), RowAt("b"), 0.005)(runs).word == "within noise"
    assert within(0.01, "a", "b")(runs).word == "yes"
    assert within(0.01, "a", "b", "c")(runs).word == "no"
    assert within(0.005, "a", "b")(runs).word == "within noise"
    assert within(0.01, "a", "d")(runs).word == "not run"


def test_one_of_several_is_enough() -> None:
    runs = rows(a=[0.9, 0.9, 0.9], b=[0.5, 0.5, 0.5], c=[0.9, 0.91, 0.9])
    assert any_of(above("b", "a"), above("c", "b"))(runs).word == "yes"
    assert any_of(above("b", "a"), above("c", "a"))(runs).word == "within noise"
    assert any_of(above("b", "a"), above("b", "c"))(runs).word == "no"
    assert any_of(above("b", "a"), above("d", "a"))(runs).word == "not run", "the missing one may hold"


def test_all_of_several_say_what_the_weakest_says() -> None:
    yes, no, absent, near = (
        Verdict("yes", "y"),
        Verdict("no", "n"),
        Verdict("not run", "m"),
        Verdict("within noise", "w"),
    )

    def of(*found: Verdict) -> Verdict:
        return all_of({str(place): lambda runs, own=own: own for place, own in enumerate(found)})({})

    assert of(yes, yes, yes) == Verdict("yes", "0: y; 1: y; and 1 more")
    assert of(yes, absent, no) == Verdict("no", "2: n")
    assert of(absent, yes, absent, near) == Verdict("not run", "m"), "what is missing is told once"
    assert of(yes, near) == Verdict("within noise", "1: w")
    assert all_of([lambda runs: near, lambda runs: yes])({}) == near, "without names"


def test_what_is_missing_is_named_but_not_all_of_it() -> None:
    runs = rows(a=[0.9])
    assert above("a", "b", "c", "d")(runs).note == "missing: b, c, d"
    assert above("a", "b", "c", "d", "e", "f")(runs).note == "missing: b, c, d and 2 more"
    assert fact(lambda found: None, "a", "b")(runs).note == "missing: b"


def test_other_readings() -> None:
    runs = {"a": {1: run(0.5, extra={"client": 0.8}, new_clients={"accuracy": {"post": {"mean": 0.3}}})}}
    summary = runs["a"][1]
    assert by_size(summary, "pre") == pytest.approx(0.6)
    assert bottom(summary, "pre") == pytest.approx(0.4)
    assert newcomers(summary, "post") == 0.3
    assert lag({**summary, "accuracy": {"post": {"mean": 0.5}}}, "post") == pytest.approx(0.2)
    assert lag(summary, "post") is None
    assert extra("client")(summary, "pre") == 0.8
    assert extra("other")(summary, "pre") is None
    assert by_size(summary, "post") is None


def test_readings_of_different_kinds_can_be_compared() -> None:
    runs = {"a": {s: run(0.5 + s / 100, extra={"server": 0.4 + s / 100}) for s in range(3)}}
    ours, servers = RowAt("a"), RowAt("a", "pre", extra("server"))
    assert exceeds(ours, servers)(runs).word == "yes"
    assert exceeds(ours, servers, 0.2)(runs).word == "no"
    assert exceeds(servers, ours)(runs).word == "no"
    assert exceeds(ours, RowAt("b"))(runs).word == "not run"


def test_the_table_of_verdicts_says_what_is_missing_and_what_it_would_cost() -> None:
    claims = [Claim("one", above("a", "b"), "an hour"), Claim("two", never("no data"), "a day")]
    runs = rows(a=[0.9, 0.9], b=[0.5, 0.5])
    assert verdicts([Part("quick", claims, runs)]) == [
        "2 claims: 1 yes, 1 not run.",
        "",
        "| claim | verdict | evidence |",
        "|---|---|---|",
        "| one | yes | +0.4000 ± 0.0256, 2 seeds |",
        "",
        "Claims that nobody has run, and what would settle them:",
        "",
        "| claim | command |",
        "|---|---|",
        "| two | no data; a day |",
    ]
    assert verdicts([Part("quick", claims, {})])[-2:] == ["| one | an hour |", "| two | no data; a day |"]


def test_the_longest_runs_decide() -> None:
    claims = [Claim(name, above("a", rival), "an hour") for name, rival in (("one", "b"), ("two", "c"), ("three", "d"))]
    runs = rows(a=[0.9] * 3, b=[0.5] * 3, c=[0.8] * 3, d=[0.7] * 3)
    longer = rows(a=[0.9] * 3, b=[0.95] * 3, d=[0.5, 0.99, 0.8])
    parts = [Part("quick", claims, runs), Part("day", [*claims, Claim("four", above("a", "e"), "a week")], longer)]
    one, two, three, four = (line for line in verdicts(parts) if line.startswith(("| one", "| t", "| four")))
    assert one == "| one | no | day, no: -0.0500 ± 0.0000, 3 seeds; quick, yes: +0.4000 ± 0.0000, 3 seeds |"
    assert two == "| two | yes | quick, yes: +0.1000 ± 0.0000, 3 seeds |"
    assert three.startswith("| three | within noise | day, within noise: "), "short runs do not outvote longer ones"
    assert four == "| four | a week |"


def test_evidence_says_which_rows_have_no_tuned_rates() -> None:
    runs = rows(a=[0.9] * 3, b=[0.5] * 3)
    assert above("a", "b")(runs).note == "+0.4000 ± 0.0000, 3 seeds"
    runs["b"] = {seed: {**run, UNTUNED: True} for seed, run in runs["b"].items()}
    assert above("a", "b")(runs).note == "+0.4000 ± 0.0000, 3 seeds, untuned"


def test_a_single_seed_is_as_unsure_as_other_rows_seeds_show() -> None:
    """Over five seeds rows are apart by 0.1, give or take: with one seed 0.05 is then nothing, whatever its samples."""
    runs = rows(a=[0.5, 0.7, 0.5, 0.7, 0.5], b=[0.5] * 5, d=[0.6] * 5)
    one = {"c": {0: run(0.55, 10_000)}, "e": {0: run(0.5, 10_000)}}
    assert above("c", "e")(one).word == "yes"
    found = above("c", "e")(with_noise([{**runs, **one}])[0])
    assert found.word == "within noise"
    assert found.note.endswith("test samples of one seed and what seeds differ by")
    wide = difference(with_noise([{**runs, **one}])[0], RowAt("c"), RowAt("e"))
    assert wide is not None
    assert wide.high - wide.value == pytest.approx(2.306 * 0.0870, abs=0.001), "eight degrees of freedom"
    calm = with_noise([rows(a=[0.5, 0.501], b=[0.5, 0.5], d=[0.5, 0.5], c=[0.7])])[0]
    assert {noise.variance for noise in calm["c"][0]["noise"].values()} == {0}, "never narrower"


def test_a_run_that_stands_in_two_rows_tells_of_the_noise_once() -> None:
    """Twice the same run differs by nothing: counted as a pair it would make all others too sure."""
    table = rows(a=[0.5, 0.7, 0.5], b=[0.5, 0.5, 0.5], d=[0.6, 0.6, 0.5])
    table = {row: {seed: {**run, "flops": ord(row)} for seed, run in own.items()} for row, own in table.items()}
    again = {"a-again": table["a"], "b-again": {seed: table["b"][seed] for seed in (0, 1)}}
    once, twice = (with_noise([runs])[0]["a"][0]["noise"]["pre", score] for runs in (table, {**again, **table}))
    assert once.variance > 0
    assert twice == once


def test_a_second_seed_makes_surer_than_one_and_says_no_more_than_the_table_does() -> None:
    """Two equal differences are chance: the other rows tell how much seeds differ."""
    table = rows(a=[0.5, 0.6, 0.5], b=[0.5, 0.5, 0.5], d=[0.55, 0.5, 0.6])
    pair = {"c": {0: run(0.6), 1: run(0.6)}, "e": {0: run(0.5), 1: run(0.5)}}
    assert above("c", "e")(pair).note == "+0.1000 ± 0.0307, 2 seeds", "nothing is known of other rows: test samples"
    two = difference(with_noise([{**table, **pair}])[0], RowAt("c"), RowAt("e"))
    one = difference(
        with_noise([{**table, **{row: {0: own[0]} for row, own in pair.items()}}])[0], RowAt("c"), RowAt("e")
    )
    assert one is not None
    assert two is not None
    assert 0.03 < two.high - two.value < one.high - one.value
    assert str(two).endswith("2 seeds and what seeds differ by")
    wild = {"c": {0: run(0.9), 1: run(0.3)}, "e": {0: run(0.5), 1: run(0.5)}}
    own = difference(with_noise([{**rows(a=[0.5] * 3, b=[0.5] * 3, d=[0.5] * 3), **wild}])[0], RowAt("c"), RowAt("e"))
    assert own is not None
    assert own.high - own.value > 1.96 * 0.42 / 2**0.5, "their own spread counts where it is larger"


def test_two_seeds_of_sampled_clients_that_agree_by_chance_decide_nothing() -> None:
    sampled = {row: {seed: run(mean, sampled=True) for seed in (0, 1)} for row, mean in (("a", 0.9), ("b", 0.5))}
    found = above("a", "b")(with_noise([sampled])[0])
    assert found == Verdict("within noise", "+0.4000, 2 seeds of sampled clients")


def test_what_is_no_share_of_test_samples_has_no_interval_of_theirs() -> None:
    """A cosine of 0.95 is not an accuracy, though it lies between 0 and 1."""
    runs = {row: {1: run(0.5, extra={"cosine": value})} for row, value in (("a", 0.95), ("b", 0.5))}
    for of, word in ((extra("cosine"), "within noise"), (accuracy("cosine"), "yes")):
        assert exceeds(RowAt("a", "pre", of), RowAt("b", "pre", of))(runs).word == word


def test_degrees_of_freedom_add_up_over_tables_and_sizes_do_not_share_a_table() -> None:
    def table(name: str, step: float) -> Any:
        return {f"{name}{row}": {s: run(0.5 + row * s * step, table=name) for s in (0, 1)} for row in (0, 1)}

    three = {**table("x", 0.1), **table("y", 0.1), **table("z", 0.1)}
    assert with_noise([three])[0]["x0"][0]["noise"]["pre", score].degrees == 3
    wild, calm = ({f"{size}{row}": own for row, own in rows_of.items()} for size, rows_of in _two_sizes())
    quick, day = with_noise([wild, calm])
    assert quick["quicka"][0]["noise"]["pre", score].variance > 0 == day["daya"][0]["noise"]["pre", score].variance


def _two_sizes() -> list[tuple[str, Any]]:
    """Two sizes with a table of the same name: in the first seeds differ, in the second they do not."""
    found = []
    for size, step in (("quick", 0.1), ("day", 0.0)):
        own = {
            row: {s: run(0.5 + place * s * step, table="x") for s in (0, 1)}
            for place, row in enumerate(("a", "b", "c"))
        }
        found.append((size, own))
    return found


def test_weighted_means_have_noise_of_their_own() -> None:
    """Seeds that differ in the weighted means only."""
    table = {
        name: {seed: run(0.5) | {"accuracy": {"pre": {"mean": 0.5, "weighted": 0.5 + seed * step}}} for seed in (0, 1)}
        for name, step in (("a", 0.0), ("b", 0.2), ("c", 0.1))
    }
    noise = with_noise([table])[0]["a"][0]["noise"]
    assert noise["pre", score].variance == 0 < noise["pre", by_size].variance


def test_a_single_seed_of_sampled_clients_decides_nothing_by_itself() -> None:
    sampled = {"a": {0: run(0.9, sampled=True)}, "b": {0: run(0.5, sampled=True)}}
    assert above("a", "b")(with_noise([sampled])[0]) == Verdict("within noise", "+0.4000, one seed of sampled clients")
    others = {
        row: {seed: run(0.5 + step * seed, sampled=True) for seed in (1, 2)}
        for row, step in (("c", 0.01), ("d", 0.03), ("e", 0.05))
    }
    assert above("a", "b")(with_noise([sampled, others])[0]).word == "yes", "another size tells how much seeds differ"
    del others["e"]
    assert above("a", "b")(with_noise([sampled, others])[0]).word == "within noise", "one pair of rows is not enough"


def test_a_table_of_three_rows_tells_of_itself_and_others_of_all() -> None:
    wild = {
        row: {s: run(0.5 + step * s, table="x") for s in (1, 2)} for row, step in (("a", 0), ("b", 0.1), ("c", 0.2))
    }
    calm = {row: {s: run(0.5, table="y") for s in (1, 2)} for row in ("d", "e", "f")}
    alone = {"g": {1: run(0.5, table="z")}}
    found = with_noise([{**wild, **calm, **alone}])[0]
    noise = {row: own[1]["noise"]["pre", score].variance for row, own in found.items()}
    assert noise["a"] > noise["g"] > noise["d"] == 0


def test_what_is_known_of_a_run_comes_from_its_case() -> None:
    paper = PAPERS.get("fedpse")("quick")
    case = next(case for case in paper.cases if case.name == "fashion-mnist-10-1-fedpse-sample-0.2")
    kept = Results(runs={case.name: {"settings": digest_of(case.identity)}})
    assert runs_of(paper, kept)[case.of][case.seed] | {"settings": ""} == {
        "settings": "", "table": case.table, "sampled": True, "untuned": True,
    }  # fmt: skip
