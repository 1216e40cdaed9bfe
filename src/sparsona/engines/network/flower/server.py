"""The organiser's machine: a SuperLink, the registered nodes, and the runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from sparsona.engines.network.flower.checks import check_dates, check_port
from sparsona.engines.network.flower.processes import Child, Flwr, superlink, wait_until_open
from sparsona.engines.network.keys import CA, CERTIFICATE, KEY, public_keys
from sparsona.errors import InputError, RunError, one_line
from sparsona.files import write_atomically
from sparsona.method import ClientId

NODES = "nodes.json"


@dataclass(frozen=True)
class KnownNode:
    """A registered node: its number at the SuperLink, and its public key."""

    number: int
    key: str


_AS_JSON = TypeAdapter(dict[ClientId, KnownNode])


def read_nodes(home: Path) -> dict[ClientId, KnownNode]:
    """Return the registered nodes by client."""
    try:
        return _AS_JSON.validate_json((home / NODES).read_bytes())
    except (OSError, ValueError) as error:
        why = one_line(error)
        raise RunError(f"cannot read the registered nodes in {home} ({why}): start sparsona server first") from None


class Server:
    """A running SuperLink. Its nodes are the public keys in `keys`, each named after its file."""

    def __init__(self, home: Path, host: str, port: int, certificates: Path, keys: Path) -> None:
        check_port(host, port)
        home.mkdir(parents=True, exist_ok=True)
        home = home.resolve()
        self.home, self.address = home, f"{host}:{port}"
        files = public_keys(keys)
        for file in (CA, CERTIFICATE, KEY):
            if not (certificates / file).exists():
                raise InputError(f"there is no {file} in {certificates}: make certificates with sparsona deploy keys")
        for file in (CA, CERTIFICATE):
            check_dates(certificates / file)
        (home / "runs").mkdir(exist_ok=True)
        self.link: Child = superlink(home, host, port, certificates.resolve(), SPARSONA_SERVER=str(home))
        try:
            local = "127.0.0.1" if host in ("0.0.0.0", "::") else host
            wait_until_open(local, port, self.link)
            self.nodes = self._register(Flwr(home, f"{local}:{port}", certificates / CA), files)
        except BaseException:
            self.close()
            raise

    def _register(self, flwr: Flwr, files: Mapping[ClientId, Path]) -> dict[ClientId, int]:
        """Bind each client's name to the node of its key; unregister nodes whose key is gone."""
        known = read_nodes(self.home) if (self.home / NODES).exists() else {}
        keys = {client: path.read_text(encoding="ascii").strip() for client, path in files.items()}
        changed = [client for client, node in known.items() if client in keys and keys[client] != node.key]
        if changed:
            raise InputError(
                f"{changed[0]} was registered with another key: choose another --home, or start once without its key"
            )
        gone = sorted(known.keys() - keys.keys())
        flwr.unregister([known.pop(client).number for client in gone])
        new = [client for client in files if client not in known]
        for client, number in zip(new, flwr.register([files[client] for client in new]), strict=True):
            known[client] = KnownNode(number, keys[client])
        if gone or new:
            write_atomically(self.home / NODES, _AS_JSON.dump_json(known))
        return {client: node.number for client, node in known.items()}

    def close(self) -> None:
        self.link.stop()
