"""Names of folders: no two the same, and the same again when more is added."""

from __future__ import annotations

from sparsona.studies.declared import distinct_names


def test_the_first_keeps_its_plain_name_when_others_come() -> None:
    first = distinct_names({"a=3": "a-3", "a=4": "a-4"})
    assert first == {"a=3": "a-3", "a=4": "a-4"}
    more = distinct_names({"a=3": "a-3", "a=4": "a-4", "a=-3": "a-3", "a=+3": "a-3"})
    assert {key: more[key] for key in first} == first
    assert len(set(more.values())) == 4
    assert all(name.startswith("a-3-") for name in (more["a=-3"], more["a=+3"]))
