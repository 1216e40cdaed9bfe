"""What a study runs: its declaration, which is a file in the study's folder, and the execution of its runs.

Every run can be stopped after any round and continued. All results are computed from the runs' files, so an interrupted
study ends like an uninterrupted one.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from pydantic import TypeAdapter

from sparsona.errors import RunError
from sparsona.files import write_atomically
from sparsona.many import Loader, Planned, RunEnded, RunPlace, RunPlan, Watcher, run_many
from sparsona.rate import settled
from sparsona.report.progress import Bar
from sparsona.resume import check_resumable
from sparsona.runs.directory import RunDirectory

K = TypeVar("K")
Declared = TypeVar("Declared", bound="Declaration")


@dataclass(frozen=True)
class Declaration(ABC):
    """The runs of a folder, where it is kept as JSON."""

    file: ClassVar[str]
    what: ClassVar[str]

    @abstractmethod
    def joined(self, more: Self) -> Self:
        """Return this declaration, extended by another one."""

    @abstractmethod
    def to_check(self, there: Self, folder: Path) -> Sequence[RunPlan]:
        """Return the runs that must continue those of the declaration that was `there`."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the declaration of a folder."""
        try:
            return TypeAdapter(cls).validate_json((folder / cls.file).read_text(encoding="utf-8"))
        except OSError as error:
            why = f"is not the folder of a {cls.what} ({error.strerror})"
            raise RunError(f"{folder} {why}: give the --out of one") from None
        except ValueError as error:
            raise RunError(f"{folder / cls.file} is damaged ({error}): give another --out") from None

    def keep(self, folder: Path) -> None:
        """Write the declaration, which has been checked, into its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / self.file, json.dumps(asdict(self), indent=1) + "\n")


def declare(folder: Path, asked: Declared, resume: bool) -> Declared:
    """Return what the folder is to hold; with `resume`, the existing declaration, extended.

    Existing runs with other settings or data are refused. The folder is not changed before `keep`, so an invalid
    declaration leaves nothing behind.
    """
    if (folder / asked.file).exists():
        if not resume:
            raise RunError(
                f"{folder} already holds a {asked.what}: add --resume to continue it, or choose another --out"
            )
        there = asked.read(folder)
        asked = there.joined(asked)
        loader = Loader()
        for plan in asked.to_check(there, folder):
            directory = RunDirectory(plan.folder)
            if directory.experiment_file.exists():
                check_resumable(directory, settled(loader.prepare(plan.settings, plan.origin), directory))
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is not the folder of a {asked.what}: choose another --out")
    return asked


def make_runs(
    plans: Mapping[str, Callable[[], RunPlan | None]],
    place: AbstractContextManager[RunPlace],
    bar: Bar,
    said: Callable[[RunEnded], str],
) -> None:
    """Execute the runs by name; `said` returns the line of progress of a run that has ended."""

    def ended(run: RunEnded) -> None:
        if isinstance(run.error, RunError):
            raise run.error
        bar.step()
        bar.say(said(run))

    watcher = Watcher(round=lambda name, report: bar.step(bar.done, f"{name}, round {report.round}"), ended=ended)
    with place as opened:
        run_many([Planned(name, make) for name, make in plans.items()], opened, watcher)


def distinct_names(plain: Mapping[K, str]) -> dict[K, str]:
    """Return distinct names: if a plain name is taken, six digits of a hash follow it.

    The first keeps its plain name, so that an extended study finds its old runs.
    """
    names: dict[K, str] = {}
    taken: set[str] = set()
    for key, name in plain.items():
        names[key] = f"{name}-{sha256(repr(key).encode()).hexdigest()[:6]}" if name in taken else name
        taken.add(name)
    return names
