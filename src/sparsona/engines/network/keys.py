"""Certificates for the SuperLink and keys for the nodes."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sparsona.errors import InputError
from sparsona.files import read_outside, write_new
from sparsona.method import ClientId
from sparsona.runs.names import file_stem

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

YEARS = 2
CA, CERTIFICATE, KEY = "ca.crt", "server.pem", "server.key"
PUBLIC = (b"ssh-", b"ecdsa-", b"sk-", b"-----BEGIN PUBLIC KEY")  # beginnings of files that hold a public key
MOST_KEY = 2**16  # largest file of a key in bytes


def need_cryptography() -> None:
    """Raise `InputError` without cryptography, and say how to install it."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise InputError('keys need cryptography: pip install "sparsona[mailbox]", or "sparsona[flower]"') from None


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Make a certificate authority, and the SuperLink's certificate for `hosts` and for its own machine.

    The authority's private key is not kept. For another certificate, all files are made anew.
    """
    need_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    _refuse_old(folder, (CA, CERTIFICATE, KEY))
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    until = now + datetime.timedelta(days=365 * YEARS)
    # With P-384 a handshake costs the server 30 times as much, and each node makes many.
    authority, own = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP256R1())

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def begun(subject: str, key: ec.EllipticCurvePublicKey, is_authority: bool) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("sparsona"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )

    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    root = begun("sparsona", authority.public_key(), True).add_extension(usage, critical=True)
    names = [_general(host) for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1"])]
    leaf = (
        begun(hosts[0], own.public_key(), False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    write_new(folder / CA, _pem(root.sign(authority, hashes.SHA384())))
    write_new(folder / CERTIFICATE, _pem(leaf.sign(authority, hashes.SHA384())))
    _write_private(folder / KEY, own, openssh=False)


def make_node_key(folder: Path, client: ClientId) -> Path:
    """Make a client's keys, ``NAME`` for its owner and ``NAME.pub`` for the organiser; return the path of `NAME`."""
    need_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(client)
    _refuse_old(folder, (stem, f"{stem}.pub"))
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write_private(folder / stem, key, openssh=True)
    write_new(folder / f"{stem}.pub", public + b"\n")
    return folder / stem


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file, read as Flower reads it; raise `InputError` if there is none."""
    need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    data = read_outside(path, MOST_KEY)
    if data.startswith(PUBLIC):
        raise InputError(f"{path} is a public key: give --key the private one, which sparsona deploy keys wrote beside")
    try:
        key = load_ssh_private_key(data, None)
    except (ValueError, UnsupportedAlgorithm, TypeError) as error:
        why = "has a password" if isinstance(error, TypeError) else "is not a private key"
        raise InputError(f"{path} {why}: give --key one that sparsona deploy keys wrote") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} is not an elliptic curve key: give --key one that sparsona deploy keys wrote")
    return key


def public_keys(folder: Path) -> dict[ClientId, Path]:
    """Return the owners' public keys in a folder by client."""
    files = sorted(folder.glob("*.pub"))
    if not files:
        raise InputError(f"there is no public key in {folder}: put NAME.pub of every node there")
    return {unquote(path.stem): path for path in files}


def _general(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, openssh: bool) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    kind = PrivateFormat.OpenSSH if openssh else PrivateFormat.PKCS8
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(key.private_bytes(Encoding.PEM, kind, NoEncryption()))


def _refuse_old(folder: Path, names: Sequence[str]) -> None:
    old = next((name for name in names if (folder / name).exists()), None)
    if old is not None:
        raise InputError(f"{folder / old} exists: nothing was written; remove it, or choose another folder")
