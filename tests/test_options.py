"""Every option of every method has a type, a default and a meaning that a person can read."""

from __future__ import annotations

import pytest

from sparsona.methods import METHODS
from sparsona.options import options_of
from sparsona.report.listing import default


@pytest.mark.parametrize("name", METHODS.names())
def test_every_option_is_explained(name: str) -> None:
    for option in options_of(METHODS.get(name)):
        assert option.kind, option
        assert option.text, f"{name} does not say what {option.name} means"


@pytest.mark.parametrize("name", METHODS.names())
def test_an_option_that_may_be_left_open_says_what_happens_then(name: str) -> None:
    for option in options_of(METHODS.get(name)):
        if default(option.default) == "none" and option.default != "none":
            assert "not given: " in option.text, f"{name}: {option.name} is none, and what that means is not said"


def test_ranges_choices_and_none_are_shown() -> None:
    found = {option.name: option for option in options_of(METHODS.get("ditto"))}
    assert found["lam"].kind == "float >= 0"
    assert found["form"].kind == "loss | shrink"
    assert found["global_epochs"].kind == "int >= 1 or none"
