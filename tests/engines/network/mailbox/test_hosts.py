"""Two hosts without a network between them: each has a folder, and rsync copies one way per direction."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from network_helpers import check, prepared_for

from sparsona.engines.network.deploy import MailboxFederation, local_federation

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for network namespaces"),
]
ALONE = Path(__file__).parents[1] / "hostile" / "alone.py"


@dataclass
class Apart(MailboxFederation):
    """The nodes have a folder of their own."""

    theirs: str = ""

    def line(self, client: str) -> list[str]:
        return [self.theirs if option == self.mailbox else option for option in super().line(client)]


def copy(source: Path, target: Path) -> None:
    for folder in (source, target):
        folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["rsync", "-a", "--delete", f"{source}/", f"{target}/"], check=False, stderr=subprocess.DEVNULL)


def test_two_hosts_with_a_folder_that_is_copied_give_the_simulators_digest(tmp_path: Path) -> None:
    prepared = prepared_for("fedspa", clients=2)
    federation = prepared.setup.federation
    here, there, over = tmp_path / "here", tmp_path / "there", threading.Event()
    given = tmp_path / "f", sorted(federation.clients), (), ALONE
    nodes = Apart(*given, mailbox=str(here), idle=0.5, theirs=str(there))

    def carry() -> None:
        while not over.wait(0.2):
            copy(here / "nodes", there / "nodes")
            copy(there / "server", here / "server")

    carrying = threading.Thread(target=carry)
    carrying.start()
    said: list[str] = []
    try:
        with local_federation(nodes, federation, prepared.experiment) as running:
            check(running.run(prepared.experiment, "apart", said.append), prepared)
    finally:
        over.set()
        carrying.join()
    assert any("Network is unreachable" in line for line in said)
