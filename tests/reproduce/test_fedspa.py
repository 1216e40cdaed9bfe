"""The claims of FedSpa's card."""

from __future__ import annotations

from typing import Any

from sparsona.reproduce import PAPERS


def test_fedspa_is_sooner_only_where_it_gets_there_first_with_every_seed() -> None:
    claims = {claim.text: claim for claim in PAPERS.get("fedspa")("day").claims if claim.text.startswith("C3: fashion")}
    claim = next(own for text, own in claims.items() if "85%" in text and "than fedavg" in text)

    def told(mine: list[float | None], other: list[float | None]) -> tuple[str, str]:
        runs: dict[str, dict[int, Any]] = {}
        for row, found in (("fedspa-dst", mine), ("fedavg", other)):
            lines = [{} if rounds is None else {"extra": {"rounds to 0.85": rounds}} for rounds in found]
            runs[f"fashion-mnist-0.3-{row}"] = dict(enumerate(lines, 1))
        verdict = claim.check(runs)
        return verdict.word, verdict.note

    assert told([20.0], [45.0]) == ("yes", "rounds: 20 and 45")
    assert told([45.0], [45.0])[0] == "no"
    assert told([0.0], [45.0]) == ("no", "rounds: never and 45")
    assert told([45.0], [0.0])[0] == "yes"
    assert told([0.0], [20.0]) == ("no", "rounds: never and 20")
    assert told([0.0], [0.0])[0] == "not run", "too short to tell"
    assert told([20.0, 50.0], [45.0, 45.0]) == ("within noise", "rounds: 20 and 45, 50 and 45")
    assert told([20.0], [None])[0] == "not run", "nobody has looked"
    assert told([None, 20.0], [45.0, 45.0]) == ("yes", "rounds: 20 and 45"), "seeds that both have"
