"""Samples of several inputs: packed into rows of bytes, taken apart before the net."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sparsona
from sparsona.data import from_python
from sparsona.data._arrays import by_name
from sparsona.data.fields import Unpack, fields_of, packed, unpacking, without_unpacking
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.schema import Schema, published_schema, told_schema
from sparsona.errors import DataError, InputError


class Bag(nn.Module):
    """The mean of the words' vectors; answers with an object that has logits."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 4)
        self.out = nn.Linear(4, 2)
        self.longest: list[int] = []

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        self.longest.append(input_ids.shape[1])
        mask = attention_mask[..., None].float()
        return SimpleNamespace(logits=self.out((self.words(input_ids) * mask).sum(1) / mask.sum(1)))


def texts(count: int = 30, longest: int = 9) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(longest)
    ids = [rng.integers(1, 50, length).tolist() for length in rng.integers(2, longest + 1, count)]
    return {"input_ids": ids}, np.array([sum(one) % 2 for one in ids])


def test_what_is_packed_comes_out_again() -> None:
    given = by_name(
        {"ids": [[1, 2, 3], [4]], "image": np.arange(8, dtype=np.uint8).reshape(2, 2, 2), "x": [[0.5], [1.5]]}
    )
    fields = fields_of([given], ["here"])
    rows = torch.from_numpy(packed(given, fields, "here"))
    args, kwargs = Unpack(fields)(nn.Identity(), (rows,), {})
    assert args == ()
    assert kwargs["ids"].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert kwargs["ids"].dtype == torch.int64
    assert kwargs["image"].tolist() == given["image"].tolist()
    assert kwargs["x"].tolist() == [[0.5], [1.5]]


def test_lists_are_cut_to_the_longest_of_a_batch() -> None:
    given = by_name({"input_ids": [[1, 2, 3], [4], [5, 6]]})
    fields = fields_of([given], ["here"])
    rows = torch.from_numpy(packed(given, fields, "here"))
    _, kwargs = Unpack(fields)(nn.Identity(), (rows[1:],), {})
    assert kwargs["input_ids"].tolist() == [[4, 0], [5, 6]]
    assert kwargs["attention_mask"].tolist() == [[1, 0], [1, 1]]


def test_inputs_by_place_are_arguments() -> None:
    given = by_name((np.zeros((2, 3), np.float32), np.ones((2, 1))))
    fields = fields_of([given], ["here"])
    args, kwargs = Unpack(fields)(nn.Identity(), (torch.from_numpy(packed(given, fields, "here")),), {})
    assert ([tuple(one.shape) for one in args], kwargs) == ([(2, 3), (2, 1)], {})


def test_a_net_of_two_inputs_and_logits_is_trained_saved_and_used(tmp_path: Path) -> None:
    data, net = {"a": texts(30, 9), "b": texts(30, 6)}, Bag()
    result = sparsona.run("fedavg", data=data, model=net, rounds=2, training={"batch": 4}, out=tmp_path / "run")
    x = data["a"][0]
    found = result.models["a"].predict(x)
    assert np.array_equal(sparsona.load(tmp_path / "run", model=net).models["a"].predict(x), found)
    module: Any = result.models["a"].module()
    module.longest.clear()
    own = [module(torch.tensor([ids]), torch.ones(1, len(ids))).logits.argmax().item() for ids in x["input_ids"]]
    assert own == found.tolist()
    net.load_state_dict(module.state_dict(), strict=True)


def test_batches_are_as_long_as_their_longest_text() -> None:
    data = from_python({"a": texts(30, 9), "b": texts(30, 3)}, columns=Columns())
    net = Bag()
    unpacking(net, data.fields)(torch.from_numpy(data.inputs[30:]))
    assert net.longest == [3]
    without_unpacking(net)
    net(torch.ones(2, 7, dtype=torch.long), torch.ones(2, 7))
    assert net.longest == [3, 7]


def test_a_torch_dataset_of_mappings() -> None:
    ids, labels = texts()
    samples: Any = [
        {"input_ids": torch.tensor(one), "labels": int(y)} for one, y in zip(ids["input_ids"], labels, strict=True)
    ]

    class Samples(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(samples)

        def __getitem__(self, place: int) -> Any:
            return samples[place]

    data = from_python({"a": Samples()}, columns=Columns())
    assert np.array_equal(data.inputs, from_python({"a": texts()}, columns=Columns()).inputs)


def test_a_loader_is_refused() -> None:
    with pytest.raises(DataError, match="its dataset"):
        from_python(torch.utils.data.DataLoader([1]), columns=Columns())  # type: ignore[arg-type]


def test_the_schema_of_a_model_file_keeps_the_fields() -> None:
    schema = published_schema(from_python({"a": texts()}, columns=Columns()))
    assert schema.fields
    assert told_schema(schema.to_json()) == schema
    assert "fields" not in Schema("regression", ("y",)).to_json()


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"input_ids": [[1], [2]], "more": [[1], [2]]}, "more"),
        ({"input_ids": [[1] * 99, [2]]}, "length 99"),
    ],
)
def test_other_inputs_than_the_models_are_refused(inputs: dict[str, Any], problem: str) -> None:
    fields = fields_of([by_name(texts()[0])], ["here"])
    with pytest.raises(DataError, match=problem):
        packed(by_name(inputs), fields, "the rows")


class Detached(nn.Linear):
    """Gives outputs that do not depend on its weights."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs).detach()


class Named(nn.Linear):
    """Gives no logits."""

    def forward(self, inputs: torch.Tensor) -> Any:
        return {"scores": super().forward(inputs)}


@pytest.mark.parametrize(
    ("net", "problem"),
    [(Detached(3, 2), "gradient"), (Named(3, 2), "logits"), (nn.Linear(3, 5), "one output per class")],
)
def test_a_net_that_cannot_be_trained_is_refused_before_training(net: nn.Module, problem: str) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype("float32"), np.arange(20) % 2
    with pytest.raises(InputError, match=problem):
        sparsona.run("fedavg", data={"a": rows}, model=net, rounds=1)
