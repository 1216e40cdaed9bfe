"""The organiser's machine: a SuperLink, the registered nodes, and the runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote

from sparsona.engines.flower.keys import CA
from sparsona.engines.flower.processes import Child, Flwr, superlink, wait_until_open
from sparsona.errors import InputError
from sparsona.files import write_atomically
from sparsona.method import ClientId

log = logging.getLogger(__name__)


class Server:
    """A running SuperLink whose nodes are those with a public key in `keys`, each under the name of its file."""

    def __init__(self, home: Path, host: str, port: int, certificates: Path, keys: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        home = home.resolve()
        self.home, self.address = home, f"{host}:{port}"
        files = sorted(keys.glob("*.pub"))
        if not files:
            raise InputError(f"there is no public key in {keys}: put NAME.pub of every node there")
        for file in (CA,):
            if not (certificates / file).exists():
                raise InputError(f"there is no {file} in {certificates}: make certificates with sparsona deploy keys")
        (home / "runs").mkdir(exist_ok=True)
        self._link: Child = superlink(home, host, port, certificates.resolve(), SPARSONA_SERVER=str(home))
        try:
            local = "127.0.0.1" if host in ("0.0.0.0", "::") else host
            wait_until_open(local, port, self._link)
            self.nodes = self._register(Flwr(home, f"{local}:{port}", certificates / CA), files)
        except BaseException:
            self.close()
            raise

    def _register(self, flwr: Flwr, files: list[Path]) -> dict[ClientId, int]:
        """Bind every client's name to the node of its key; those of an earlier start are known already."""
        file = self.home / "nodes.json"
        known: dict[str, int] = json.loads(file.read_bytes()) if file.exists() else {}
        keys: dict[str, str] = {}
        seen = self.home / "keys.json"
        if seen.exists():
            keys = json.loads(seen.read_bytes())
        for path in files:
            client, key = unquote(path.stem), path.read_text(encoding="ascii").strip()
            if client in keys and keys[client] != key:
                raise InputError(f"{client} was registered with another key: choose another --home, or another name")
            if client not in known:
                known[client] = flwr.register(path)
                keys[client] = key
                write_atomically(file, json.dumps(known))
                write_atomically(seen, json.dumps(keys))
        return known

    def wait(self) -> int:
        """Until the SuperLink ends."""
        return self._link.wait()

    @property
    def pid(self) -> int:
        """The SuperLink's process."""
        return self._link.pid

    def close(self) -> None:
        self._link.stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
