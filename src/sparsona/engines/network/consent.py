"""The owner's rules, and its decisions about its rows, kept on its own disk: secret, split, accepted questions.

A question holds everything on which the statistics before round 1 depend: the rows, their split and the declared
columns. Only an accepted question is answered, and always with the same bytes. The organiser has no influence on the
split.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.base import is_file
from sparsona.chance import Chance
from sparsona.data import PATHS
from sparsona.data.dataset import ClientSplit
from sparsona.data.schema.columns import Columns
from sparsona.engines.network.setup import check_networkable
from sparsona.errors import InputError, RunError, one_line
from sparsona.experiment import Experiment, build, read
from sparsona.files import sync, write_atomically, write_new
from sparsona.method import ClientId
from sparsona.partition._split import Split
from sparsona.registry import split_spec
from sparsona.words import counted

LENGTH = 32  # bytes of the secret, and hexadecimal digits of a fingerprint


Told = tuple[dict[str, Any], bytes]  # a head and the description of the columns


@dataclass(frozen=True)
class Terms:
    """The owner's decisions before any proposal: the split of its rows, and the agreed columns.

    `columns` None: each question waits for consent. `seed` None: randomness comes from the owner's secret.
    """

    split: Split = field(default_factory=Split)
    columns: Columns | None = None
    seed: int | None = None

    @classmethod
    def of(cls, agreed: Path | None, seed: int | None = None, **own: Any) -> Terms:
        """Return the terms of an agreed experiment file. The owner's own settings of the split come first."""
        experiment = None if agreed is None else build(read(agreed), str(agreed))[0]
        split = Split() if experiment is None else experiment.split
        said = {key: value for key, value in own.items() if value is not None}
        return cls(replace(split, **said), None if experiment is None else experiment.columns, seed)

    def ignored(self, experiment: Experiment) -> list[str]:
        """Return the settings of a proposal that have no effect here because the owner has decided otherwise."""
        mine, theirs = asdict(self.split), asdict(experiment.split)
        found = [f"split.{key}={theirs[key]}" for key in mine if key != "fewest" and mine[key] != theirs[key]]
        return found if self.seed in (None, experiment.seed) else [*found, f"seed={experiment.seed}"]


@dataclass(frozen=True)
class Question:
    """Everything on which the statistics of a table depend. `rows` is the hash of the owner's file."""

    rows: str
    columns: Columns
    split: Split
    seed: int | None
    least_rows: int

    @property
    def fingerprint(self) -> str:
        return _hash(json.dumps(asdict(self), sort_keys=True).encode())

    @property
    def words(self) -> str:
        """Return the question in plain words, for the owner."""
        columns, usual = asdict(self.columns), asdict(Columns())
        changed = ", ".join(f"{key}={value}" for key, value in columns.items() if value != usual[key]) or "the defaults"
        return (
            "for each column of numbers the count, mean and sum of squares, the names of categories and classes, "
            f"with these columns: {changed}"
        )


class Waiting(Exception):
    """A question that the owner has not accepted yet."""


class Consent:
    """The owner's decisions in a folder that only the owner's account can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for part in ("accepted", "waiting", "answers"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.secret = _secret(folder / "secret")

    def chance(self, purpose: str, seed: int | None) -> Chance:
        """Return the owner's own randomness; with a declared seed, the randomness of a simulation."""
        if seed is not None:
            return Chance(seed)
        return Chance(0, hashlib.blake2b(purpose.encode(), key=self.secret).digest())

    def split(self, question: Question, client: ClientId, draw: Callable[[Chance], ClientSplit]) -> ClientSplit:
        """Return the split of the owner's rows: drawn once, and the same for every later question about these rows."""
        chance = self.chance("split", question.seed)
        if question.seed is not None:
            return draw(chance)
        file = self._folder / f"split.{_hash(json.dumps([question.rows, asdict(question.split)]).encode())}.json"
        if not file.exists():
            drawn = draw(chance)
            write_atomically(file, json.dumps([part.tolist() for part in (drawn.train, drawn.validation, drawn.test)]))
        parts = json.loads(file.read_bytes())
        return ClientSplit(client, *(np.array(part, np.int64) for part in parts))

    def check(self, question: Question, agreed: Columns | None) -> None:
        """Raise `Waiting` unless the owner has accepted this question.

        For the first rows, the agreed columns need no other consent. If the rows have changed, consent is needed: old
        and new statistics together reveal the rows that differ.
        """
        name = question.fingerprint
        if (self._folder / "accepted" / name).exists():
            return
        known = {file.read_text(encoding="ascii") for file in (self._folder / "accepted").iterdir()}
        if question.columns == agreed and known <= {question.rows}:
            write_atomically(self._folder / "accepted" / name, question.rows)
            return
        words = one_line(question.words)
        if not known <= {question.rows}:
            words += "; the rows are not those of the statistics told before: both together tell about what has changed"
        write_atomically(self._folder / "waiting" / name, f"{question.rows}\n{words}\n")
        raise Waiting(f"the server asks {words}. To tell it: sparsona node --accept {name} --state STATE")

    def accept(self, name: str) -> str:
        """Accept a waiting question; return it in words."""
        waiting = sorted(file.name for file in (self._folder / "waiting").iterdir())
        if name not in waiting:
            raise InputError(f"no question {name!r} waits for consent; waiting: {', '.join(waiting) or 'none'}")
        rows, _, words = (self._folder / "waiting" / name).read_text(encoding="utf-8").partition("\n")
        write_atomically(self._folder / "accepted" / name, rows)
        (self._folder / "waiting" / name).unlink()
        return words.strip()

    def answer(self, question: Question, make: Callable[[], Told]) -> Told:
        """Return the answer to an accepted question: made once, then the same bytes."""
        file = self._folder / "answers" / question.fingerprint
        if not file.exists():
            head, body = make()
            write_atomically(file, json.dumps(head).encode() + b"\n" + body)
        head_line, _, body = file.read_bytes().partition(b"\n")
        return json.loads(head_line), body

    def count(self, run: str, most: int) -> None:
        """Count a run, and refuse more than `most` runs over the life of this folder."""
        file = self._folder / "proposals.json"
        try:
            runs = json.loads(file.read_bytes()) if file.exists() else []
            known = run in runs
        except (ValueError, TypeError) as error:
            raise RunError(f"{file} is damaged ({error!r}): start the node with another --state") from None
        if not known and len(runs) >= most:
            raise InputError(f"the owner allows {most} runs in all, which are used up: ask for more --max-proposals")
        if not known:
            write_atomically(file, json.dumps([*runs, run]))


def rows_hash(file: Path) -> str:
    """Return the hash of an owner's file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:LENGTH]


def _secret(file: Path) -> bytes:
    """Return the owner's secret: random bytes that only the owner's account can read, made at the first start."""
    if not file.exists():
        partial = file.with_name(f"{file.name}.part")
        write_new(partial, secrets.token_bytes(LENGTH), 0o600)
        sync([partial])
        partial.replace(file)
        sync([file.parent])
    found = file.read_bytes()
    if len(found) != LENGTH:
        raise RunError(f"{file} is damaged: start the node with another --state")
    return found


@dataclass(frozen=True)
class Rules:
    """The limits that an owner sets. Empty `methods` allow every method."""

    methods: tuple[str, ...] = ()
    most_epochs: int = 20
    most_weights: int = 10**8
    scores: bool = True
    model: bool = False
    least_rows: int = 20
    most_rounds: int = 1000
    most_proposals: int = 100
    epsilon: float | None = None
    """The privacy budget over all runs; None: the owner has none, and a run may bring its own."""
    delta: float = 1e-6

    def check(self, experiment: Experiment) -> None:
        """Raise `InputError` if the owner does not allow this experiment, whatever the rows are."""
        check_networkable(experiment)
        if self.methods and experiment.method not in self.methods:
            raise InputError(f"the owner allows {', '.join(self.methods)}, not {experiment.method}")
        if experiment.rounds > self.most_rounds:
            raise InputError(f"the owner allows {counted(self.most_rounds, 'round')}, not {experiment.rounds}")
        if self.least_rows > 1:
            experiment.training.check_least(self.least_rows)
        if is_file(experiment.base):
            raise InputError("the base is named by its hash, not by a file of the owner")
        for option, value in experiment.options.items():
            if isinstance(value, str) and split_spec(value)[0] in PATHS:
                raise InputError(f"{option} = {value!r} names a file of the owner: only --data is read")

    def check_epochs(self, experiment: Experiment, examples: int) -> None:
        """Raise `InputError` if a round makes more passes over `examples` training rows than the owner allows."""
        passes = experiment.training.most_examples(examples) / max(1, examples)
        if passes > self.most_epochs:
            raise InputError(f"the owner allows {counted(self.most_epochs, 'epoch')} a round, not {passes:.1f}")


def in_words(experiment: Experiment) -> str:
    """Describe a proposal for the owner."""
    config = experiment.training
    return (
        f"{experiment.method} {experiment.options or ''} on model {experiment.model}, "
        f"{counted(experiment.rounds, 'round')} of {counted(config.epochs, 'epoch')}"
    )
