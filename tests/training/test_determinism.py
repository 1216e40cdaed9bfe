"""A process that is forked after a run."""

from __future__ import annotations

import multiprocessing
import os

import pytest
import torch

from sparsona.training.determinism import deterministic


def _product(answers: multiprocessing.Queue[float]) -> None:
    with deterministic():
        answers.put(float((torch.ones(400, 400) @ torch.ones(400, 400)).sum()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_computes_where_the_parent_used_several_threads() -> None:
    """Without the hook it waits for threads of the parent's OpenMP team, which a fork does not copy."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (torch.ones(400, 400) @ torch.ones(400, 400)).sum()
        context = multiprocessing.get_context("fork")
        answers: multiprocessing.Queue[float] = context.Queue()
        child = context.Process(target=_product, args=(answers,))
        child.start()
        child.join(20)
        hangs = child.is_alive()
        child.kill()
        assert not hangs
        assert answers.get(timeout=5) == 400.0**3
    finally:
        torch.set_num_threads(before)
