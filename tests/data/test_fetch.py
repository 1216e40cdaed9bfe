"""Downloads, against a server on this machine that can do all the things that servers do."""

from __future__ import annotations

import errno
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsona.data import File, Source, Store, _fetch, fetch
from sparsona.data.dataset import Dataset
from sparsona.errors import DataError

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """What the server offers, how it misbehaves, and what it was asked."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    lengths: bool = True
    cuts: list[int] = field(default_factory=list)
    """After so many bytes the next answers break off."""
    codes: list[int] = field(default_factory=list)
    """Errors that the next requests get."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append((self.path, wanted))
            content = state.files.get(self.path)
            if state.codes:
                self.send_error(state.codes.pop(0))
            elif content is None:
                self.send_error(404)
            else:
                self.answer(content, int(wanted[6:-1]) if wanted and state.ranges else None)

        def answer(self, content: bytes, start: int | None) -> None:
            if start is not None and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            body = content[start or 0 :]
            self.send_response(200 if start is None else 206)
            if start is not None:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if state.lengths:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.cuts.pop(0)] if state.cuts else body)

        def log_message(self, *_: Any) -> None:
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.address = f"http://127.0.0.1:{http.server_address[1]}"
    state.files["/toy.bin"] = CONTENT
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fetch, "PAUSE", 0.0)


def load(store: Store) -> Dataset:
    raise NotImplementedError


def toy(server: Server, **changes: Any) -> Source:
    given: dict[str, Any] = {
        "name": "toy.bin",
        "urls": (f"{server.address}/toy.bin",),
        "sha256": SHA256,
        "size": len(CONTENT),
    }
    return Source("test-fetch", load, "a toy", "none", "http://toy", (File(**(given | changes)),))


def part_of(root: Path) -> Path:
    return root / "test-fetch" / "toy.bin.part"


def target_of(root: Path) -> Path:
    return root / "test-fetch" / "toy.bin"


def test_a_download_is_checked_and_reported(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    result = fetch(toy(server), tmp_path, progress=lambda *told: seen.append(told))
    assert target_of(tmp_path).read_bytes() == CONTENT
    assert not part_of(tmp_path).exists()
    assert seen[0] == ("toy.bin", 0, len(CONTENT))
    assert seen[-1] == ("toy.bin", len(CONTENT), len(CONTENT))
    assert [here for _, here, _ in seen] == sorted(here for _, here, _ in seen)
    assert result.folder == tmp_path / "test-fetch"
    assert [(f.name, f.downloaded, f.note) for f in result.files] == [("toy.bin", True, "sha256 is right")]


def test_what_is_there_is_not_downloaded_again(server: Server, tmp_path: Path) -> None:
    fetch(toy(server), tmp_path)
    result = fetch(toy(server), tmp_path)
    assert len(server.asked) == 1
    assert [(f.downloaded, f.note) for f in result.files] == [(False, "already there")]


def test_a_connection_that_breaks_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cuts = [100_000, 50_000]
    fetch(toy(server), tmp_path)
    assert target_of(tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_link_that_breaks_often_still_gets_there(server: Server, tmp_path: Path) -> None:
    server.cuts = [30_000] * 9
    fetch(toy(server), tmp_path)
    assert target_of(tmp_path).read_bytes() == CONTENT


def test_the_next_call_resumes(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fetch, "ATTEMPTS", 1)
    server.cuts = [100_000]
    source = toy(server)

    class Dead(Exception):
        """As if the process were killed."""

    def die(name: str, here: int, total: int | None) -> None:
        if here >= 100_000:
            raise Dead

    with pytest.raises(Dead):
        fetch(source, tmp_path, progress=die)
    assert part_of(tmp_path).stat().st_size == 100_000
    seen: list[int] = []
    fetch(source, tmp_path, progress=lambda _, here, __: seen.append(here))
    assert seen[0] == 100_000
    assert server.asked[-1] == ("/toy.bin", "bytes=100000-")
    assert target_of(tmp_path).read_bytes() == CONTENT


def test_a_server_without_ranges_begins_anew(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts = [100_000]
    fetch(toy(server), tmp_path)
    assert target_of(tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == ("/toy.bin", "bytes=100000-")


def test_a_server_without_ranges_that_always_breaks_is_given_up(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts = [100_000] * 99
    with pytest.raises(DataError, match=r"broke off at 100000 of 300000 bytes\): 100000 bytes are kept"):
        fetch(toy(server), tmp_path)
    assert len(server.asked) == 1 + _fetch.ATTEMPTS


def test_a_break_is_noticed_without_a_length(server: Server, tmp_path: Path) -> None:
    server.lengths = False
    server.cuts = [100_000]
    fetch(toy(server), tmp_path)
    assert target_of(tmp_path).read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_taken(server: Server, tmp_path: Path) -> None:
    part_of(tmp_path).parent.mkdir()
    part_of(tmp_path).write_bytes(CONTENT)
    fetch(toy(server), tmp_path)
    assert server.asked == []
    assert target_of(tmp_path).read_bytes() == CONTENT
    target_of(tmp_path).rename(part_of(tmp_path))
    fetch(toy(server, size=None), tmp_path)  # not known to be whole: the server says 416
    assert server.asked == [("/toy.bin", "bytes=300000-")]
    assert target_of(tmp_path).read_bytes() == CONTENT


def test_a_part_that_is_longer_than_the_file_begins_anew(server: Server, tmp_path: Path) -> None:
    part_of(tmp_path).parent.mkdir()
    part_of(tmp_path).write_bytes(CONTENT + b"more")
    fetch(toy(server), tmp_path)
    assert target_of(tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_wrong_checksum_removes_the_part_and_says_so(server: Server, tmp_path: Path, kind: str) -> None:
    wrong = {"sha256": "", "md5": "", kind: "0" * 32}
    with pytest.raises(DataError, match=rf"toy.bin is not what the publisher lists \({kind}.*it was removed"):
        fetch(toy(server, **wrong), tmp_path)
    assert not part_of(tmp_path).exists()
    assert not target_of(tmp_path).exists()


def test_a_missing_checksum_is_said(server: Server, tmp_path: Path) -> None:
    result = fetch(toy(server, sha256="", size=None), tmp_path)
    assert result.files[0].note == "not checked: no checksum is known"
    target_of(tmp_path).unlink()
    result = fetch(toy(server, sha256=""), tmp_path)
    assert "no checksum is known" in result.files[0].note
    target_of(tmp_path).unlink()
    with pytest.raises(DataError, match="size 300000, expected 299999"):
        fetch(toy(server, sha256="", size=299_999), tmp_path)


def test_a_404_is_told_at_once(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot download toy.bin of 'test-fetch' .*404 Not Found") as caught:
        fetch(toy(server, urls=(f"{server.address}/gone",)), tmp_path)
    assert len(server.asked) == 1
    assert "by hand" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_second_address_helps(server: Server, tmp_path: Path) -> None:
    fetch(toy(server, urls=(f"{server.address}/gone", f"{server.address}/toy.bin")), tmp_path)
    assert target_of(tmp_path).read_bytes() == CONTENT


def test_a_server_in_trouble_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.codes = [503, 429]
    fetch(toy(server), tmp_path)
    assert len(server.asked) == 3
    server.codes = [500] * 99
    target_of(tmp_path).unlink()
    with pytest.raises(DataError, match="500 Internal Server Error"):
        fetch(toy(server), tmp_path)


def test_no_network_is_told(tmp_path: Path, server: Server) -> None:
    with pytest.raises(DataError, match=r"Connection refused|cannot download"):
        fetch(toy(server, urls=("http://127.0.0.1:9/toy.bin",)), tmp_path)


def test_a_full_disk_is_told_before_it_is_full(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(DataError, match=r"the disk is full at .*free some space"):
        fetch(toy(server), tmp_path)


def test_a_disk_that_fills_up_keeps_the_part(server: Server, tmp_path: Path) -> None:
    def fill(name: str, here: int, total: int | None) -> None:
        if here:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="the disk is full"):
        fetch(toy(server), tmp_path, progress=fill)
    assert part_of(tmp_path).stat().st_size > 0


def test_a_place_that_cannot_be_written_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "test-fetch").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write .*set SPARSONA_DATA"):
        fetch(toy(server), tmp_path)


def tar_of(members: dict[str, bytes | None]) -> bytes:
    """A tar.gz; a member without content is a link out of the folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            info.size = len(content or b"")
            archive.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def archived(server: Server, content: bytes, name: str = "toy.tar.gz") -> Source:
    server.files[f"/{name}"] = content
    file = File(
        name,
        (f"{server.address}/{name}",),
        md5=hashlib.md5(content).hexdigest(),
        size=len(content),
        members=("sub/a.bin", "sub/b.bin"),
    )
    return Source("test-fetch", load, "a toy", "none", "http://toy", (file,))


@pytest.mark.parametrize("name", ["toy.tar.gz", "toy.zip"])
def test_only_the_expected_members_are_unpacked(server: Server, tmp_path: Path, name: str) -> None:
    members = {"sub/a.bin": b"a", "../evil": b"!", "/tmp/evil": b"!", "sub/other": b"!", "sub/b.bin": b"b"}
    content = zip_of(members) if name.endswith("zip") else tar_of({**members, "sub/link": None})
    source = archived(server, content, name)
    fetch(source, tmp_path)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["test-fetch/sub/a.bin", "test-fetch/sub/b.bin"]
    assert (tmp_path / "test-fetch" / "sub" / "b.bin").read_bytes() == b"b"
    assert not fetch(source, tmp_path).files[0].downloaded
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(tar_of({"sub/a.bin": b"a"}), "lacks sub/b.bin", id="a member is missing"),
        pytest.param(tar_of({"sub/a.bin": b"a", "sub/b.bin": None}), "lacks sub/b.bin", id="a member is a link"),
        pytest.param(b"no archive at all", "toy.tar.gz is damaged", id="no archive"),
    ],
)
def test_an_archive_that_is_not_as_expected_is_told(
    server: Server, tmp_path: Path, content: bytes, problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        fetch(archived(server, content), tmp_path)
    assert not (tmp_path / "test-fetch" / "toy.tar.gz.part").exists()


def test_what_cannot_be_downloaded_says_how_to_get_it(tmp_path: Path) -> None:
    source = Source("test-fetch", load, "a toy", "none", files=(File("all_*.json"),), by_hand="ask the author")
    with pytest.raises(DataError, match=r"cannot be downloaded .*ask the author"):
        fetch(source, tmp_path)
    (tmp_path / "test-fetch").mkdir()
    (tmp_path / "test-fetch" / "all_0.json").write_text("{}")
    assert fetch(source, tmp_path).files[0].note == "already there"


def test_what_comes_with_the_package_needs_nothing(tmp_path: Path) -> None:
    assert fetch(Source("test-fetch", load, "a toy", "none"), tmp_path).files == ()
