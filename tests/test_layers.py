"""Which room of the house may import which; and what a method may not speak of."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparsona

ROOT = Path(sparsona.__file__).parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "chance", "compiled", "system", "tree", "version", "words"),
    ("registry", "by_client", "files", "message", "bits", "options", "terminal"),
    ("layout", "models", "wire"),
    ("base", "data", "ops"),
    ("method", "metrics", "partition", "privacy"),
    ("training",),
    ("experts",),
    ("methods", "personal", "runs"),
    ("federation", "export"),
    ("experiment",),
    ("report", "summary"),
    ("engines", "result"),
    ("prepare",),
    ("resume", "rate"),
    ("api",),
    ("many", "sklearn"),
    ("studies", "skeleton", "testing"),
    ("cli",),
    ("__main__", "__init__"),
)
"""A room imports rooms of earlier lines only. Imports for annotations alone do not count."""

RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}

KNOWS = {
    "message": {"errors"},
    "wire": {"bits", "compiled", "errors", "message"},
    "ops": {"bits", "chance", "compiled", "errors", "layout", "message", "options"},
    "method": {"chance", "errors", "layout", "message"},
    "metrics": {"chance", "data", "errors", "registry"},
    "privacy": {"chance", "errors", "files", "message", "options"},
    "training": {
        "base", "chance", "compiled", "data", "errors", "layout", "message", "method", "metrics", "ops", "options",
        "privacy", "words",
    },
    "experts": {"data", "errors", "message", "method", "training", "tree"},
    "personal": {"errors", "experts", "message", "method", "ops", "options", "training", "tree"},
    "methods": {
        "by_client", "chance", "compiled", "data", "errors", "experts", "layout", "message", "method", "ops", "options",
        "registry", "training",
    },
}  # fmt: skip
"""Rooms that may know these and no others, whatever their rank."""


def room_of(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Everything that may run: what is only there for a type checker is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from nodes(node)


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of this package that a file imports, at its top or later."""
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "sparsona":
            yield from (f"sparsona.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparsona."):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "sparsona")


FILES = sorted(file for file in ROOT.rglob("*.py"))
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


def imports() -> Iterator[tuple[str, str, str]]:
    """Every import from one room into another: the room, the other one, and the file."""
    for file, tree in TREES.items():
        for module in imported(tree):
            to = [*module.split("."), "__init__"][1]
            if to in RANK and to != room_of(file):
                yield room_of(file), to, str(file.relative_to(ROOT))


def test_every_room_has_its_place() -> None:
    rooms = {room_of(file) for file in FILES}
    assert rooms - set(RANK) == set(), "name the new room in LAYERS"
    assert set(RANK) - rooms == set(), "these rooms are gone"


def test_rooms_import_earlier_rooms_only() -> None:
    wrong = {f"{file} imports sparsona.{to}" for room, to, file in imports() if RANK[to] >= RANK[room]}
    assert wrong == set()


@pytest.mark.parametrize("room", sorted(KNOWS))
def test_some_rooms_know_few_others(room: str) -> None:
    wrong = {f"{file} imports sparsona.{to}" for one, to, file in imports() if one == room and to not in KNOWS[room]}
    assert wrong == set()


def test_a_methods_helpers_know_neither_engine_nor_loop_nor_wire() -> None:
    """Those that methods import, and what these import in turn. Only the agreement on columns is made of frames."""
    found = defaultdict(set)
    for room, to, file in imports():
        found[room].add((to, file))
    reached, waiting = set(), ["methods"]
    while waiting:
        room = waiting.pop()
        for to, file in found[room]:
            if (to, file) == ("wire", "data/schema/exchange.py"):
                continue
            if to not in reached:
                reached.add(to)
                waiting.append(to)
    assert reached & {"engines", "federation", "wire", "runs", "experiment", "api", "cli"} == set()


def test_no_other_room_imports_a_single_method() -> None:
    """A method is found by its name: what others need of it, the contract has."""
    named = {
        f"{file.relative_to(ROOT)} imports {module}"
        for file, tree in TREES.items()
        for module in imported(tree)
        if module.startswith("sparsona.methods.") and room_of(file) != "methods"
    }
    assert named == set()


def test_the_papers_are_imported_by_nobody() -> None:
    """They are a distribution of their own, which may not be installed."""
    named = {str(file.relative_to(ROOT)) for file in FILES if "sparsona_papers" in file.read_text(encoding="utf-8")}
    assert named == set()


def test_experiments_name_no_engine_and_run_directories_no_experiment() -> None:
    known = {(room, to) for room, to, _ in imports()}
    assert ("experiment", "engines") not in known
    assert not {to for room, to in known if room == "runs"} & {"experiment", "federation", "engines", "api"}


# Names

SEVERAL = {
    "ServerState": "every method has one",
    "ClientState": "every method has one",
    "Budget": "a comparison's, and pFedGate's, whose name is in the bytes of saved models",
}
"""Names that several classes may have: the two of the contract, and what could not be renamed without other harm."""


def test_no_two_classes_have_one_name() -> None:
    found = defaultdict(set)
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(str(file.relative_to(ROOT)))
    several = {name: sorted(files) for name, files in found.items() if len(files) > 1}
    new = {name: files for name, files in several.items() if name not in SEVERAL}
    assert new == {}
    assert set(SEVERAL) - set(several) == set(), "these are unique now"


WORDS = re.compile(r"\b(ack\w*|acknowledg\w*|in flight|lost repl\w+|retransm\w*|waiting|stamp\w*)\b", re.IGNORECASE)


@pytest.mark.parametrize("file", sorted((ROOT / "methods").rglob("*.py")), ids=lambda file: file.stem)
def test_a_method_speaks_neither_of_delivery_nor_of_buffers(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert WORDS.findall(text) == []
    declared = re.compile(r"^    buffers: ClassVar\[Literal\[\"averaged\", \"own\"\]\] = \"own\"$", re.MULTILINE)
    assert "buffers" not in declared.sub("", text), "a method declares who has them, and no more"
