"""The organiser's process at a mailbox: one experiment, from the first greeting to the summary."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from sparsona.engines.network.keys import public_keys
from sparsona.engines.network.mailbox.boxes import IDLE, MailboxCarrier, box_name
from sparsona.engines.network.mailbox.seal import Seal
from sparsona.engines.network.mailbox.store import SharedFolder
from sparsona.engines.network.serverapp import NetworkRun, carry_out
from sparsona.engines.network.setup import check_networkable
from sparsona.errors import InputError, StoreError
from sparsona.experiment import Experiment, to_toml
from sparsona.files import alone
from sparsona.method import ClientId


def run_in_mailbox(
    url: str,
    seals: Mapping[ClientId, Seal],
    home: Path,
    experiment: Experiment,
    name: str,
    patience: float,
    fewest: int = 0,
    idle: float = IDLE,
) -> None:
    """Run an experiment with all owners of `seals`, or resume an interrupted run of that name."""
    check_networkable(experiment)
    carrier = MailboxCarrier(SharedFolder(url), seals, idle)
    (home / "runs").mkdir(parents=True, exist_ok=True)
    with alone(home / "lock", f"another sparsona server uses {home}: stop it, or choose another --home"):
        carrier.clear()
        try:
            carry_out(NetworkRun(carrier, home, to_toml(experiment), name, patience, fewest))
        finally:
            with contextlib.suppress(StoreError):
                carrier.close()


def seals_of(key: Path, keys: Path) -> dict[ClientId, Seal]:
    """Return the organiser's seal for each owner: `key` is its private key, `keys` a folder of ``NAME.pub``."""
    files = public_keys(keys)
    if len({box_name(client) for client in files}) < len(files):
        raise InputError(f"two clients in {keys} have the same name in the mailbox: rename one")
    return {client: Seal(key, file) for client, file in files.items()}
