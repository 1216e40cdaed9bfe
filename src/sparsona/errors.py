"""The errors of Sparsona. Each message is one line that names the problem and the fix."""

from __future__ import annotations


def printable(text: object, longest: int | None = None) -> str:
    """Write a text from outside so that a terminal shows all of it and obeys none of it.

    Control characters, escapes, line breaks and marks that change the direction of writing become visible codes.
    What is behind `longest` characters is left out.

    >>> print(printable("a\\x1b[2Jb\\nc"))
    a\\x1b[2Jb\\nc
    """
    whole = str(text)
    if longest is not None and len(whole) > longest:
        whole = f"{whole[:longest]}..."
    if whole.isprintable():
        return whole
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in whole)


def one_line(message: object) -> str:
    """What an error or a library says, in one printable line.

    >>> one_line("it failed:\\n  no such file")
    'it failed: no such file'
    """
    return printable(" ".join(str(message).split()))


class SparsonaError(Exception):
    """Every error that Sparsona raises on purpose. The command line prints it and exits with 2."""


class InputError(SparsonaError):
    """Something that the user gave cannot be used: a name, a number, a file, a combination."""


class DataError(InputError):
    """A data set is absent, damaged, or does not fit what is asked of it."""


class RunError(InputError):
    """A run directory cannot be used: it belongs to another experiment, is incomplete, or cannot be written."""


class StoreError(SparsonaError):
    """The storage of a mailbox is not reached, full, or cannot be written."""


class WireError(SparsonaError):
    """Bytes that are not a frame of ours, or a message that does not hold what the reader asked for."""


class MissingReference(WireError):
    """A frame is coded against parts that the receiver does not have: it can ask for the whole."""

    def __init__(self, fingerprint: bytes) -> None:
        super().__init__(f"the frame refers to {fingerprint.hex()}, which is not here: ask the sender for the whole")
        self.fingerprint = fingerprint

    def __reduce__(self) -> tuple[type[MissingReference], tuple[bytes]]:
        return type(self), (self.fingerprint,)


class Diverged(SparsonaError):
    """Local training left the finite numbers."""


class ContractError(SparsonaError):
    """A method, model or partition breaks the contract that `sparsona.testing` checks."""
