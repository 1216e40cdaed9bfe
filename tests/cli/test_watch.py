"""`sparsona watch` from the command line."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path


def test_the_page_is_there_until_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "sparsona", "watch", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert b"Sparsona watch" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparsona", "watch", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "there is no folder" in done.stderr
