"""A node's own data: rows of a table whose schema is still to be agreed on, or a share of a ready data set.

A share is one client's part of a public data set, with its split. `sparsona deploy local` writes it.
"""

import json
import string
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from sparsona.chance import Chance
from sparsona.data._csv import SEPARATORS
from sparsona.data._tables import agreed_dataset, dataset_of
from sparsona.data.dataset import ClientSplit, Dataset, Federation
from sparsona.data.doubts import Sites, doubts_of, listed
from sparsona.data.folder import READERS, read_npz, read_table
from sparsona.data.schema.bounds import Bounds, without_rare
from sparsona.data.schema.columns import UTF8, Columns, Format
from sparsona.data.schema.description import describe_rows
from sparsona.data.schema.exchange import Agreement, scaled_alone
from sparsona.data.schema.roles import Task, along_of
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import Category, Schema, class_names, published_schema
from sparsona.data.schema.table import Tables
from sparsona.engines.network.consent import Consent, Question, rows_hash
from sparsona.errors import DataError, InputError
from sparsona.experiment import explain
from sparsona.message import Message
from sparsona.method import ClientId
from sparsona.partition._split import federate
from sparsona.runs.names import file_stem

SHARE = ".share.npz"
ENCODINGS = (UTF8, "utf-16", "iso8859-1")
HEAD = 2**16  # bytes at the beginning of a file that are searched for its separator
META = ("name", "classes", "mean", "std", "class_names", "model", "vocabulary")


@dataclass(frozen=True)
class OwnData:
    """One client's samples and their split."""

    client: ClientId
    data: Dataset
    split: ClientSplit

    @property
    def sizes(self) -> tuple[int, int, int]:
        return len(self.split.train), len(self.split.validation), len(self.split.test)

    def description(self) -> Message | None:
        """Return the description of the training rows that is sent before round 1; None for a share."""
        return None if self.data.rows is None else describe_rows(self.data.rows, self.split.train)

    def doubts(self, question: Question) -> list[str]:
        """Return probable mistakes in the owner's table, for its log only: they may name a value of a row."""
        rows = self.data.rows
        if rows is None:
            return []
        guessed: Task = "classification" if rows.tells_classes else "regression"
        task = "multilabel" if rows.task == "multilabel" or len(rows.targets) > 1 else guessed
        places = dict.fromkeys([self.client], self.data.places[0] if self.data.places else "the table")
        return listed(doubts_of(Sites(rows, {self.client: self.split}, task, places, question.split.by)))

    def published(self) -> Schema | None:
        """Return the schema of a share; None for a table, whose schema is to be agreed on."""
        return published_schema(self.data) if self.data.rows is None else None

    def prepared(self, agreed: Schema) -> tuple[Schema, Federation]:
        """Return this client's schema, and its samples in the form of model inputs."""
        splits = {self.client: self.split}
        if self.data.rows is None:
            return agreed, Federation(self.data, splits)
        check_fits(agreed, self.data.rows.take(self.split.train))
        mine = scaled_alone(agreed, self.data.rows, self.split.train)
        return mine, Federation(agreed_dataset(self.data, splits, Agreement({self.client: mine})), splits)


def check_fits(agreed: Schema, own: Rows) -> None:
    """Raise `DataError` if a schema from the network does not fit these training rows.

    Declared names count as held: a refusal must not tell which of them the rows have.
    """
    if (agreed.inputs, agreed.targets) != (own.inputs, own.targets):
        raise DataError(f"the agreed inputs and target are {agreed.inputs}, {agreed.targets}, not the owner's")
    if set(agreed.columns) != set(own.order) or set(agreed.categorical) != own.categories.keys():
        raise DataError(f"the agreed columns are {', '.join(agreed.columns)}, the owner's {', '.join(own.order)}")
    if own.block is not None and agreed.shape != own.block.shape[1:]:
        raise DataError(f"the agreed shape of a sample is {agreed.shape}, the owner's {own.block.shape[1:]}")
    declared = dict(Bounds.of(own.bounds).names)
    held = {column: {*values.tolist(), *declared.get(column, ())} for column, values in own.categories.items()}
    known = {feature.column: {*feature.values, ""} for feature in agreed.features if isinstance(feature, Category)}
    if agreed.classes:
        held["the target"], known["the target"] = {*class_names(own).tolist(), *own.classes}, set(agreed.classes)
    for column, values in held.items():
        lacking = values - known[column]
        if lacking:
            raise DataError(f"the agreed values of {column} lack {min(lacking)!r}, which the owner has")


def own_file(path: Path, client: ClientId) -> Path:
    """Return `path`, or the file in that folder with the client's name, written as in a run directory."""
    if not path.is_dir():
        return path
    called = dict.fromkeys((client, file_stem(client)))
    names = [f"{name}{ending}" for name in called for ending in (SHARE, *sorted(READERS))]
    there = {f"{file.stem}{file.suffix.lower()}": file for file in path.iterdir() if file.is_file()}
    found = [there[name] for name in names if name in there]
    if len(found) != 1:
        raise DataError(f"{path} holds {len(found)} files of {client!r}, expected one of {', '.join(names)}")
    return found[0]


@dataclass(frozen=True)
class OwnFormat:
    """The format of an owner's csv file if it differs from the experiment; None: as in the experiment.

    >>> OwnFormat(separator="tab").applied(Columns(target=("ill",))).separator
    '\\t'
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    missing: str | None = None
    bounds: str | None = None

    def applied(self, columns: Columns) -> Columns:
        """Return the experiment's columns with this owner's format."""
        said = {key: value for key, value in asdict(self).items() if value is not None}
        try:
            own = TypeAdapter(Columns).validate_python(said)
        except ValidationError as error:
            raise InputError(f"--{explain(error)}") from None
        return replace(columns, **{key: getattr(own, key) for key in said})


AS_AGREED = OwnFormat()


def load_table(file: Path, client: ClientId, question: Question, consent: Consent) -> OwnData:
    """Return a client's table with the owner's split; with a declared seed, the split of a simulation."""
    split, along = question.split, along_of(question.split.by)
    tables = Tables(file.stem, (replace(read_table(file, client), owner=client),), owned=True)
    try:
        data = dataset_of(tables, question.columns, along)
    except DataError as error:  # where the node's own options can solve it, it says so: other owners change nothing
        if _names_an_option(error):
            raise DataError(f"{error}; sparsona node has these options, too, for this file alone") from None
        raise

    def draw(chance: Chance) -> ClientSplit:
        shares = {"test": split.test, "validation": split.validation}
        dealt = federate(data, "groups", 0, chance, use=split.use, along=along, repeat=split.repeat, **shares)
        return dealt.splits[client]

    drawn = consent.split(question, client, draw)
    assert data.rows is not None
    if max(drawn.train.max(), drawn.test.max()) >= len(data.rows) or rows_hash(file) != question.rows:
        raise DataError(f"{file} has other rows than when it was split: give the same file and the same --separator")
    return OwnData(client, replace(data, rows=without_rare(data.rows, [drawn], question.least_rows)), drawn)


def _names_an_option(error: DataError) -> bool:
    """True if a problem may be due to the format of a file, not to its content."""
    return any(f"--{option.name}" in str(error) for option in fields(OwnFormat))


def check_own(path: Path, client: ClientId, written: OwnFormat = AS_AGREED) -> None:
    """Raise `DataError` for a client's file that no experiment could use, before there is an experiment.

    The meaning of the columns is not known yet, and the csv format only as far as the owner gives it. So it is enough
    that the file can be read in one of the usual formats.
    """
    file = own_file(path, client)
    if file.name.endswith(SHARE):
        read_share(file, client)
        return
    table = read_table(file, client)
    if table.file is None:
        return
    problems: list[DataError] = []
    for form in _formats(file, written):
        try:
            table.file(form, False)
        except DataError as error:
            problems.append(error)
        else:
            return
    raise next((error for error in problems if not _names_an_option(error)), problems[0])


def _formats(file: Path, written: OwnFormat) -> Iterator[Format]:
    """Yield possible formats of a csv file: first the owner's own, then the usual ones by frequency."""
    said = written.applied(Columns()).format
    yield said
    try:
        with file.open("rb") as opened:
            first = opened.read(HEAD).strip().partition(b"\n")[0].decode("latin-1")
    except OSError:
        return
    rare = set(first) & set(string.punctuation + " ") - {'"'}
    likely = [sign for sign in SEPARATORS if sign in first] or sorted(rare)
    separators = likely if written.separator is None else [said.separator]
    encodings = ENCODINGS if written.encoding is None else (said.encoding,)
    usual = (replace(said, separator=sign, encoding=encoding) for encoding, sign in product(encodings, separators))
    yield from (form for form in usual if form != said)


def write_share(path: Path, federation: Federation, client: ClientId) -> None:
    """Write only this client's samples of a ready data set."""
    data, split = federation.data, federation.splits[client]
    for what, values in (("inputs", data.inputs), ("targets", data.targets)):
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise DataError(
                f"the {what} of {data.name} have missing values and cannot be divided among clients: use folder:PATH"
            )
    mine = np.concatenate([split.train, split.validation, split.test])
    meta = {key: getattr(data, key) for key in META}
    sizes = np.array([len(split.train), len(split.validation), len(split.test)])
    partial = path.with_name(f"{path.name}.part")
    with partial.open("wb") as file:
        np.savez_compressed(
            file,
            inputs=data.inputs[mine],
            targets=data.targets[mine],
            sizes=sizes,
            meta=np.frombuffer(json.dumps(meta).encode(), np.uint8),
        )
    partial.replace(path)


def read_share(path: Path, client: ClientId) -> OwnData:
    held = read_npz(path)
    try:
        meta = json.loads(held["meta"].tobytes().decode())
        given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in meta.items()}
        data = Dataset(inputs=held["inputs"], targets=held["targets"], **given)
        train, validation, test = (int(size) for size in held["sizes"])
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path} is no share of a data set ({error!r}): let sparsona deploy local write it") from None
    at = np.arange(len(data))
    cuts = at[:train], at[train : train + validation], at[train + validation :]
    if len(cuts[2]) != test:
        raise DataError(f"{path} is damaged: {len(data)} samples for {train}, {validation} and {test}")
    return OwnData(client, data, ClientSplit(client, *cuts))
