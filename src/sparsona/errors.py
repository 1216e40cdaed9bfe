"""The errors of Sparsona. Each message is one line that names the problem and the fix."""

from __future__ import annotations


def printable(text: object, longest: int | None = None) -> str:
    """Return a text from outside in a form that a terminal shows but does not execute.

    Control characters, escapes, line breaks and marks of writing direction become visible codes. The text is cut after
    `longest` characters.

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
    """Return the message of an error in one printable line.

    >>> one_line("it failed:\\n  no such file")
    'it failed: no such file'
    """
    return printable(" ".join(str(message).split()))


class SparsonaError(Exception):
    """Every error that Sparsona raises on purpose. The command line prints it and exits with 2."""


class InputError(SparsonaError):
    """Unusable input of the user: a name, a number, a file, a combination."""


class DataError(InputError):
    """A data set that is missing, damaged, or unsuitable."""


class RunError(InputError):
    """An unusable run directory: of another experiment, incomplete, or not writable."""


class StoreError(SparsonaError):
    """Storage of a mailbox that is unreachable, full, or not writable."""


class WireError(SparsonaError):
    """Bytes that are not a valid frame, or a message without the requested part."""


class MissingReference(WireError):
    """A frame coded against parts that the receiver lacks; the receiver can request the whole frame."""

    def __init__(self, fingerprint: bytes) -> None:
        super().__init__(f"the frame refers to {fingerprint.hex()}, which is not here: ask the sender for the whole")
        self.fingerprint = fingerprint

    def __reduce__(self) -> tuple[type[MissingReference], tuple[bytes]]:
        return type(self), (self.fingerprint,)


class Diverged(SparsonaError):
    """Local training produced infinite numbers or NaN."""


class ContractError(SparsonaError):
    """A method, model or partition that breaks the contract of `sparsona.testing`."""
