"""Facts about the published data sets, where this machine has a copy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sparsona import data
from sparsona.data.dataset import Dataset

Real = Callable[[str], Dataset]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar-10"])
def test_images_have_the_published_size_and_statistics(real: Real, name: str) -> None:
    loaded = real(name)
    shape = (60_000, 3, 32, 32) if name == "cifar-10" else (70_000, 1, 28, 28)
    assert loaded.inputs.shape == shape
    assert loaded.inputs.dtype == np.uint8
    assert loaded.inputs.flags.c_contiguous
    assert loaded.targets.dtype == np.int64
    assert loaded.official_test == 10_000
    assert set(np.unique(loaded.targets)) == set(range(10))
    assert np.allclose(loaded.inputs[:20_000].mean(axis=(0, 2, 3)) / 255, loaded.mean, atol=0.005)
    assert np.allclose(loaded.inputs[:20_000].std(axis=(0, 2, 3)) / 255, loaded.std, atol=0.005)


def test_cifar_10_is_balanced(real: Real) -> None:
    loaded = real("cifar-10")
    assert np.bincount(loaded.targets).tolist() == [6000] * 10
    assert np.bincount(loaded.targets[-10_000:]).tolist() == [1000] * 10


def test_digits_needs_no_download() -> None:
    loaded = data.load("digits")
    assert loaded.inputs.shape == (1797, 1, 8, 8)
    assert loaded.inputs.dtype == np.uint8
    assert (loaded.inputs.min(), loaded.inputs.max()) == (0, 255)
    assert np.isclose(loaded.inputs.mean() / 255, loaded.mean[0], atol=1e-3)
    assert np.isclose(loaded.inputs.std() / 255, loaded.std[0], atol=1e-3)


def test_imdb_is_balanced(real: Real) -> None:
    loaded = real("imdb")
    assert loaded.inputs.shape == (50_000, 256)
    assert loaded.inputs.dtype == np.int32
    assert loaded.official_test == 25_000
    assert np.bincount(loaded.targets[:25_000]).tolist() == [12_500, 12_500]
    assert np.bincount(loaded.targets[25_000:]).tolist() == [12_500, 12_500]
    assert loaded.inputs.max() == loaded.vocabulary - 1 == 9999
    assert np.bincount(loaded.inputs.ravel()).argmax() == 0
    words = np.bincount(loaded.inputs[:25_000].ravel(), minlength=10_000)[2:]
    assert words.argmax() == 0  # 2 is the commonest word
    assert (words > 0).all()


def test_covtype_has_four_areas_and_is_standardised(real: Real) -> None:
    loaded = real("covtype")
    assert loaded.inputs.shape == (581_012, 54)
    assert loaded.inputs.dtype == np.float32
    assert np.bincount(loaded.targets).tolist() == [211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510]
    assert loaded.groups is not None
    assert np.bincount(loaded.groups).tolist() == [260_796, 29_884, 253_364, 36_968]
    assert len(loaded.group_names) == 4
    numeric = loaded.inputs[:, :10].astype(np.float64)
    assert np.allclose(numeric.mean(axis=0), loaded.mean[:10], rtol=1e-3)
    assert np.allclose(numeric.std(axis=0), loaded.std[:10], rtol=1e-3)
    assert loaded.mean[10:] == (0.0,) * 44
    assert loaded.std[10:] == (1.0,) * 44


def test_heart_disease_has_four_hospitals_and_missing_values(real: Real) -> None:
    loaded = real("heart-disease")
    assert loaded.group_names == ("cleveland", "hungarian", "switzerland", "va")
    assert loaded.groups is not None
    assert np.bincount(loaded.groups).tolist() == [303, 294, 123, 200]
    assert loaded.inputs.shape == (920, 13)
    assert np.bincount(loaded.targets).tolist() == [411, 509]
    assert loaded.has_missing
    assert np.isnan(loaded.inputs[:, 11]).sum() == 611
    assert (loaded.mean, loaded.std) == ((), ())  # the hospitals agree on them, by messages
    assert (loaded.inputs[loaded.groups == 2, 4] == 0).all()  # cholesterol as Switzerland publishes it
