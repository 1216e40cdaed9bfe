from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from sparsona.chance import Chance


def draw(chance: Chance, *args: str, **kwargs: object) -> list[int]:
    found: list[int] = chance.rng(*args, **kwargs).integers(2**60, size=2).tolist()  # type: ignore[arg-type]
    return found


def test_every_argument_matters_and_nothing_else() -> None:
    base = draw(Chance(1), "a", round=1, client="x", layer=1)
    assert base == draw(Chance(1), "a", round=1, client="x", layer=1)
    others = [
        draw(Chance(2), "a", round=1, client="x", layer=1),
        draw(Chance(1), "b", round=1, client="x", layer=1),
        draw(Chance(1), "a", round=2, client="x", layer=1),
        draw(Chance(1), "a", round=1, client="y", layer=1),
        draw(Chance(1), "a", round=1, client="x", layer=2),
    ]
    assert all(other != base for other in others)


def test_the_numbers_are_pinned() -> None:
    """Results must not change between versions without our noticing."""
    assert Chance(0).rng("batches", round=3, client="c1").permutation(8).tolist() == PERMUTATION


PERMUTATION = [6, 0, 2, 1, 4, 5, 3, 7]


def test_torch_is_ours_inside_and_as_it_was_outside() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with Chance(0).torch("x", round=1, client="c"):
        a = torch.rand(2)
    assert torch.equal(torch.rand(2), expected)
    with Chance(0).torch("x", round=1, client="c"):
        assert torch.equal(torch.rand(2), a)
    with Chance(0).torch("x", round=2, client="c"):
        assert not torch.equal(torch.rand(2), a)


def test_numpys_global_generator_is_not_touched() -> None:
    before = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    Chance(0).rng("x").random(10)
    assert (np.random.get_state(legacy=False)["state"]["key"] == before).all()  # noqa: NPY002


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(OverflowError):
        Chance(-1).rng("draw")


def test_blocks_of_two_threads_do_not_mix_their_numbers() -> None:
    """The other thread must wait: torch has one generator for all."""
    inside, drawn = threading.Event(), dict[str, list[float]]()

    def draw(name: str, wait: threading.Event | None) -> None:
        with Chance(3).torch(name):
            inside.set()
            first = torch.rand(2).tolist()
            if wait is not None:
                wait.wait(0.2)
            drawn[name] = [*first, *torch.rand(2).tolist()]

    other = threading.Thread(target=draw, args=("b", None))
    one = threading.Thread(target=draw, args=("a", threading.Event()))
    one.start()
    inside.wait(5)
    other.start()
    one.join(5)
    other.join(5)
    for name, found in drawn.items():
        with Chance(3).torch(name):
            assert found == torch.rand(2).tolist() + torch.rand(2).tolist()
    assert len(drawn) == 2
