"""The default folders of runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path

import typer

from sparsona.cli.app import err


def stem(what: str, data: str, seed: int) -> str:
    """Return the name of a run's folder below runs/.

    >>> stem("fedavg", "folder:my/wards", 3)
    'fedavg-wards-3'
    """
    return f"{what}-{Path(data.replace(':', '-')).name}-{seed}"


def folder_for(name: str, resume: bool) -> Path:
    """Return the folder of a new run of this name, or of the last one to resume."""
    numbered = (Path("runs") / (name if number == 1 else f"{name}-{number}") for number in count(1))
    there = list(takewhile(Path.exists, numbered))
    new = f"{name}-{len(there) + 1}" if there else name
    return there[-1] if there and resume else Path("runs") / new


def runs_in(folder: Path) -> list[Path]:
    """Return a run directory itself, or the finished runs in a folder of runs."""
    inner = sorted(file.parent for file in folder.glob("*/summary.json"))
    return inner if inner and not (folder / "summary.json").exists() else [folder]


def label(folder: Path, among: list[Path]) -> str:
    """Return the folder's name, or as much of its path as is distinct."""
    alike = sum(other.resolve().name == folder.resolve().name for other in among) > 1
    return str(folder) if alike else folder.resolve().name


@contextmanager
def resumable(declared: Path, how: str) -> Iterator[None]:
    """After Ctrl-C in this block, print the command that continues, if the work is declared; exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        told = f"continue with {how}" if declared.exists() else "nothing was done"
        err.print(f"interrupted: {told}", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
