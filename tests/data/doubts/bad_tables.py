"""Tables that can be read and are wrong, made of an honest one: 60 kinds, each a function that spoils it.

An honest table has four clients with six columns; `label` depends on all of them, and every client has its own mean.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Frames = dict[str, pd.DataFrame]
CLIENTS = ("north", "east", "south", "west")


def honest(seed: int = 0, rows: int = 120) -> Frames:
    """Patients of four wards that differ, with missing values and a category."""
    rng = np.random.default_rng(seed)
    found: Frames = {}
    for number, client in enumerate(CLIENTS):
        age = rng.normal(45 + 6 * number, 11, rows).clip(18, 96).round()
        weight = rng.normal(70 + 2 * number, 12, rows).clip(40, 150).round(1)
        pressure = (110 + age / 3 + rng.normal(0, 12, rows)).round()
        enzyme = rng.lognormal(3, 1, rows).round(2)
        sex = rng.choice(["f", "m"], rows)
        risk = 0.08 * (age - 55) + 0.03 * (weight - 73) + 0.04 * (pressure - 128) + 0.8 * (sex == "m") - 0.4
        label = np.where(rng.normal(0, 1, rows) < risk, "yes", "no")
        frame = pd.DataFrame({"age": age, "weight": weight, "pressure": pressure, "enzyme": enzyme, "sex": sex})
        frame.loc[rng.random(rows) < 0.08, "pressure"] = np.nan
        found[client] = frame.assign(visits=rng.poisson(3, rows), label=label)
    return found


def numeric(seed: int = 0) -> Frames:
    """The honest wards with a target that is a number."""
    rng = np.random.default_rng(seed)
    return {
        client: frame.assign(label=(frame["age"] * 0.7 + frame["weight"] + rng.normal(0, 6, len(frame))).round(2))
        for client, frame in honest(seed).items()
    }


@dataclass(frozen=True)
class Case:
    """A kind of bad table: how it is spoiled, the kind of doubt that must be told, and what a user passes for it."""

    name: str
    spoil: Callable[[Frames, np.random.Generator], Frames | None]
    kind: str
    """The file in `doubts` that finds it; "refused" where it is an error; "silent" where nothing is told."""
    regression: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def frames(self, seed: int = 0) -> Frames:
        """The bad tables."""
        frames = numeric(seed) if self.regression else honest(seed)
        return self.spoil(frames, np.random.default_rng(seed + 1)) or frames


def _set(client: str, column: str, rows: Sequence[int] | slice, value: Any) -> Callable[..., None]:
    def spoil(frames: Frames, rng: np.random.Generator) -> None:
        frame = frames[client].copy()
        places = list(range(len(frame)))[rows] if isinstance(rows, slice) else list(rows)
        frame[column] = frame[column].astype(object if isinstance(value, str) else float)
        frame.iloc[places, frame.columns.get_loc(column)] = value
        frames[client] = frame

    return spoil


def _scale(client: str, column: str, factor: float, shift: float = 0.0) -> Callable[..., None]:
    def spoil(frames: Frames, rng: np.random.Generator) -> None:
        frames[client] = frames[client].assign(**{column: frames[client][column] * factor + shift})

    return spoil


def _rename(client: str, column: str, names: dict[Any, Any]) -> Callable[..., None]:
    def spoil(frames: Frames, rng: np.random.Generator) -> None:
        frames[client] = frames[client].assign(**{column: frames[client][column].map(names)})

    return spoil


def _everywhere(made: Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]) -> Callable[..., Frames]:
    return lambda frames, rng: {client: made(frame, rng) for client, frame in frames.items()}


def _coded(frames: Frames, codes: Sequence[dict[str, Any]]) -> Frames:
    pairs = zip(frames.items(), codes, strict=True)
    return {client: frame.assign(label=frame["label"].map(code)) for (client, frame), code in pairs}


def _copied(frame: pd.DataFrame, count: int) -> pd.DataFrame:
    return pd.concat([frame, frame.iloc[:count]], ignore_index=True)


def _across(frames: Frames, rng: np.random.Generator) -> None:
    frames["east"] = pd.concat([frames["east"], frames["north"].iloc[:15]], ignore_index=True)


def _contradicting(frames: Frames, rng: np.random.Generator) -> None:
    extra = frames["east"].iloc[:12]
    other = extra.assign(label=extra["label"].map({"yes": "no", "no": "yes"}))
    frames["east"] = pd.concat([frames["east"], other], ignore_index=True)


def _patients(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return frame.assign(patient_id=np.repeat(rng.choice(9999, len(frame) // 3, replace=False), 3))


def _total(frames: Frames, rng: np.random.Generator) -> None:
    frame = frames["south"]
    total = {c: frame[c].sum() for c in ("age", "weight", "pressure", "enzyme", "visits")} | {"sex": "f", "label": "no"}
    frames["south"] = pd.concat([frame, pd.DataFrame([total])], ignore_index=True)


def _swap(frames: Frames, rng: np.random.Generator) -> None:
    frame = frames["west"].assign(weight=frames["west"]["weight"].clip(50, 95))
    frames["west"] = frame.rename(columns={"height": "weight", "weight": "height"})


def _with_height(frames: Frames, rng: np.random.Generator) -> Frames:
    found = {
        client: frame.assign(weight=frame["weight"].clip(50, 100), height=rng.normal(170, 9, len(frame)).round())
        for client, frame in frames.items()
    }
    _swap(found, rng)
    return found


def _temperature(frames: Frames, rng: np.random.Generator) -> Frames:
    found = {c: frame.assign(fever=rng.normal(37.2, 0.6, len(frame)).round(1)) for c, frame in frames.items()}
    found["east"] = found["east"].assign(fever=(found["east"]["fever"] * 1.8 + 32).round(1))
    return found


YES, TRUTH, ONE, TWO = (
    {"yes": "yes", "no": "no"},
    {"yes": "TRUE", "no": "FALSE"},
    {"yes": 1, "no": 0},
    {"yes": 2, "no": 1},
)
SEX = {"options": {"categorical": ("sex",)}}

CASES = (
    Case("a label of 1e9 once (number)", _set("east", "label", [7], 1e9), "far_values", regression=True),
    Case(
        "a label of 1e9 once (class)",
        lambda f, r: (_set("east", "label", [7], 10**9)(g := _coded(f, [ONE] * 4), r), g)[1],
        "few_of_a_class",
    ),
    Case(
        "a label of -999 in some rows (number)",
        _set("east", "label", slice(0, 6), -999.0),
        "missing_codes",
        regression=True,
    ),
    Case(
        "a label of -9 in some rows (class)",
        lambda f, r: (_set("east", "label", slice(0, 9), -9)(g := _coded(f, [ONE] * 4), r), g)[1],
        "missing_codes",
    ),
    Case("a label 'unknown' in some rows", _set("east", "label", slice(0, 9), "unknown"), "missing_codes"),
    Case("a slip in a label", _set("east", "label", [3], "yess"), "few_of_a_class"),
    Case("1e9 once in a feature", _set("south", "weight", [5], 1e9), "far_values"),
    Case("a decimal point lost in two rows", _set("south", "enzyme", [5, 9], 9.1e5), "far_values"),
    Case("a line of totals", _total, "far_values"),
    Case("-999 at one client", _set("west", "pressure", slice(0, 15), -999.0), "missing_codes"),
    Case(
        "-1 in a count, everywhere",
        _everywhere(lambda f, r: f.assign(age=f["age"].where(r.random(len(f)) > 0.1, -1))),
        "missing_codes",
    ),
    Case(
        "9999 everywhere",
        _everywhere(lambda f, r: f.assign(weight=f["weight"].where(r.random(len(f)) > 0.1, 9999))),
        "missing_codes",
    ),
    Case("999.9 at one client", _set("north", "weight", slice(0, 8), 999.9), "missing_codes"),
    Case(
        "0 for an unknown pressure",
        _everywhere(lambda f, r: f.assign(pressure=f["pressure"].where(r.random(len(f)) > 0.1, 0))),
        "missing_codes",
    ),
    Case(
        "-9 and -999 in one column",
        lambda f, r: (
            _set("west", "age", slice(0, 9), -999.0)(f, r),
            _set("west", "age", slice(20, 40), -9.0)(f, r),
            f,
        )[2],
        "missing_codes",
    ),
    Case("units x 1000 at one client", _scale("east", "weight", 1000), "units"),
    Case(
        "units / 100 at two clients",
        lambda f, r: (_scale("east", "pressure", 0.01)(f, r), _scale("west", "pressure", 0.01)(f, r), f)[2],
        "units",
    ),
    Case("a target in another unit at one client", _scale("south", "label", 453.592), "units", regression=True),
    Case("Fahrenheit at one client", _temperature, "units"),
    Case("two columns in each other's place at one client", _with_height, "swapped"),
    Case(
        "a copy of the target",
        _everywhere(lambda f, r: f.assign(outcome=(f["label"] == "yes") * 1)),
        "disguised_target",
    ),
    Case(
        "a code of the target, as text",
        _everywhere(lambda f, r: f.assign(ward=np.where(f["label"] == "yes", "icu", r.choice(["home", "gp"], len(f))))),
        "disguised_target",
        options={"categorical": ("sex", "ward")},
    ),
    Case(
        "the target with noise",
        _everywhere(lambda f, r: f.assign(score=(f["label"] == "yes") * 10 + r.normal(0, 1, len(f)))),
        "disguised_target",
    ),
    Case(
        "known only after the outcome",
        _everywhere(lambda f, r: f.assign(days=pd.Series(r.poisson(9, len(f)), f.index).where(f["label"] == "yes"))),
        "disguised_target",
    ),
    Case(
        "the target in another unit",
        _everywhere(lambda f, r: f.assign(pounds=f["label"] * 2.2046)),
        "disguised_target",
        regression=True,
    ),
    Case(
        "the logarithm of the target",
        _everywhere(lambda f, r: f.assign(log=np.log(f["label"]))),
        "disguised_target",
        regression=True,
    ),
    Case("a patient's rows on both sides, as a feature", _everywhere(_patients), "same_person"),
    Case(
        "a patient's rows on both sides, dropped",
        _everywhere(_patients),
        "same_person",
        options={"drop": ("patient_id",), "categorical": ("sex",)},
    ),
    Case("TRUE and FALSE here, yes and no there", lambda f, r: _coded(f, [YES, TRUTH, YES, YES]), "coding"),
    Case("y and n here, yes and no there", lambda f, r: _coded(f, [YES, YES, {"yes": "y", "no": "n"}, YES]), "coding"),
    Case("0 and 1 here, 1 and 2 there", lambda f, r: _coded(f, [ONE, TWO, ONE, ONE]), "coding"),
    Case("0 and 1 here, -1 and 1 there", lambda f, r: _coded(f, [ONE, {"yes": 1, "no": -1}, ONE, ONE]), "coding"),
    Case(
        "classes in another language",
        lambda f, r: _coded(f, [YES, YES, YES, {"yes": "krank", "no": "gesund"}]),
        "coding",
    ),
    Case("m and f here, male and female there", _rename("south", "sex", {"m": "male", "f": "female"}), "coding"),
    Case(
        "classes exchanged at one client",
        lambda f, r: _coded(f, [YES, YES, {"yes": "no", "no": "yes"}, YES]),
        "reversed_classes",
    ),
    Case(
        "97 zip codes as a category",
        _everywhere(lambda f, r: f.assign(zip=[f"{n:05d}" for n in 10115 + 7 * r.integers(0, 97, len(f))])),
        "many_values",
        options={"categorical": ("sex", "zip")},
    ),
    Case(
        "zip codes as a number",
        _everywhere(lambda f, r: f.assign(zip=10115 + 7 * r.integers(0, 97, len(f)))),
        "many_values",
    ),
    Case("copies within a client", lambda f, r: {**f, "north": _copied(f["north"], 30)}, "copies"),
    Case("a file appended to itself", lambda f, r: {**f, "north": _copied(f["north"], 120)}, "copies"),
    Case("the same rows at two clients", _across, "copies"),
    Case("equal rows with different classes", _contradicting, "copies"),
    Case("a column empty at one client", _set("east", "enzyme", slice(None), np.nan), "absent"),
    Case("a category empty at one client", _set("east", "sex", slice(None), ""), "absent"),
    Case("a column constant at one client", _set("east", "enzyme", slice(None), 0.0), "absent"),
    Case("a column empty everywhere", _everywhere(lambda f, r: f.assign(smoker=np.nan)), "absent"),
    Case(
        "a class that one row in twenty has",
        _everywhere(lambda f, r: f.assign(label=np.where(r.random(len(f)) < 0.05, "yes", "no"))),
        "rare_class",
    ),
    Case("a client with one class", _set("west", "label", slice(None), "no"), "few_of_a_class"),
    Case("a column that one client lacks", lambda f, r: {**f, "east": f["east"].drop(columns="enzyme")}, "refused"),
    Case("Yes and yes", _rename("east", "label", {"yes": "Yes", "no": "no"}), "refused"),
    Case("text among numbers", _set("east", "age", [4], "old"), "refused"),
    Case(
        "a number in every row that names it",
        _everywhere(lambda f, r: f.assign(case_id=r.choice(99999, len(f), replace=False))),
        "refused",
    ),
    Case("an infinite value", _set("east", "weight", [4], np.inf), "refused"),
    Case("no target in a row", _set("east", "label", [4], ""), "refused"),
    Case("all rows of one class", _everywhere(lambda f, r: f.assign(label="no")), "refused"),
    Case("a column of dates", _everywhere(lambda f, r: f.assign(seen="2026-03-01")), "refused"),
    Case("a small factor between units (kg, lb)", _scale("east", "weight", 2.2046), "silent"),
    Case("an age of 250 once", _set("east", "age", [3], 250), "silent"),
    Case("99 among ages", _set("east", "age", slice(0, 8), 99), "silent"),
    Case(
        "a tenth of the labels wrong",
        lambda f, r: {**f, "east": f["east"].assign(label=np.where(r.random(120) < 0.1, "no", f["east"]["label"]))},
        "silent",
    ),
    Case(
        "a shuffled column",
        lambda f, r: {**f, "east": f["east"].assign(weight=r.permutation(f["east"]["weight"]))},
        "silent",
    ),
    Case(
        "a patient without a name on both sides",
        _everywhere(lambda f, r: f.assign(**{c: np.repeat(f[c].to_numpy()[::3], 3) for c in ("age", "sex")})),
        "silent",
    ),
)


def write(folder: Path, frames: Frames) -> Path:
    """One csv file per client."""
    folder.mkdir(parents=True, exist_ok=True)
    for client, frame in frames.items():
        frame.to_csv(folder / f"{client}.csv", index=False)
    return folder


def disguised_files() -> dict[str, bytes]:
    """Files that are named csv and are something else, by the word that the error must hold."""
    text = honest()["north"].to_csv(index=False).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("north.csv", text)
    sheet = io.BytesIO()
    with zipfile.ZipFile(sheet, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return {
        "gzip": gzip.compress(text),
        "zip archive": packed.getvalue(),
        "Excel": sheet.getvalue(),
        "old Excel": bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512),
        "parquet": b"PAR1" + bytes(64) + b"PAR1",
        "PDF": b"%PDF-1.7\n" + text,
        "NUL": text[:200] + b"\0\0" + text[200:],
        "web page": b"<!DOCTYPE html><html><body>Sign in</body></html>",
        "JSON": b'[{"age": 40, "label": "yes"}]',
        "SQLite": b"SQLite format 3\0" + bytes(64),
    }
