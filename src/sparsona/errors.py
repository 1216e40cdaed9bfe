"""The errors of Sparsona. Each message is one line that names the problem and the fix."""


class SparsonaError(Exception):
    """Every error that Sparsona raises on purpose. The command line prints it and exits with 2."""


class InputError(SparsonaError):
    """Something that the user gave cannot be used: a name, a number, a file, a combination."""


class DataError(InputError):
    """A data set is absent, damaged, or does not fit what is asked of it."""


class RunError(InputError):
    """A run directory cannot be used: it belongs to another experiment, is incomplete, or cannot be written."""


class WireError(SparsonaError):
    """Bytes that are not a frame of ours, or a message that does not hold what the reader asked for."""


class Diverged(SparsonaError):
    """Local training left the finite numbers."""


class ContractError(SparsonaError):
    """A method, model or partition breaks the contract that `sparsona.testing` checks."""
