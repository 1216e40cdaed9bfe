"""Checks before any process starts: the address, the certificate, the key, the port, the clock.

Flower finds such mistakes too, but only in the log of a process that is then restarted again and again.
"""

from __future__ import annotations

import errno
import http.client
import ipaddress
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

from sparsona.engines.network.keys import need_cryptography
from sparsona.errors import InputError

PORTS = range(1, 65536)
EXAMPLE = "fl.example.org:9092"
AHEAD, BEHIND = 4.0, 295.0
"""Seconds by which a node's clock may differ from the server's."""
PUBLIC = (b"ssh-", b"ecdsa-", b"sk-", b"-----BEGIN PUBLIC KEY")
"""Beginnings of files that hold a public key."""


def check_address(address: str) -> None:
    """Raise `InputError` if `address` is not HOST:PORT. No name is looked up.

    >>> check_address("fl.example.org:9092")
    >>> check_address("[::1]:9092")
    """
    host, colon, port = address.rpartition(":")
    if "/" in address:
        problem = "is a URL; give the name and the port alone"
    elif not colon or not port:
        problem = "has no port; add the one of sparsona server"
    elif not (port.isascii() and port.isdigit() and int(port) in PORTS):
        problem = f"has no port from {PORTS[0]} to {PORTS[-1]} behind the colon; give the one of sparsona server"
    elif not host or any(sign.isspace() for sign in host):
        problem = "has no name of a machine before the colon; give that of sparsona server"
    elif ":" in host and not _is_ipv6(host):
        problem = "has too many colons; write an IPv6 address in brackets"
    else:
        return
    raise InputError(f"--superlink {address!r} {problem}, such as {EXAMPLE}")


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def check_certificate(path: Path) -> None:
    """Raise `InputError` if the file holds no certificate that can verify the SuperLink."""
    try:
        text = _content(path).decode("ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (UnicodeDecodeError, ValueError, ssl.SSLError):
        raise InputError(f"{path} is not a PEM certificate: give --ca the organiser's ca.crt") from None


def clock_problem(address: str, ca: Path, seconds: float = 10.0) -> str:
    """Return in one line how far this machine's clock is from the server's; empty if Flower accepts it.

    A node signs each request with the time. The server refuses one that is 5 minutes old, or 5 seconds ahead.
    """
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(ca))
    try:
        link = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=seconds, context=context)
        link.request("GET", "/")
        said = link.getresponse().getheader("date", "")
        ahead = time.time() - parsedate_to_datetime(said).timestamp()
    except (OSError, ValueError, TypeError, http.client.HTTPException):
        return ""
    if -BEHIND < ahead < AHEAD:
        return ""
    way = "ahead of" if ahead > 0 else "behind"
    return f"this machine's clock is {abs(ahead):.0f} s {way} the server's, which refuses this node: set the clock"


def check_private_key(path: Path) -> None:
    """Raise `InputError` if the file is not a private key for signing. It is read as Flower reads it."""
    need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    data = _content(path)
    if data.startswith(PUBLIC):
        raise InputError(f"{path} is a public key: give --key the private one, which sparsona deploy keys wrote beside")
    try:
        key = load_ssh_private_key(data, None)
    except (ValueError, UnsupportedAlgorithm, TypeError) as error:
        why = "has a password" if isinstance(error, TypeError) else "is not a private key"
        raise InputError(f"{path} {why}: give --key one that sparsona deploy keys wrote") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} is not an elliptic curve key: give --key one that sparsona deploy keys wrote")


def check_port(host: str, port: int) -> None:
    """Raise `InputError` if the server cannot listen at the port. The port is opened and closed again."""
    if port not in PORTS:
        raise InputError(f"there is no port {port}: give --port a number from {PORTS[0]} to {PORTS[-1]}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise InputError(f"there is no machine {host!r}: give --host an address of this one, or 0.0.0.0") from None
    absent = 0
    for family, _, _, _, address in found:
        try:
            socket.create_server((address[0], port), family=family).close()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise InputError(
                    f"port {port} is in use by another program: end it, or choose another --port"
                ) from None
            if error.errno == errno.EACCES:
                raise InputError(f"port {port} is not allowed to this account: choose a --port above 1023") from None
            absent += 1
    if absent == len(found):
        raise InputError(f"{host} is not an address of this machine: give --host one that is, or 0.0.0.0")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: check the path") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give a file that is readable") from None
