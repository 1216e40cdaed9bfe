"""An owner's process and the SuperNode that it looks after, with scripts in the place of Flower."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from sparsona.engines.network.carrier import OrderGuard
from sparsona.engines.network.consent import Rules
from sparsona.engines.network.flower import connection
from sparsona.engines.network.flower.connection import Supervisor, serve
from sparsona.engines.network.flower.processes import Child
from sparsona.engines.network.node import Node
from sparsona.errors import InputError

KEY = "ERROR :     Exit Code: 302\\nUnable to parse the private key file.\\n"
CERTIFICATE = "ssl.SSLError: no start line: cadata does not contain a certificate (_ssl.c:4020)\\n"
HELD = "[code: 2004] Failed to activate SuperNode.\\n"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LEASE", 0.05)
    monkeypatch.setattr(connection, "LOOK", 0.05)


class Begun:
    """Starts a SuperNode of which only what it says is real, and counts how often."""

    def __init__(self, folder: Path, says: str, stays: bool = False) -> None:
        self.script, self.log = folder / "supernode.py", folder / "supernode.log"
        ending = "time.sleep(60)" if stays else "sys.exit(1)"
        self.script.write_text(f"import sys, time\nprint('{says}', end='', flush=True)\n{ending}\n")
        self.children: list[Child] = []

    def __call__(self) -> Child:
        self.children.append(Child(self.script, [], self.log))
        return self.children[-1]


@pytest.mark.parametrize(
    ("says", "stays", "why"),
    [
        (KEY, False, "Flower cannot read the private key: give --key"),
        ("ERROR: Exit Code: 600\\n", False, "give --superlink HOST:PORT"),
        (CERTIFICATE, True, "Flower finds no certificate: give --ca"),
    ],
)
def test_a_node_with_wrong_settings_ends_and_says_which(says: str, stays: bool, why: str, tmp_path: Path) -> None:
    """Also where Flower's own process stays, as it does with a wrong certificate."""
    begun = Begun(tmp_path, says, stays)
    supervisor = Supervisor(begun, begun.log)
    node = Node("va", tmp_path / "va.csv", tmp_path / "runs", Rules())
    supervisor.start()
    try:
        with pytest.raises(InputError, match=why):
            serve(OrderGuard(node, tmp_path / "answered"), tmp_path / "socket", supervisor.check)
    finally:
        supervisor.close()
    assert len(begun.children) == 1
    assert begun.children[0].ended is not None


def test_a_node_whose_place_is_held_tries_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begun = Begun(tmp_path, HELD)
    supervisor = Supervisor(begun, begun.log)
    with caplog.at_level(logging.INFO, "sparsona.node"):
        supervisor.start()
        waited = threading.Event()
        while len(begun.children) < 3:
            assert not waited.wait(0.05)
            supervisor.check()
        supervisor.close()
    assert "its place is still held after a crash" in caplog.text
    assert "trying again" in caplog.text


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1)", "has expired"),
        ("CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed", "no certificate of --ca"),
        ("certificate verify failed: certificate is not yet valid", "set this machine's clock"),
        ("the executor has ended", "it is started again"),
    ],
)
def test_what_a_supernode_says_is_said_in_plain_words(text: str, meaning: str) -> None:
    assert meaning in connection.plain_words(f"INFO: Starting\n{text}\n")
