"""No module of Flower is used that is neither public nor in the list."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

from sparsona.engines.network.flower import private

ROOT = Path(__file__).parents[4]
NETWORK = ROOT / "src" / "sparsona" / "engines" / "network"
PUBLIC = ("flwr", "flwr.app", "flwr.serverapp", "flwr.clientapp")


def used() -> set[str]:
    found: set[str] = set()
    for file in NETWORK.rglob("*.py"):
        if file.name == "private.py":
            continue
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found.update(name for name in names if name.split(".")[0] == "flwr")
        found.update(re.findall(r'"(flwr(?:\.\w+)+)"', text))
    return found


def test_what_is_used_of_flower_is_public_or_in_the_list() -> None:
    assert used() - set(PUBLIC) == set(private.PRIVATE)


def test_the_extra_allows_the_supported_minors() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    first, last = (int(minor.partition(".")[2]) for minor in (private.SUPPORTED[0], private.SUPPORTED[-1]))
    assert extras["flower"] == [f"flwr>=1.{first},<1.{last + 1}"]


@pytest.mark.network
@pytest.mark.parametrize("name", sorted(private.PRIVATE))
def test_the_private_modules_are_there(name: str) -> None:
    pytest.importorskip("flwr", reason="needs flwr")
    importlib.import_module(name)
