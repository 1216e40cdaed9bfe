"""The code of a page: its blocks and the commands in its text, in their order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("sparsona", "python", "pip", "make", "bash", "source", "cd", "tensorboard", "pytest")
"""What a line must begin with to be a command. Other indented blocks are drawings or fragments of files."""

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
INLINE = re.compile(r"`(sparsona [^`]+ [^`]+|(?:python|make|pip) [^`]+)`")
"""In the text, a command with its arguments; `sparsona compare` alone is a name."""
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z]+\b(?!=)|\.\.\.")


@dataclass(frozen=True)
class Snippet:
    """A command, or a block of a language. `info` is what stands behind the fence's backticks."""

    page: Path
    line: int
    kind: str
    text: str
    info: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)


def pages() -> list[Path]:
    """README, every page of docs/, and the papers' cards."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "papers").rglob("*.md"))]


def snippets(page: Path) -> Iterator[Snippet]:
    """The page's Python and TOML blocks, and its commands: those of indented or shell blocks and those in the text."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        line, fence = lines[number], FENCE.match(lines[number])
        if fence:
            end = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == "```")
            body, info = lines[number + 1 : end], fence["info"].strip()
            kind = info.split()[0] if info else ""
            if kind in ("sh", "bash", "console"):
                yield from _commands(page, number + 2, body)
            else:
                yield Snippet(page, number + 1, kind, "\n".join(body) + "\n", info)
            number = end
        elif re.match(r" {4}\S", line) and (number == 0 or not lines[number - 1].strip()):
            end = next(
                (i for i in range(number, len(lines)) if lines[i].strip() and lines[i][:4] != "    "), len(lines)
            )
            yield from _commands(page, number + 1, [one.strip() for one in lines[number:end]])
            number = end - 1
        else:
            yield from (Snippet(page, number + 1, "command", found) for found in INLINE.findall(line))
        number += 1


def _commands(page: Path, first: int, lines: list[str]) -> Iterator[Snippet]:
    waiting = ""
    for offset, line in enumerate(lines):
        text = waiting + line.strip()
        waiting = ""
        if text.endswith("\\"):
            waiting = text[:-1]
        elif text.split(maxsplit=1)[:1] and text.split(maxsplit=1)[0] in PROGRAMS:
            yield Snippet(page, first + offset, "command", text)


def has_placeholder(snippet: Snippet) -> bool:
    """Whether a command has a word that its reader must replace: NAME, RUN, FILE."""
    return any(PLACEHOLDER.search(word) for word in snippet.words[1:])
