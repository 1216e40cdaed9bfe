"""Checks before any process starts: the address, the certificate, the key, the port, the clock.

Flower finds such mistakes too, but only in the log of a process that is then restarted again and again.
"""

import datetime
import errno
import http.client
import re
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

from sparsona.errors import InputError
from sparsona.files import read_outside

PORTS = range(1, 65536)
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
EXAMPLE = "fl.example.org:9092"
AHEAD, BEHIND = 4.0, 295.0  # seconds by which a node's clock may differ from the server's


def check_address(address: str) -> None:
    """Raise `InputError` if `address` is not HOST:PORT. No name is looked up.

    >>> check_address("fl.example.org:9092")
    >>> check_address("[::1]:9092")
    """
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) in PORTS):
        problem = f"has no port from {PORTS[0]} to {PORTS[-1]}: add the one of sparsona server"
    elif not re.fullmatch(r"[^\s/:]+|\[[^\s/]+\]", host):
        problem = "has no name of a machine before the port (an IPv6 address is written in brackets)"
    else:
        return
    raise InputError(f"--superlink {address!r} {problem}, such as {EXAMPLE}")


def check_certificate(path: Path) -> None:
    """Raise `InputError` if the file holds no certificate that can verify the SuperLink now."""
    try:
        text = read_outside(path).decode("ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (UnicodeDecodeError, ValueError, ssl.SSLError):
        raise InputError(f"{path} is not a PEM certificate: give --ca the organiser's ca.crt") from None
    check_dates(path)


def check_dates(path: Path) -> None:
    """Raise `InputError` if the certificate is not valid at the time of this machine's clock."""
    from cryptography.x509 import load_pem_x509_certificate

    found, now = load_pem_x509_certificate(read_outside(path)), datetime.datetime.now(datetime.UTC)
    if now > found.not_valid_after_utc:
        how = "if this machine's clock is right, the organiser makes new ones with sparsona deploy keys --host"
        raise InputError(f"{path} has expired on {found.not_valid_after_utc:%Y-%m-%d}: {how}")
    if now < found.not_valid_before_utc:
        valid = f"{found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise InputError(f"{path} is not valid before {valid}: this machine's clock is behind, set it")


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


def check_port(host: str, port: int) -> None:
    """Raise `InputError` if the server cannot listen at the port. The port is opened and closed again."""
    if port not in PORTS:
        raise InputError(f"there is no port {port}: give --port a number from {PORTS[0]} to {PORTS[-1]}")
    problems: list[OSError] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise InputError(f"there is no machine {host!r}: give --host an address of this one, or 0.0.0.0") from None
    for family, _, _, _, address in found:
        try:
            socket.create_server((address[0], port), family=family).close()
        except OSError as error:
            problems.append(error)
    for problem in problems:  # a name may also stand for an address that this machine does not have
        if problem.errno not in ABSENT or len(problems) == len(found):
            why = f"cannot listen at {host}:{port} ({problem.strerror})"
            raise InputError(f"{why}: choose another --port, or another address of this machine as --host")
