"""The log that an owner keeps."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sparsona.engines.network import node


def test_a_name_cannot_forge_a_line_of_the_log(tmp_path: Path) -> None:
    node._log_to(tmp_path / "node.log")
    notes = logging.getLogger("sparsona.node")
    handlers = notes.handlers[-2:]
    try:
        notes.info("model %s", "mlp\n2026-01-01 00:00:00 nothing was sent\x1b[2J")
    finally:
        for handler in handlers:
            notes.removeHandler(handler)
            handler.close()
    (line,) = (tmp_path / "node.log").read_text().splitlines()
    assert "\\n2026-01-01" in line
    assert "\x1b" not in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_log_on_a_full_disk_is_one_line_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    notes = node.LogFile(Path("/dev/full"))
    notes.emit(logging.makeLogRecord({"msg": "round 1"}))
    assert capsys.readouterr().err == "sparsona: cannot write /dev/full: [Errno 28] No space left on device\n"
    with pytest.raises(OSError, match="No space left"):
        notes.close()
