"""Sealed parcels: only the receiver's key can open them, and only the sender's key can have closed them.

Both sides derive the same secret from their own private and the other's public key (ECDH on P-384). Each parcel has its
own key, from that secret and a random salt (HKDF), and is closed with AES-256-GCM. The direction, the client, the
number and the server's session are authenticated. So a parcel does not open under another name, in another session, or
if it is sent back to its sender.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparsona.engines.network.carrier import Answer
from sparsona.engines.network.flower.started.sparsona_records import MOST_HEAD, BadParcel, Head, from_text
from sparsona.engines.network.keys import MOST_KEY, private_key
from sparsona.errors import InputError
from sparsona.files import read_outside
from sparsona.method import ClientId

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"SPM1"
SESSION, SALT, TAG, LENGTH = 16, 32, 16, 4
"""Bytes of the parts of a sealed parcel: the session, the salt, the tag of AES-GCM, the length of the head."""
OVERHEAD = len(MAGIC) + SESSION + SALT + TAG + LENGTH
NONCE = bytes(12)  # the same for all parcels, since no two have the same key


@dataclass(frozen=True)
class Envelope:
    """The facts that a parcel's place and name state, and the session of the server's process."""

    to_server: bool
    client: ClientId
    number: int
    session: bytes

    @property
    def bound(self) -> bytes:
        """Return the bytes that are authenticated with the content."""
        direction = "to the server" if self.to_server else "to the node"
        return json.dumps([direction, self.client, self.number, self.session.hex()]).encode()


class Seal:
    """Closes and opens the parcels between two keys."""

    def __init__(self, own: Path, other: Path) -> None:
        """`own` is a private key, `other` the public key of the other side, as `sparsona deploy keys` writes them."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_ssh_public_key

        mine = private_key(own)
        try:
            public = load_ssh_public_key(read_outside(other, MOST_KEY))
        except (ValueError, UnsupportedAlgorithm):
            raise InputError(f"{other} is not a public key: give one that sparsona deploy keys wrote") from None
        if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != mine.curve.name:
            raise InputError(f"{own} and {other} are keys of different kinds: make both with sparsona deploy keys")
        self._shared = mine.exchange(ec.ECDH(), public)

    def close(self, envelope: Envelope, head: Head, body: bytes) -> bytes:
        """Return the bytes of a sealed parcel."""
        text, salt = json.dumps(head, separators=(",", ":"), allow_nan=False).encode(), secrets.token_bytes(SALT)
        content = b"".join((len(text).to_bytes(LENGTH, "little"), text, body))
        return b"".join((MAGIC, envelope.session, salt, self._cipher(salt).encrypt(NONCE, content, envelope.bound)))

    def open(self, envelope: Envelope, sealed: bytes) -> Answer:
        """Return the head and body of a parcel; raise `BadParcel` if it does not belong to this envelope."""
        from cryptography.exceptions import InvalidTag

        at = len(MAGIC) + SESSION
        if session_of(sealed) != envelope.session:
            raise BadParcel("it belongs to another session of the server")
        salt, closed = sealed[at : at + SALT], memoryview(sealed)[at + SALT :]
        try:
            content = self._cipher(salt).decrypt(NONCE, closed, envelope.bound)
        except InvalidTag:
            raise BadParcel("it was damaged, or closed with another key or for another place") from None
        size = int.from_bytes(content[:LENGTH], "little")
        if size > min(MOST_HEAD, len(content) - LENGTH):
            raise BadParcel("its head is too long")
        text = content[LENGTH : LENGTH + size].decode("utf-8", "replace")
        return from_text(text), content[LENGTH + size :]

    def _cipher(self, salt: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA384
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return AESGCM(HKDF(SHA384(), 32, salt, b"sparsona mailbox 1").derive(self._shared))


def session_of(sealed: bytes) -> bytes:
    """Return the session that a parcel names; raise `BadParcel` if it is too short or of another kind."""
    if len(sealed) < OVERHEAD or not sealed.startswith(MAGIC):
        raise BadParcel("it is no parcel, or cut off")
    return sealed[len(MAGIC) : len(MAGIC) + SESSION]
