"""The command line, one file a group of commands. It reads arguments and prints; the work is done elsewhere.

A command imports what it needs when it is called: help, lists and rejected commands start without torch.
"""

from __future__ import annotations

import sys

from sparsona.cli import compare, data, deploy, inspect, new, node, reproduce, run, search, server, sweep
from sparsona.cli.app import app
from sparsona.errors import SparsonaError

__all__ = ["app", "main"]

run.add_to(app)
compare.add_to(app)
sweep.add_to(app)
search.add_to(app)
inspect.add_to(app)
reproduce.add_to(app)
data.add_to(app)
new.add_to(app)
deploy.add_to(app)
server.add_to(app)
node.add_to(app)


def main() -> None:
    """The entry point: a problem is one line on standard error and exit code 2."""
    try:
        app(prog_name="sparsona")
    except SparsonaError as error:
        _fail(str(error))
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _fail(f"cannot read or write{where}: {error.strerror}; what was finished is kept, continue with --resume")


def _fail(message: str) -> None:
    print(f"sparsona: {' '.join(message.split())}", file=sys.stderr)
    sys.stdout.flush()
    sys.exit(2)
