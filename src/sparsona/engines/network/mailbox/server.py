"""The organiser's process at a mailbox: one experiment, from the first greeting to the summary."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparsona.engines.network.keys import public_keys
from sparsona.engines.network.mailbox.boxes import IDLE, MailboxCarrier, box_name
from sparsona.engines.network.mailbox.seal import Seal
from sparsona.engines.network.mailbox.store import SharedFolder
from sparsona.engines.network.serverapp import NetworkRun, carry_out
from sparsona.engines.network.setup import check_networkable
from sparsona.errors import InputError, StoreError
from sparsona.experiment import Experiment, to_toml
from sparsona.method import ClientId
from sparsona.system import take_lock


@dataclass(frozen=True)
class MailboxServer:
    """A mailbox, the organiser's private key, and the folder of the owners' public keys, ``NAME.pub``."""

    url: str
    key: Path
    keys: Path
    home: Path
    idle: float = IDLE

    def run(self, experiment: Experiment, name: str, patience: float, fewest: int = 0) -> None:
        """Run an experiment with all registered owners, or resume an interrupted run of that name."""
        check_networkable(experiment)
        carrier = MailboxCarrier(SharedFolder(self.url), self._seals(), self.idle)
        (self.home / "runs").mkdir(parents=True, exist_ok=True)
        try:
            lock = take_lock(self.home / "lock")
        except OSError:
            raise InputError(f"another sparsona server uses {self.home}: stop it, or choose another --home") from None
        with lock:
            carrier.clear()
            try:
                carry_out(NetworkRun(carrier, self.home, to_toml(experiment), name, patience, fewest))
            finally:
                with contextlib.suppress(StoreError):
                    carrier.close()

    def _seals(self) -> Mapping[ClientId, Seal]:
        files = public_keys(self.keys)
        boxes = {box_name(client): client for client in files}
        if len(boxes) < len(files):
            raise InputError(f"two clients in {self.keys} have the same name in the mailbox: rename one")
        return {client: Seal(self.key, file) for client, file in files.items()}
