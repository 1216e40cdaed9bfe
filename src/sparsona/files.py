"""Reading and writing files safely against crashes and hostile folders: no link is followed, no other file is touched.

The content of the files is decided in :mod:`sparsona.runs`.
"""

import errno
import hashlib
import json
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from sparsona.errors import DataError, InputError, RunError
from sparsona.system import free_memory, take_lock

SYNC_THREADS = 8
"""Number of files synced at a time: a journalling file system commits waiting files together."""

PART = r"(\.[0-9a-f]{8})?\.part"
"""Pattern of the end of a partial file's name."""


MOST_FILE = 2**40
"""Limit of our own files in bytes."""

PLAIN = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
"""Flags to open no link, wait for no pipe and translate no byte: Windows has only the last, POSIX the others."""

SYNCS_FOLDERS = hasattr(os, "O_DIRECTORY")
"""True if folders can be opened and synced. Windows cannot, and syncs only files opened for writing."""


def read_regular(path: Path) -> bytes:
    """Read a regular file; links, devices and pipes are refused, because they are not ours and may never end."""
    try:
        handle = os.open(path, os.O_RDONLY | PLAIN)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RunError(_not_plain(path)) from None
        raise
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise RunError(_not_plain(path))
        return file.read()


def read_outside(path: Path, most: int = MOST_FILE) -> bytes:
    """Read a file that the user names: links are followed; devices, pipes and files over `most` bytes are refused.

    Raises `InputError`. A pipe is opened without waiting for a writer, so no command hangs on one.
    """
    try:
        handle = os.open(path, os.O_RDONLY | (PLAIN & ~getattr(os, "O_NOFOLLOW", 0)))
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise InputError(f"{path} is not a regular file: give the path of a file")
            if found.st_size > min(most, free_memory()):
                raise InputError(f"{path} has {found.st_size} bytes, which do not fit: give a smaller file")
            return file.read(found.st_size + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from None


def json_of(data: str | bytes) -> Any:
    """Parse JSON from outside; raises `ValueError`, also if it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def checked_npz(data: IO[bytes], path: Path | str) -> None:
    """Refuse an .npz file with arrays that do not fit into memory or do not match their headers.

    Only headers are read. Raises `DataError` for too many bytes and `ValueError` for a damaged file.
    """
    needed = 0
    with zipfile.ZipFile(data) as archive:
        for member in archive.infolist():
            needed += member.file_size
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                if version not in read:
                    raise ValueError(f"{member.filename} is of an unknown version")
                shape, _, kind = read[version](file)
                claimed = math.prod(shape) * kind.itemsize
                if not kind.hasobject and claimed != member.file_size - file.tell():
                    raise ValueError(f"{member.filename} claims {claimed} bytes")
    check_memory(needed, f"{path} is too large", "write it in parts")


SIGNATURE = "# sha256 = "


def signed(text: str) -> str:
    """Append a comment with the text's hash, so that a flipped bit is found on reading.

    >>> unsigned(signed("rounds = 3\\n"), "a.toml")
    'rounds = 3\\n'
    """
    whole = unsigned(text, "the text")
    return f"{whole}{SIGNATURE}{hashlib.sha256(whole.encode()).hexdigest()}\n"


def unsigned(text: str, path: Path | str) -> str:
    """Return the text without its hash; raises `InputError` if the text was changed."""
    whole, sign, told = text.rpartition(SIGNATURE)
    if not sign:
        return text
    if hashlib.sha256(whole.encode()).hexdigest() != told.strip():
        raise InputError(
            f"{path} is not as it was written: undo the change, or remove its last line ({SIGNATURE}...) to keep it"
        )
    return whole


def alone(lock: Path, otherwise: str) -> ExitStack:
    """Take a lock file until the result is closed or the process ends; raise `InputError` if another process has it."""
    try:
        return take_lock(lock)
    except OSError:
        raise InputError(otherwise) from None


def check_memory(needed: float, problem: str, fix: str) -> None:
    """Refuse what takes more bytes than are free; the error begins with the `problem`."""
    if needed > (free := free_memory()):
        raise DataError(f"{problem}: it needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free; {fix}")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Refuse a path that leads to no regular file, since a device or a pipe may never end.

    Within this block, errors of the file system become one line with the fix.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"{path} is not a regular file: give the path of a file")
        yield
    except FileNotFoundError:
        raise DataError(f"there is no file {path}; check the path") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; make the file readable") from error


def write_new(path: Path, data: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a new file; an old one of this name is removed first, never written through.

    The data may not be on the disk yet: see :func:`sync`. A file of `mode` 0o600 only this account can ever read.
    """
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, mode)
    with named(path), os.fdopen(handle, "wb") as file:
        file.write(data)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let the error of a full disk name the file; the system's own names none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Write a file that appears with all of its content or not at all; it may not be on the disk yet: see :func:`sync`.

    The partial file has its own name (:data:`PART`), so several processes may write the same file at once.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        write_new(partial, data)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, data: str | bytes) -> None:
    """Replace a file so that it has its old or its new content, even after a power cut."""
    partial = path.with_name(path.name + ".part")
    write_new(partial, data.encode() if isinstance(data, str) else data)
    sync([partial])
    partial.replace(path)
    sync([path.parent])


def write_named(path: Path, data: str | bytes, what: str, ours: Callable[[bytes], bool]) -> None:
    """Write a file to a place that the user named: all of it, or nothing.

    An existing file is replaced only if it is empty or `ours` recognises its content, which `what` names ("a report").
    Links are followed; devices and pipes are written to.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.stat().st_size and not ours(read_outside(path)):
            raise InputError(f"{path} is there and is not {what} of sparsona: give another path, or remove it")
        write_whole(path.resolve(), content)
    except FileExistsError as error:
        raise InputError(f"cannot write {path}: {error.filename} is a file; give another path") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; give another path") from None


def sync(paths: Iterable[Path]) -> None:
    """Wait until these files and folders are on the disk; pass all at once, since many take hardly longer than one."""
    paths = list(paths)
    if len(paths) == 1:
        _sync(paths[0])
        return
    with ThreadPoolExecutor(SYNC_THREADS) as threads:
        list(threads.map(_sync, paths))


def _sync(path: Path) -> None:
    if not SYNCS_FOLDERS and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if SYNCS_FOLDERS else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync folders
            raise
    finally:
        os.close(handle)


def check_plain(folder: Path) -> None:
    """Refuse a folder with anything but plain files and folders; a missing folder passes.

    We write, truncate and remove files by name, so a name must not lead to a file elsewhere.
    """
    if folder.is_symlink():
        raise RunError(_not_plain(folder))
    if not folder.exists():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                check_plain(Path(entry.path))
            elif entry.is_symlink() or not entry.is_file(follow_symlinks=False):
                raise RunError(_not_plain(Path(entry.path)))


def _not_plain(path: Path) -> str:
    return f"{path} is a link or a device, which no run directory holds: remove it, or choose another --out"
