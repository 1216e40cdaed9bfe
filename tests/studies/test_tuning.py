from __future__ import annotations

from pathlib import Path

import pytest

from sparsona.errors import RunError
from sparsona.studies.contest import Contest, Runs
from sparsona.studies.declared import declare
from sparsona.studies.tuning import Target, Trial, front, knobs, pick, tune

SETTINGS = {"clients": 3, "rounds": 2, "engine": "inprocess", "partition": "iid"}


def trial(number: int, validation: float, mb: float) -> Trial:
    return Trial(number, f"m:{number}", {}, validation, 0.0, mb)


TRIALS = [trial(0, 0.9, 10), trial(1, 0.8, 4), trial(2, 0.7, 5), trial(3, 0.6, 1), trial(4, 0.9, 12)]


def test_the_front_holds_what_nobody_beats_in_both() -> None:
    assert [one.number for one in front(TRIALS, True)] == [3, 1, 0]
    assert [one.number for one in front(TRIALS, False)] == [3]


@pytest.mark.parametrize(
    ("target", "number", "met"),
    [
        (Target(mb=5), 1, True),
        (Target(mb=100), 0, True),
        (Target(score=0.75), 1, True),
        (Target(score=0.95), 0, False),
        (Target(mb=0.5), 3, False),
    ],
)
def test_the_pick_is_the_best_within_the_target_or_the_nearest_to_it(target: Target, number: int, met: bool) -> None:
    chosen, meets = pick(TRIALS, target, True)
    assert (chosen.number, meets) == (number, met)


def test_a_study_that_was_stopped_goes_on_as_one_that_was_not(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install sparsona[tune]")
    target, searched = Target(mb=0.05), knobs("fedspa", ("lr", "density"))

    def study(folder: Path, resume: bool) -> Runs:
        return Runs(declare(folder, Contest(("fedspa",), (0,), SETTINGS), resume), folder)

    whole, higher = tune(study(tmp_path / "whole", False), "fedspa", searched, target, 4)
    assert higher
    assert whole[0].settings == {"lr": 0.1, "density": 0.5}, "the defaults come first"

    class Stop(Exception):
        pass

    def stop(found: Trial | None, number: int, note: str) -> None:
        raise Stop

    with pytest.raises(Stop):
        tune(study(tmp_path / "broken", False), "fedspa", searched, target, 4, stop)
    told: list[int] = []
    runs = study(tmp_path / "broken", True)
    again, _ = tune(runs, "fedspa", searched, target, 4, lambda found, number, note: told.append(number))
    assert told == [1, 2, 3], "the first trial is not made again"
    assert [(one.settings, one.mb) for one in again] == [(one.settings, one.mb) for one in whole]
    assert [one.validation for one in again] == pytest.approx([one.validation for one in whole])


def test_a_trial_that_was_killed_in_its_middle_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install sparsona[tune]")
    contest = Contest(("local",), (0,), SETTINGS)
    runs = Runs(declare(tmp_path / "s", contest, False), tmp_path / "s")
    with monkeypatch.context() as patched:
        patched.setattr(Runs, "advance", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tune(runs, "local", knobs("local"), Target(score=0.5), 2)
    done, _ = tune(runs, "local", knobs("local"), Target(score=0.5), 2)
    assert len(done) == 2
    assert done[0].settings["lr"] == 0.1


def test_a_study_of_other_knobs_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install sparsona[tune]")
    folder = tmp_path / "s"

    def study(resume: bool, *seeds: int) -> Runs:
        return Runs(declare(folder, Contest(("fedprox",), seeds, SETTINGS), resume), folder)

    both = knobs("fedprox", ("lr", "mu"))
    tune(study(False, 0), "fedprox", both, Target(mb=1), 1)
    before = (folder / "study.json").read_text()
    for other, named in ((knobs("fedprox", ("lr",)), "lr"), (knobs("fedprox", ("mu",)), "mu")):
        with pytest.raises(RunError) as caught:
            tune(study(True, 0, 1), "fedprox", other, Target(mb=1), 2)
        told = f"{folder} is a study of lr, mu, not of {named}: give --knobs lr,mu, or choose another --out"
        assert str(caught.value) == told
    assert (folder / "study.json").read_text() == before, "what is refused changes nothing"
    done, _ = tune(study(True, 0), "fedprox", both[::-1], Target(mb=1), 2)
    assert [sorted(one.settings) for one in done] == [["lr", "mu"]] * 2
