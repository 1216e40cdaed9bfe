"""Nets with a frozen part, and every method: what refuses is in the table of docs/pytorch.md, the rest runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sparsona
from sparsona.base import base_hash
from sparsona.errors import InputError
from sparsona.experiment import make_method
from sparsona.methods import METHODS
from sparsona.personal.layer import METHOD_ALONE
from sparsona.testing import tiny_setup
from sparsona.testing.tiny import run

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
NETS = ("head of one layer", "LoRA on a chain of layers", "peft on BERT")
TRAINED: Mapping[str, dict[str, Any]] = {
    NETS[0]: {"trainable": "head"},
    NETS[1]: {"lora": "rank=2"},
    NETS[2]: {"lora": "rank=2,targets=query|value"},
}


def numbers(clients: int = 2) -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return {f"w{i}": (rng.normal(size=(30, 5)).astype("float32"), rng.integers(0, 2, 30)) for i in range(clients)}


def texts(clients: int = 2) -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    lists = {f"w{i}": [rng.integers(1, 40, rng.integers(3, 8)).tolist() for _ in range(30)] for i in range(clients)}
    return {name: ({"input_ids": ids}, [sum(one) % 2 for one in ids]) for name, ids in lists.items()}


def net_of(kind: str) -> nn.Module:
    torch.manual_seed(1)
    if kind != NETS[2]:
        return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    pytest.importorskip("peft", reason="needs the extra `adapters`")
    transformers = pytest.importorskip("transformers", reason="needs the extra `adapters`")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    made: nn.Module = transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=40, num_labels=2, max_position_embeddings=16, **sizes)
    )
    return made


def refused() -> dict[tuple[str, str], str]:
    """The cells of the page's table that say "refused", by net and method."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| method | {NETS[0]}"))
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[start + 2 : start + 12]]
    return {
        (kind, method.strip("`")): cell
        for row in rows
        if len(row) == 1 + len(NETS)
        for kind, cell in zip(NETS, row[1:], strict=True)
        for method in row[0].split(", ")
        if cell.startswith("refused")
    }


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_trains_a_pretrained_net_or_refuses_it_in_one_line(kind: str, name: str) -> None:
    done, problem = None, "it runs"
    settings: dict[str, Any] = {"rounds": 2, "lr": 0.1, "training": {"weight_decay": 0.01, "batch": 10}}
    if kind != NETS[2]:
        settings["scaling"] = "none"
    try:
        done = sparsona.run(
            name, data=texts() if kind == NETS[2] else numbers(), model=net_of(kind), **TRAINED[kind], **settings
        )
    except InputError as error:
        done, problem = None, str(error)
    assert (done is None) == ((kind, name) in refused()), problem
    if done is None:
        assert "\n" not in problem
        return
    assert done.summary["base"] != ""
    one = done.models["w0"]
    if isinstance(one.model, np.ndarray):
        assert base_hash(one.module()) == done.summary["base"]


@pytest.mark.parametrize("name", METHODS.names())
def test_twenty_rounds_with_weight_decay_leave_the_base_as_it_is(name: str) -> None:
    method = make_method(name, {})
    before, config = tiny_setup(method, frozen=True), replace(tiny_setup(method).config, weight_decay=0.1)
    loop = run(method, clients=2, rounds=20, config=config, personal=METHOD_ALONE, frozen=True)
    assert base_hash(loop.setup.module) == base_hash(before.module) != ""
    assert loop.setup.task.layout.size == before.task.layout.size
