"""Clients' names as names of files."""

import hashlib
from functools import lru_cache
from urllib.parse import quote

from sparsona.errors import InputError
from sparsona.method import ClientId

LONGEST = 100  # longest stem in characters: a file system takes 255 bytes, and versions and endings are added


@lru_cache(maxsize=1 << 16)
def file_stem(client: ClientId) -> str:
    """Return a name that every file system accepts, different for every client.

    >>> file_stem("c0"), file_stem("ward 7/b"), len(file_stem("医" * 200))
    ('c0', 'ward%207%2Fb', 85)

    A name that would be too long, hidden or empty ends in ``=`` and its hash. A quoted name holds no ``=``.
    """
    try:
        plain = quote(client, safe="")
    except UnicodeEncodeError:
        raise InputError(f"the name of client {client!a} is not text: rename it, or the file that names it") from None
    if 0 < len(plain) <= LONGEST and not plain.startswith("."):
        return plain
    digest = hashlib.sha256(client.encode()).hexdigest()[:32]
    return f"{quote(client[:24], safe='').lstrip('.')[:52]}={digest}"


VERSIONED = r"[A-Za-z0-9_.~%=-]+\.[0-9]+"  # pattern of the files that hold versions of clients' states
