"""Torch Datasets with random transforms, and arrays that are not copied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sparsona
from sparsona.chance import Chance
from sparsona.data import from_python
from sparsona.data.schema.columns import Columns
from sparsona.data.varied import ResampledRows, crop_and_flip, is_random, seeded
from sparsona.errors import InputError
from sparsona.methods.fedavg import FedAvg
from sparsona.prepare import prepare
from sparsona.testing import tiny_setup
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner


class Noisy(torch.utils.data.Dataset[Any]):
    """Samples of class k % 2 with noise from torch and numpy."""

    def __init__(self, noise: float = 0.1) -> None:
        self.noise, self.seen = noise, list[float]()

    def __len__(self) -> int:
        return 20

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        noise = self.noise * (torch.randn(1, 4, 4) + float(np.random.rand()))  # noqa: NPY002
        sample = float(place % 2) + noise
        self.seen.append(float(sample.mean()))
        return sample, place % 2


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))


def test_a_random_dataset_is_known_by_reading_it_twice() -> None:
    assert is_random(Noisy())
    assert not is_random(Noisy(0.0))


def test_each_epoch_draws_anew_and_a_run_is_repeatable() -> None:
    digests = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        data = Noisy()
        result = sparsona.run("fedavg", data={"a": data}, model=net(), rounds=3, lr=0.1)
        trained = data.seen[-3 * 14 :]
        assert len(set(trained)) == len(trained), "no sample twice"
        digests.append(result.summary["digest"])
    assert digests[0] == digests[1]


def test_drawing_leaves_the_generators_as_they_were() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    rows = ResampledRows((Noisy(),), np.array([[0, 3], [0, 4]]))
    with seeded(5):
        one = rows.draw(np.array([0, 1]))
    with seeded(5):
        assert np.array_equal(one, rows.draw(np.array([0, 1])))
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]  # noqa: NPY002


def test_mapped_arrays_are_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 3, 4, 4)).astype("float32"))
    x, y = np.load(tmp_path / "x.npy", mmap_mode="r"), np.arange(20) % 2
    given = {"a": (x[:20], y), "b": (x[20:], y)}
    found = prepare(
        {"method": "fedavg", "columns": {"scaling": "none"}},
        data=given,
        model=nn.Sequential(nn.Flatten(), nn.Linear(48, 2)),
    )
    assert np.shares_memory(found.setup.federation.data.inputs, x)


@pytest.mark.parametrize("lists", [True, False])
def test_hugging_face_lists_and_images(lists: bool) -> None:
    datasets = pytest.importorskip("datasets", reason="needs Hugging Face datasets")
    if lists:
        given = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3]], "text": ["a", "b"], "label": [0, 1]})
        made = from_python({"a": given}, columns=Columns())
        assert [field.name for field in made.fields] == ["input_ids", "attention_mask"]
    else:
        pictures = [np.zeros((4, 4, 3), np.uint8), np.ones((4, 4, 3), np.uint8)]
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])})
        given = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1]}, features=features)
        made = from_python({"a": given}, columns=Columns())
        assert made.inputs.shape == (2, 3, 4, 4)


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
