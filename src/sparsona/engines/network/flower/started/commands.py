"""Runs several `flwr` commands in one interpreter, since importing Flower takes seconds.

    python commands.py '[["supernode", "register", ...], ...]'

What each of them prints ends with a line that holds `END` alone.
"""

from __future__ import annotations

import json
import sys

import click
from sparsona_entry import command

END = "\0"


def main() -> None:
    app = command("flwr")
    for arguments in json.loads(sys.argv[1]):
        try:
            code = app(arguments, standalone_mode=False)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        if code:
            sys.exit(code)
        print(END, flush=True)


if __name__ == "__main__":
    main()
