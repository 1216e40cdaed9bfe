from __future__ import annotations

import pytest

from sparsona.errors import InputError
from sparsona.experiment import make_method
from sparsona.methods import METHODS
from sparsona.studies.tuning import Range, knobs, number_range


@pytest.mark.parametrize("name", METHODS.names())
def test_every_end_of_every_knob_is_a_setting_that_the_method_takes(name: str) -> None:
    for knob in knobs(name):
        if knob.key == "lr":
            continue
        values = knob.choices if knob.range is None else (knob.range.low, knob.range.high)
        for value in values:
            taken = int(value) if knob.range is not None and knob.range.whole else value
            group, _, option = knob.key.rpartition(".")
            make_method(name, {group: {option: taken}} if group else {option: taken})
        assert knob.range is None or knob.range.low <= knob.start <= knob.range.high


def test_a_methods_own_knobs_have_their_kinds() -> None:
    found = {knob.key: knob for knob in knobs("fedspa")}
    assert found["lr"].range == Range(0.005, 0.5, log=True, whole=False)
    assert found["density"].range == Range(0.02, 1.0, log=True, whole=False)
    assert found["same_init"].choices == (True, False)
    assert set(found["agg"].choices) == {"mean", "count"}
    assert [knob.key for knob in knobs("fedspa", only=("density",))] == ["density"]
    with pytest.raises(InputError, match="fedspa has no knob 'densty'; did you mean 'density'"):
        knobs("fedspa", only=("densty",))


def test_what_is_off_stays_off() -> None:
    assert number_range(0.0, 0, None) is None
    assert number_range(0, 0, None) is None
    assert number_range(0.0, 0, 1) == Range(0, 1, log=False, whole=False)
