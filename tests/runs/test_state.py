from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save as save_tensors

from sparsona.errors import ContractError, RunError
from sparsona.message import Sparse
from sparsona.runs.state import digest, pack, unpack


@dataclass(frozen=True)
class Inner:
    name: str
    update: Sparse | None


@dataclass(frozen=True)
class Outer:
    models: dict[str, np.ndarray]
    inner: tuple[Inner, ...]
    round: int
    seen: frozenset[str]


def test_a_tree_of_dataclasses_survives() -> None:
    sparse = Sparse(9, np.array([1, 5]), np.array([-0.0, np.nan], np.float32))
    state = Outer(
        {"b": np.zeros(0, np.float32), "a": np.eye(2)}, (Inner("x", sparse), Inner("y", None)), 3, frozenset("z")
    )
    back = unpack(pack(state), Outer)
    assert pack(back) == pack(state)
    assert isinstance(back.inner[0].update, Sparse)
    assert back.inner[0].update.values.tobytes() == sparse.values.tobytes()
    assert back.models["a"].dtype == np.float64
    assert back.seen == {"z"}


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.int64, np.bool_, np.uint8, np.float64]),
        hnp.array_shapes(min_dims=0, min_side=0),
    ),
    st.floats(),
    st.integers(-(2**62), 2**62),
)
def test_arrays_and_numbers_survive_bit_for_bit(array: np.ndarray, real: float, whole: int) -> None:
    back = unpack(pack({"a": array, "r": real, "w": whole}), dict)
    assert back["a"].tobytes() == array.tobytes()
    assert (back["a"].shape, back["a"].dtype) == (array.shape, array.dtype)
    assert np.float64(back["r"]).tobytes() == np.float64(real).tobytes() or np.isnan(real)
    assert back["w"] == whole


def test_the_digest_does_not_depend_on_the_order_of_a_dict() -> None:
    assert digest({"a": 1, "b": np.ones(2)}) == digest({"b": np.ones(2), "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_what_cannot_be_state_is_named_with_its_place() -> None:
    with pytest.raises(ContractError, match=r"state\['f'\] is a function"):
        pack({"f": test_state_types})


def test_state_types() -> None:
    with pytest.raises(ContractError, match="annotations do not name"):
        unpack(pack(Inner("x", None)), dict)


@pytest.mark.parametrize("damage", [b"", b"abc", b"\x10\0\0\0\0\0\0\0{}", pack({"a": np.ones(9)})[:-3]])
def test_damage_is_one_clear_error(damage: bytes) -> None:
    with pytest.raises(RunError, match="damaged"):
        unpack(damage, dict)


@dataclass(frozen=True)
class Pair:
    one: np.ndarray
    other: np.ndarray


def test_an_array_that_occurs_several_times_is_written_once_and_comes_back_as_one() -> None:
    array = np.arange(10_000, dtype=np.float32)
    once, thrice = pack({"a": array}), pack({"a": array, "b": (array, array.copy())})
    assert len(thrice) < len(once) + 200
    back = unpack(thrice, dict)
    assert back["a"] is back["b"][0] is back["b"][1]
    assert back["a"].tobytes() == array.tobytes()


def test_the_bytes_depend_on_what_is_equal_not_on_what_is_the_same_object() -> None:
    array = np.arange(8.0)
    assert pack(Pair(array, array)) == pack(Pair(array, array.copy()))
    assert pack(Pair(array, array)) != pack(Pair(array, -array))


def test_arrays_that_only_look_alike_stay_apart() -> None:
    nought = np.zeros(4, np.float32)
    alike = (nought, -nought, nought.astype(np.int32), nought.reshape(2, 2), np.zeros(0, np.float32), nought[:2])
    back = unpack(pack({"x": alike}), dict)["x"]
    for one, other in zip(alike, back, strict=True):
        assert (one.tobytes(), one.dtype, one.shape) == (other.tobytes(), other.dtype, other.shape)
    assert len({id(array) for array in back}) == 6


def test_arrays_of_any_strides_are_compared_by_content() -> None:
    square = np.arange(16, dtype=np.int64).reshape(4, 4)
    back = unpack(pack({"x": (square.T, np.ascontiguousarray(square.T), square[:, ::-1])}), dict)["x"]
    assert back[0] is back[1]
    assert np.array_equal(back[2], square[:, ::-1])


@pytest.mark.parametrize(
    "state",
    [
        {"a": 1},
        Outer([], (), 3, frozenset()),  # type: ignore[arg-type]
        Outer({"a": 3}, (), 3, frozenset()),  # type: ignore[dict-item]
        Outer({}, ("x",), 3, frozenset()),  # type: ignore[arg-type]
        Outer({}, (), "3", frozenset()),  # type: ignore[arg-type]
        Outer({}, (), 3.5, frozenset()),  # type: ignore[arg-type]
        Outer({}, (), 3, ()),  # type: ignore[arg-type]
        Outer({}, (Inner("x", 3),), 3, frozenset()),  # type: ignore[arg-type]
    ],
)
def test_a_state_of_another_type_is_refused(state: object) -> None:
    with pytest.raises(RunError, match="run it again into another --out"):
        unpack(pack(state), Outer)


def test_a_state_of_any_depth_is_refused() -> None:
    tree = '{"dict":[["a",' * 50_000 + "1" + "]]}" * 50_000
    with pytest.raises(RunError, match="damaged"):
        unpack(bytes(save_tensors({}, metadata={"tree": tree})), dict)
