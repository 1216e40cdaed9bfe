"""Downloads from the publisher: resumed, checked, and put in place atomically.

Why not pooch: it removes the partial file when the connection breaks, so a broken download starts again, and it knows
one address per file, so there are no mirrors.
"""

import errno
import hashlib
import http.client
import os
import re
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sparsona.data._store import File, Source, Store
from sparsona.errors import DataError

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes received, and the total (None: unknown)."""

ATTEMPTS = 4
"""Failed attempts in a row, without a new byte, after which a download is given up."""
PAUSE = 1.0
"""Seconds before the second attempt; twice as long before each further one."""
TIMEOUT = 30.0
CHUNK = 1 << 18


@dataclass(frozen=True)
class FetchedFile:
    """The outcome for one file; `note` says if it was there already and how it was checked."""

    name: str
    downloaded: bool
    note: str


@dataclass(frozen=True)
class Fetched:
    """The folder of downloads and the outcome per file; no files if there was nothing to download."""

    folder: Path
    files: tuple[FetchedFile, ...]


class _Failed(Exception):
    """A failed attempt; `final` if another one at this address is useless."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


def fetch(source: Source, root: Path | None = None, *, progress: Progress | None = None) -> Fetched:
    """Download the missing files of a data set.

    They go to the data set's folder below `root`; without `root`, to the first searched folder, unless another one has
    the data already. A broken download stays as ``NAME.part`` and is resumed by the next call.
    """
    store = Store.of(source, root)
    done = []
    for file in source.files:
        if store.has(file):
            done.append(FetchedFile(file.name, False, "already there"))
        elif not file.urls:
            raise DataError(f"data set {source.name!r} cannot be downloaded into {store.folder}: {store.advice}")
        else:
            done.append(FetchedFile(file.name, True, _fetch(file, store, progress or (lambda *_: None))))
    return Fetched(store.folder, tuple(done))


def _fetch(file: File, store: Store, progress: Progress) -> str:
    target = store.folder / file.name
    part = target.with_name(target.name + ".part")
    with _writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.size is None or _size(part) != file.size:
            _download(file, part, store, progress)
        note = _check(file, part)
        if file.members:
            _unpack(file, part, target.parent)
            part.unlink()
        else:
            os.replace(part, target)
    return note


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turn errors of a full or read-only disk into one line with the fix."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = "free some space and run the command again, it goes on from there"
            raise DataError(f"the disk is full at {folder}: {fix}") from error
        reason = error.strerror or error
        raise DataError(f"cannot write {folder}: {reason}; set SPARSONA_DATA to a folder of your own") from error


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _download(file: File, part: Path, store: Store, progress: Progress) -> None:
    """Try the addresses in turn until the file is complete.

    An attempt that brings new bytes resets the count of attempts, so a link that breaks every few megabytes succeeds.
    """
    urls, reasons, most, attempt = list(file.urls), dict[str, str](), _size(part), 0
    while urls and attempt < ATTEMPTS:
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        attempt += 1
        for url in tuple(urls):
            try:
                _attempt(url, file, part, progress)
                return
            except _Failed as failed:
                reasons[url] = str(failed)
                if failed.final:
                    urls.remove(url)
            if _size(part) > most:
                most, attempt = _size(part), 0
    told = " ".join("; ".join(f"{url}: {reason}" for url, reason in reasons.items()).split())
    kept = f"{_size(part)} bytes are kept and the command goes on from there" if _size(part) else "try it later"
    by_hand = f"or put the file into {part.parent} by hand"
    raise DataError(f"cannot download {file.name} of {store.source.name!r} ({told}): {kept}, {by_hand}")


def _attempt(url: str, file: File, part: Path, progress: Progress) -> None:
    """Request the missing bytes and append them to `part`."""
    here = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "sparsona", "Accept-Encoding": "identity"})
    if here:
        request.add_header("Range", f"bytes={here}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and here:
                if _range(error.headers.get("Content-Range", "")) == (None, here):
                    return  # all of it is here already
                part.unlink()  # more is here than there is: not this file
                raise _Failed("the part that was here did not fit and was removed") from error
            final = 400 <= error.code < 500 and error.code not in (408, 416, 425, 429)
            raise _Failed(f"{error.code} {error.reason}", final) from error
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(str(getattr(error, "reason", "") or error or type(error).__name__)) from error
    with response:
        length = response.headers.get("Content-Length")
        start, total = _range(response.headers.get("Content-Range", ""))
        if response.status != 206:  # a server without ranges sends everything
            here, start, total = 0, 0, int(length) if length else None
        if start != here:
            part.unlink(missing_ok=True)
            raise _Failed("the server sent another range than asked for")
        whole = file.size if total is None else total
        if (whole or here) - here > shutil.disk_usage(part.parent).free + (0 if here else _size(part)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with part.open("ab" if here else "wb") as out:
            progress(file.name, here, total)
            for chunk in _chunks(response):
                out.write(chunk)
                here += len(chunk)
                progress(file.name, here, total)
        if whole is not None and here < whole:
            raise _Failed(f"the connection broke off at {here} of {whole} bytes")


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body; network errors get a type of their own, unlike disk errors."""
    try:
        while chunk := response.read(CHUNK):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(str(error) or type(error).__name__) from error


def _range(header: str) -> tuple[int | None, int | None]:
    """Return the start of a Content-Range, and the total length.

    >>> _range("bytes 100-199/200"), _range("bytes */200"), _range("bytes 0-9/*")
    ((100, 200), (None, 200), (0, None))
    """
    match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", header.strip())
    if match is None:
        return None, None
    return int(match[1]) if match[1] else None, int(match[2]) if match[2] != "*" else None


def _check(file: File, part: Path) -> str:
    """Compare a file with the published checksum or size; remove it if it differs, else say what was compared."""
    kind, expected = ("sha256", file.sha256) if file.sha256 else ("md5", file.md5)
    if expected:
        with part.open("rb") as content:
            found = hashlib.file_digest(content, kind).hexdigest()
        note = f"{kind} is right"
    elif file.size is not None:
        found, expected, kind = str(_size(part)), str(file.size), "size"
        note = "size is right; no checksum is known, so the content was not checked"
    else:
        return "not checked: no checksum is known"
    if found != expected:
        part.unlink()
        raise DataError(
            f"{file.name} is not what the publisher lists ({kind} {found}, expected {expected}): it was "
            f"removed, run the command again; if that does not help, the publisher has changed the file"
        )
    return note


def _unpack(file: File, archive: Path, folder: Path) -> None:
    """Unpack only the expected members, each to its own place, so links, devices and outside paths are ignored."""
    wanted = set(file.members)
    try:
        for name, content in _members(file, archive):
            if name in wanted:
                _place(content, folder / name)
                wanted.remove(name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        archive.unlink()
        message = f"{file.name} is damaged ({error}): it was removed, run the command again"
        raise DataError(message.replace("\n", " ")) from error
    if wanted:
        archive.unlink()
        raise DataError(f"{file.name} lacks {min(wanted)}: it was removed; the publisher has changed the file")


def _members(file: File, archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Return the regular files of a zip or tar archive, by name."""
    if file.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for name in zipped.namelist():
                with zipped.open(name) as content:
                    yield name.removeprefix("./"), content
    else:
        with tarfile.open(archive, "r|*") as tar:
            for member in tar:
                stream = tar.extractfile(member) if member.isfile() else None
                if stream is not None:
                    yield member.name.removeprefix("./"), stream


def _place(content: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with part.open("wb") as out:
        shutil.copyfileobj(content, out, CHUNK)
    os.replace(part, target)
