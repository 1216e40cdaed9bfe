"""Crops and flips: real shifts of the image, drawn from the run's chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import sparsona
from sparsona.chance import Chance
from sparsona.errors import InputError
from sparsona.methods.fedavg import FedAvg
from sparsona.testing import tiny_setup
from sparsona.training.augment import crop_and_flip
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner


def test_every_image_is_a_shift_or_a_mirrored_shift_of_itself() -> None:
    images = torch.randint(1, 255, (40, 3, 12, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with Chance(0).torch("augment"):
        out = crop_and_flip(images)
    assert out.dtype == torch.uint8
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    seen = set()
    for i in range(40):
        found = [
            (top, left, mirror)
            for top in range(9)
            for left in range(9)
            for mirror in (False, True)
            if torch.equal(
                out[i],
                (crop.flip(2) if mirror else crop)
                if (crop := padded[i, :, top : top + 12, left : left + 10]) is not None
                else crop,
            )
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len(seen) > 30
    assert {mirror for *_, mirror in seen} == {False, True}


def test_the_same_seed_gives_the_same_training() -> None:
    setup = tiny_setup(FedAvg())
    results = []
    for augment in (True, True, False):
        config = replace(setup.config, augment=augment)
        runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
        local = Local("c0", 0, setup.task, config, setup.federation.splits["c0"], runner)
        results.append(local.train(setup.task.initial).weights)
    assert (results[0] == results[1]).all()
    assert (results[0] != results[2]).any()


def test_tables_cannot_be_cropped() -> None:
    rng = np.random.default_rng(0)
    data = {"a": (rng.normal(size=(20, 5)).astype("float32"), rng.integers(0, 2, 20))}
    with pytest.raises(InputError, match="varies images"):
        sparsona.run("fedavg", data=data, rounds=1, training={"augment": True})
