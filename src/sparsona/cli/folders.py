"""Where runs are put and found when nobody says where."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path

import typer

from sparsona.cli.app import err


def stem(what: str, data: str, seed: int) -> str:
    """The name of a run's folder below runs/.

    >>> stem("fedavg", "folder:my/wards", 3)
    'fedavg-wards-3'
    """
    return f"{what}-{Path(data.replace(':', '-')).name}-{seed}"


def _numbered(name: str) -> Iterator[Path]:
    return (Path("runs") / (name if number == 1 else f"{name}-{number}") for number in count(1))


def fresh(name: str) -> Path:
    """The first folder of this name that is not taken."""
    return next(path for path in _numbered(name) if not path.exists())


def folder_for(name: str, resume: bool) -> Path:
    """The folder of a new run of this name, or the last one, to go on with."""
    return latest(name) if resume else fresh(name)


def latest(name: str) -> Path:
    """The last folder of this name that is there, or the first one."""
    return (list(takewhile(Path.exists, _numbered(name))) or [Path("runs") / name])[-1]


def runs_in(folder: Path) -> list[Path]:
    """A run directory itself, or the finished runs in a folder of several."""
    inner = sorted(file.parent for file in folder.glob("*/summary.json"))
    return inner if inner and not (folder / "summary.json").exists() else [folder]


def label(folder: Path, among: list[Path]) -> str:
    """The folder's name, or as much of its path as tells it from the others."""
    alike = sum(other.resolve().name == folder.resolve().name for other in among) > 1
    return str(folder) if alike else folder.resolve().name


@contextmanager
def resumable(declared: Path, how: str) -> Iterator[None]:
    """After Ctrl-C in this block, say how to go on, if the file that declares the work is written; exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        told = f"continue with {how}" if declared.exists() else "nothing was done"
        err.print(f"interrupted: {told}", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
