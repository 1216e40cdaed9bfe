"""The exchange before round 1: what it agrees on, what it costs, and that no test row has a say in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import sparsona
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.description import describe_rows
from sparsona.data.schema.exchange import LIMIT, agree, apply, exchange, scaled_alone, schema_of
from sparsona.data.schema.limits import pack_doubles, pack_text, text_in, unpack_doubles
from sparsona.data.schema.moments import moments, pooled
from sparsona.data.schema.rows import Rows, joined, understand
from sparsona.data.schema.schema import Category, Number
from sparsona.data.schema.table import Table
from sparsona.errors import DataError, WireError
from sparsona.message import Message
from sparsona.prepare import prepare
from sparsona.wire import decode, encode

EAST = Table(
    "east",
    "east.csv",
    {
        "age": np.array([30.0, 50.0, np.nan, 900.0]),
        "sex": np.array(["m", "f", "m", "x"]),
        "label": np.array(["ill", "well", "ill", "dead"]),
    },
)
WEST = Table(
    "west",
    "west.csv",
    {
        "label": np.array(["well", "well", "odd"]),
        "sex": np.array(["f", "d", ""]),
        "age": np.array([40.0, 60.0, -5.0]),
    },
)
COLUMNS = Columns(categorical=("sex",))
EAST_TRAIN, WEST_TRAIN = np.arange(3), np.arange(2)


def owners(columns: Columns = COLUMNS) -> tuple[Rows, Rows]:
    return understand(EAST, columns), understand(WEST, columns)


def test_three_functions_agree_on_a_schema_over_the_wire() -> None:
    east, west = owners()
    sent = {"east": describe_rows(east, EAST_TRAIN), "west": describe_rows(west, WEST_TRAIN)}
    arrived = {name: decode(encode(message).data, LIMIT) for name, message in sent.items()}
    schema = schema_of(decode(encode(agree(arrived)).data, LIMIT))
    age, sex = schema.features
    assert isinstance(age, Number)
    assert age.mean == pytest.approx(45.0, abs=1e-12)  # 30, 50, 40, 60
    assert age.std == pytest.approx(np.sqrt(125), abs=1e-12)
    assert age.indicator  # the third row of east
    assert sex == Category("sex", ("d", "f", "m"))
    assert (schema.task, schema.classes) == ("classification", ("ill", "well"))
    inputs, targets = apply(schema, west)
    assert inputs[:, 0] == pytest.approx([-5 / 125**0.5, 15 / 125**0.5, -50 / 125**0.5])
    assert inputs[:, 1:].tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert targets.tolist() == [1, 1, -1]  # a class that nobody trains on is wrong whatever is said


def test_who_answers_first_has_no_influence() -> None:
    east, west = owners()
    a, b = describe_rows(east, EAST_TRAIN), describe_rows(west, WEST_TRAIN)
    assert encode(agree({"east": a, "west": b})).data == encode(agree({"west": b, "east": a})).data


def test_own_scaling_sends_no_number() -> None:
    east, west = owners(Columns(categorical=("sex",), scaling="own"))
    message = describe_rows(east, EAST_TRAIN)
    assert set(message) == {"head", "rows", "missing", "categories", "classes"}
    shared = schema_of(agree({"east": message, "west": describe_rows(west, WEST_TRAIN)}))
    alone = scaled_alone(shared, west, WEST_TRAIN)
    assert alone.features[0] == Number("age", 50.0, 10.0, True)
    assert shared.features[0] == Number("age", 0.0, 1.0, True)
    assert alone.features[1] == shared.features[1]


def test_no_scaling_leaves_numbers_as_they_are() -> None:
    east, west = owners(Columns(categorical=("sex",), scaling="none"))
    schema = schema_of(agree({"east": describe_rows(east, EAST_TRAIN), "west": describe_rows(west, WEST_TRAIN)}))
    assert schema.encode(west)[:, 0].tolist() == [40, 60, -5]


def test_a_number_to_predict_is_scaled_and_comes_back_in_its_units() -> None:
    y = np.array([100.5, 300.5, 1e6])
    table = Table("a", "a.csv", {"x": np.array([1.0, 2.5, 3.0]), "y": y})
    rows = understand(table, Columns())
    schema = schema_of(agree({"a": describe_rows(rows, np.arange(2))}))
    assert (schema.task, schema.center, schema.spread) == ("regression", (200.5,), (100.0,))
    assert schema.targets_of(rows).tolist() == y.astype(np.float32).tolist()


def test_several_targets_are_multilabel() -> None:
    columns = {"x": np.array([1.0, 2.5]), "u": np.array([0.0, 1.0]), "v": np.array([np.nan, 1.0])}
    rows = understand(Table("a", "a", columns), Columns(target=("u", "v"), task="multilabel"))
    schema = schema_of(agree({"a": describe_rows(rows, np.arange(2))}))
    assert (schema.task, schema.targets, schema.classes) == ("multilabel", ("u", "v"), ())
    assert np.array_equal(schema.targets_of(rows), np.array([[0, np.nan], [1, 1]]), equal_nan=True)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"age": np.zeros(2)},
            "client 'west' has no column 'sex', which client 'east' has; add it (empty cells where it is unknown), "
            "or pass --drop sex",
        ),
        (
            {"age": np.zeros(2), "sex": np.array([0.0, 1.0])},
            "client 'west', column 'sex' holds numbers, client 'east' holds text; write the categories alike",
        ),
    ],
)
def test_the_server_refuses_tables_that_cannot_be_one(change: dict[str, np.ndarray], line: str) -> None:
    """On a network no one has all files: the descriptions must do."""
    east, _ = owners()
    table = Table("west", "west.csv", {**change, "label": np.array(["ill", "well"])})
    west = understand(table, Columns(categorical=("sex",) if "sex" in change else ()))
    with pytest.raises(DataError) as caught:
        agree({"east": describe_rows(east, EAST_TRAIN), "west": describe_rows(west, np.arange(2))})
    assert str(caught.value) == line


def test_the_server_refuses_images_beside_arrays_of_another_type() -> None:
    """Of uint8 a model sees a 255th."""
    label = {"y": np.array([0, 1])}
    pixels = np.arange(32).reshape(2, 1, 4, 4)
    east, west = (
        understand(Table(name, name, label, block=block, target=("y",)), Columns())
        for name, block in (("east", pixels / 255), ("west", pixels.astype(np.uint8)))
    )
    with pytest.raises(DataError) as caught:
        agree({"east": describe_rows(east, np.arange(2)), "west": describe_rows(west, np.arange(2))})
    assert str(caught.value) == (
        "client 'west' has images of uint8, client 'east' has arrays of another type than uint8; "
        "give all the same type and the same axes"
    )


def test_a_hostile_description_is_refused() -> None:
    east, _ = owners()
    good = dict(describe_rows(east, EAST_TRAIN).parts)
    for part, value in (
        ("rows", 0),
        ("inputs.known", np.array([-1])),
        ("inputs.mean", pack_doubles([np.inf])),
        ("inputs.squares", pack_doubles([-1.0])),
        ("missing", np.zeros(2, np.uint8)),
        ("classes", pack_text([1, 2])),
        ("classes", pack_text(["a", 2])),
        ("categories", pack_text({"sex": "mf"})),
        ("head", np.array([123], np.uint8)),
        ("head", pack_text([])),
        ("head", pack_text({"columns": [["age", "number"]]})),
        (
            "head",
            pack_text(
                {**json.loads(text_in(Message(**good), "head")), "columns": [["age", "number"], ["age", "text"]]}
            ),
        ),
        (
            "head",
            pack_text(
                {**json.loads(text_in(Message(**good), "head")), "columns": [["age", "number"], ["sex", "numeric"]]}
            ),
        ),
        ("head", pack_text({**json.loads(text_in(Message(**good), "head")), "kind": "whole"})),
    ):
        with pytest.raises(WireError):
            agree({"east": Message(**{**good, part: value})})


def test_one_owner_cannot_make_the_vocabulary_of_all() -> None:
    def texts(largest: int) -> Message:
        table = Table("a", "", {"y": np.array([0, 1])}, block=np.array([[1, 2], [3, largest]]), target=("y",))
        return describe_rows(understand(table, Columns(inputs="tokens")), np.arange(2))

    agreed = agree({"few": texts(5), "many": texts(80_000)})
    assert schema_of(agreed).vocabulary == 80_001
    with pytest.raises(DataError, match="client 'evil' has a token 16000000"):
        agree({"few": texts(5), "many": texts(80_000), "evil": texts(16_000_000)})
    with pytest.raises(DataError, match="a token is 2147483647"):
        texts(2**31 - 1)


@given(arrays(np.float32, (7, 2), elements=st.floats(-1e6, 1e6, width=32)), st.integers(1, 6))
def test_moments_of_parts_are_those_of_the_whole(values: np.ndarray, cut: int) -> None:
    whole, both = moments(values), pooled([moments(values[:cut]), moments(values[cut:])])
    assert both.count.tolist() == whole.count.tolist()
    assert np.allclose(both.mean, whole.mean, rtol=1e-9, atol=1e-6)
    assert np.allclose(both.squares, whole.squares, rtol=1e-9, atol=1e-3)


def test_far_numbers_keep_their_deviation() -> None:
    """Sums of squares would have lost it: 1.7e9 squared has no digit left for 1."""
    values = (1.7e9 + 128.0 * np.arange(4)).astype(np.float32)[:, None]
    found = pooled([moments(values[:2]), moments(values[2:])])
    assert found.deviation()[0] == pytest.approx(128 * np.sqrt(1.25), rel=1e-9)


@given(st.recursive(st.text(max_size=5) | st.integers(-5, 5), st.lists), st.lists(st.floats(allow_nan=False)))
def test_texts_and_doubles_survive_the_wire(tree: object, values: list[float]) -> None:
    assert json.loads(text_in(Message(t=pack_text([tree])), "t")) == [tree]
    finite = [value for value in values if np.isfinite(value)]
    if finite:
        assert unpack_doubles(Message(d=pack_doubles(finite)), "d", len(finite)).tolist() == finite


def test_the_exchange_counts_the_bytes_of_every_frame() -> None:
    east, west = owners()
    rows = joined([east, west], ["east.csv", "west.csv"])
    train = {"east": np.arange(3), "west": np.arange(4, 6)}
    done = exchange(rows, train)
    up = sum(len(encode(describe_rows(rows, part)).data) for part in train.values())
    frame = encode(agree({name: describe_rows(rows, part) for name, part in train.items()}))
    assert (done.up.total, done.down.total) == (up, 2 * len(frame.data))
    late = exchange(rows, train, newcomers=("west",))
    assert late.up.total == len(encode(describe_rows(rows, train["east"])).data)
    assert late.schemas["west"].features[0] == Number("age", 40.0, 10.0, True)


# no test row has any influence


def write(folder: Path, wild: bool) -> str:
    """Three owners, whose last fifth of the rows is the test part; where `wild`, it holds nothing but nonsense."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    for owner in ("a", "b", "c"):
        lines = ["second,pulse,mood,label"]
        for second in range(50):
            pulse, mood = rng.normal(70, 9), rng.choice(["calm", "tense"])
            label = "up" if pulse + 5 * (mood == "tense") > 72 else "down"
            if wild and second >= 40:
                pulse, mood, label = (1e30, "", "never seen") if second % 2 else (-1e30, "strange", "down")
            cell = "" if wild and second == 45 else f"{pulse}"
            lines.append(f"{second},{cell},{mood},{label}")
        (folder / f"{owner}.csv").write_text("\n".join(lines) + "\n")
    return f"folder:{folder}"


@pytest.mark.parametrize("scaling", ["agreed", "own"])
@pytest.mark.parametrize("method", ["fedavg", "local"])
def test_no_test_row_has_any_influence(tmp_path: Path, scaling: str, method: str) -> None:
    settings: dict[str, Any] = {
        "rounds": 3, "scaling": scaling, "categorical": "mood", "split": {"by": "time:second", "validation": 0.0},
    }  # fmt: skip
    tame = sparsona.run(method, data=write(tmp_path / "tame", False), out=tmp_path / "r1", **settings)
    wild = sparsona.run(method, data=write(tmp_path / "wild", True), out=tmp_path / "r2", **settings)
    for client, model in tame.models.items():
        assert wild.models[client].card.schema == model.card.schema
        other = wild.models[client].model
        assert isinstance(other, np.ndarray)
        assert isinstance(model.model, np.ndarray)
        assert np.array_equal(other, model.model)
    assert wild.summary["digest"] == tame.summary["digest"]
    assert wild.summary["bytes"] == tame.summary["bytes"]
    scores = [result.summary["accuracy"]["pre"]["mean"] for result in (tame, wild)]
    assert scores[1] < scores[0], "half of the wild test rows have a class that no training row has"


def test_no_test_row_has_any_influence_where_rows_are_split_at_random() -> None:
    """The split itself looks at classes, so here only what is not a class goes wild."""
    rng = np.random.default_rng(0)
    clients = {k: (rng.normal(3, 2, (40, 3)), rng.integers(0, 2, 40)) for k in "ab"}
    tame = prepare({"method": "fedavg"}, data=clients)
    wild = {}
    for k, (x, y) in clients.items():
        split, start = tame.setup.federation.splits[k], 40 * (k == "b")
        mine = np.concatenate([split.test, split.validation]) - start
        changed = x.copy()
        changed[mine] = np.where(rng.random((len(mine), 3)) < 0.3, np.nan, 1e20)
        wild[k] = (changed, y)
    again = prepare({"method": "fedavg"}, data=wild)
    assert again.agreement == tame.agreement
    for k, split in tame.setup.federation.splits.items():
        assert np.array_equal(again.setup.federation.splits[k].train, split.train)
        assert np.array_equal(
            again.setup.federation.data.inputs[split.train], tame.setup.federation.data.inputs[split.train]
        )
    assert np.array_equal(again.setup.task.initial, tame.setup.task.initial)


def test_a_column_far_from_zero_keeps_its_differences() -> None:
    t = np.arange(40.0) ** 2
    columns = {"near": t, "far": t + 1.7e9, "constant": np.full(40, 0.1), "y": np.arange(40) % 2}
    rows = understand(Table("a", "", columns, target=("y",)), Columns(target=("y",)))
    made = exchange(rows, {"a": np.arange(40)}).schemas["a"].encode(rows)
    assert made[:, 0] == pytest.approx(made[:, 1], abs=1e-6)
    assert np.abs(made[:, 2]).max() < 1e-12, "the rounding of a constant is not blown up"
