"""What a training is asked for."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from sparsona.training.config import TrainConfig
from sparsona.training.job import Proximal, TrainJob


@pytest.mark.parametrize(
    ("config", "descent"),
    [
        (TrainConfig(), True),
        (TrainConfig(weight_decay=0.1), True),
        (TrainConfig(momentum=0.1), False),
        (TrainConfig(clip=1.0), False),
        (TrainConfig(optimizer="adam"), False),
    ],
)
def test_what_is_plain_gradient_descent(config: TrainConfig, descent: bool) -> None:
    start = np.zeros(3, np.float32)
    job = TrainJob(start, config, iter(()), 0.1, nullcontext())
    assert job.is_descent == descent
    assert replace(job, mask=np.ones(3, np.bool_)).is_descent == descent
    assert not replace(job, proximal=Proximal(start, 0.0)).is_descent
