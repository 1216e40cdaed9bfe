"""A folder of whole files on any storage that fsspec reaches."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sparsona.errors import InputError, StoreError, one_line

WHOLE = {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}
"""Storages that show an object only when it is complete. On all others a file is written aside and renamed."""
PART = ".part"
TIMEOUT = 60.0  # seconds that an SFTP server may be silent
DAV = "webdav+"  # beginning of the URL of a WebDAV server: webdav+https://...


def absolute_url(url: str) -> str:
    """Return the URL under which every process on this machine finds the mailbox.

    >>> absolute_url("s3://bucket/study")
    's3://bucket/study'
    """
    return url if "://" in url else str(Path(url).resolve())


class SharedFolder:
    """Files in folders below a URL. Every problem of the storage is a `StoreError`; the next call connects again.

    `url` is a folder, or a URL that fsspec knows: sftp://, s3://. For WebDAV it is webdav+https://.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: tuple[Any, str] | None = None
        self._protocol = url.partition("://")[0] if "://" in url else "file"

    def files(self, folder: str) -> dict[str, int]:
        """Return the names of the files in a folder, with their sizes in bytes; none if there is no folder."""
        with self._reached() as (system, root):
            system.invalidate_cache()
            try:
                found = system.ls(f"{root}{folder}", detail=True)
            except FileNotFoundError:
                return {}
            files = [one for one in found if one["type"] == "file" and not one["name"].endswith(PART)]
            # A WebDAV server names a file without a size if it is replaced meanwhile: the next look will find it.
            known = [one for one in files if one["size"] is not None]
            return {one["name"].rstrip("/").rpartition("/")[2]: int(one["size"]) for one in known}

    def read(self, path: str, size: int) -> bytes:
        """Return the first `size` bytes of a file, so that a growing file takes no more memory."""
        with self._reached() as (system, root):
            data: bytes = system.cat_file(f"{root}{path}", start=0, end=size)
            return data

    def put(self, path: str, data: bytes) -> None:
        """Write or replace a file that appears whole. Its folder is made if necessary."""
        with self._reached() as (system, root):
            try:
                self._put(system, f"{root}{path}", data)
            except FileNotFoundError:
                system.makedirs(f"{root}{path}".rpartition("/")[0], exist_ok=True)
                self._put(system, f"{root}{path}", data)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with self._reached() as (system, root), contextlib.suppress(FileNotFoundError):
            system.rm_file(f"{root}{path}")

    def _put(self, system: Any, path: str, data: bytes) -> None:
        if self._protocol in WHOLE:
            system.pipe_file(path, data)
            return
        aside = f"{path}.{secrets.token_hex(4)}{PART}"
        try:
            system.pipe_file(aside, data)
            if self._protocol.startswith(DAV):  # its MOVE does not replace a file
                with contextlib.suppress(FileNotFoundError):
                    system.rm_file(path)
            system.mv(aside, path)
        except Exception:
            with contextlib.suppress(Exception):
                system.rm_file(aside)
            raise

    @contextlib.contextmanager
    def _reached(self) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the beginning of each path in it."""
        try:
            if self._opened is None:
                self._opened = self._connect()
            yield self._opened
        except (FileNotFoundError, InputError):
            raise
        except Exception as error:  # noqa: BLE001  (each storage has errors of its own)
            self._opened = None
            raise StoreError(f"the mailbox is not reached ({type(error).__name__}: {one_line(error)[:300]})") from None

    def _connect(self) -> tuple[Any, str]:
        import fsspec

        fresh = {"skip_instance_cache": True}
        try:
            if self._protocol == "file":
                return fsspec.filesystem("file"), f"{Path(self._url.removeprefix('file://')).resolve()}/"
            if self._protocol.startswith(DAV):
                there = urlsplit(self._url.removeprefix(DAV))
                host = there.netloc.rpartition("@")[2]
                who = (unquote(there.username), unquote(there.password or "")) if there.username else None
                base = f"{there.scheme}://{host}{there.path}"
                return fsspec.filesystem("webdav", base_url=base, auth=who, **fresh), ""
            system, root = fsspec.url_to_fs(self._url, **fresh)
        except (ImportError, ValueError) as error:
            raise InputError(f"a mailbox at {self._protocol}:// cannot be used: {one_line(error)}") from None
        if self._protocol in ("sftp", "ssh"):
            system.ftp.get_channel().settimeout(TIMEOUT)
        return system, f"{root.rstrip('/')}/"
