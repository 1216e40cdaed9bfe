from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparsona

BLOCK = 2**15
"""The records of a file are laid out in blocks of this size, as in a log of LevelDB."""


def records(data: bytes) -> Iterator[bytes]:
    """The records of an offline file."""
    at, whole = 7, b""  # behind the signature and the version
    while at < len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield whole
            whole = b""


def test_offline_a_run_is_in_one_file_with_settings_scalars_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: pip install sparsona[wandb]")
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    result = sparsona.run(
        "local", clients=2, rounds=2, partition="iid", engine="inprocess", out=tmp_path / "a", report_to="wandb"
    )
    assert not caplog.messages, "wandb took everything"
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    until = time.monotonic() + 120
    while True:  # wandb's own process still writes when the run has returned
        with contextlib.suppress(struct.error, DecodeError):
            found = [Record.FromString(data) for data in records(file.read_bytes())]
            if any(record.HasField("exit") for record in found):
                break
        assert time.monotonic() < until
        time.sleep(0.1)
    rows, settings = [], {}
    for record in found:
        if record.HasField("history"):
            items = record.history.item
            rows.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
        if record.HasField("run"):
            settings = {item.key: json.loads(item.value_json) for item in record.run.config.update}
    assert [row["round"] for row in rows] == [1, 2]
    assert rows[-1]["pre/mean"] == pytest.approx(result.summary["accuracy"]["pre"]["mean"])
    assert "clients/c0/pre" in rows[0]
    assert settings["method"] == "local"
    kept = {path.name for path in (file.parent / "files").iterdir() if not path.is_symlink()}
    assert {"experiment.toml", "report.html", "summary.json"} <= kept
