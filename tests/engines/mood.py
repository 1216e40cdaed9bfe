"""How a hostile node behaves at the moment: a test writes it into a file, so that no node is started again."""

from __future__ import annotations

import os
from pathlib import Path

HONEST, SPOILING, TWICE = "honest", "spoiling", "twice"
VARIABLE = "HOSTILE_MOOD"
"""The environment variable that names the file."""


def mood() -> str:
    return Path(os.environ[VARIABLE]).read_text()


def second_reply() -> Path:
    """The frame of the second reply to a message: the owner's process makes it, the stub sends it."""
    return Path(os.environ[VARIABLE]).with_name("second")
