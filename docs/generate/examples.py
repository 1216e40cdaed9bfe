"""Docstrings as Markdown: examples become code blocks, and roles of Sphinx become plain code."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`")


def readable(text: str) -> str:
    r"""
    >>> readable("Adds one, see :func:`~sparsona.x.plus`.\n\n>>> plus(1)\n2\n")
    'Adds one, see `sparsona.x.plus`.\n\n```pycon\n>>> plus(1)\n2\n```\n'
    """
    out: list[str] = []
    inside = False
    for line in [*ROLE.sub(r"`\1`", text).splitlines(), ""]:
        if line.lstrip().startswith(">>>") and not inside:
            out.append("```pycon")
            inside = True
        elif inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line)
    return "\n".join(out)


class Examples(griffe.Extension):
    """Makes every docstring readable before it is rendered."""

    def on_instance(self, *, obj: Any, **more: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)
