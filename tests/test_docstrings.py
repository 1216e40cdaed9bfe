"""Every public name of the package says in a sentence what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparsona

ROOT = Path(sparsona.__file__).parent
PAPERS = Path(__file__).parents[1] / "papers" / "src"
FILES = sorted([*ROOT.rglob("*.py"), *PAPERS.rglob("*.py")])
BASES = {
    "Method": "method.py",
    "WeightTransform": "training/job.py",
    "Optimizer": "training/step.py",
    "LocalEngine": "federation/engine.py",
    "WorkerEngine": "engines/turns.py",
    "InProcess": "engines/inprocess.py",
    "RunPlace": "many/__init__.py",
    "GlobalModel": "methods/compressed.py",
    "Averaging": "methods/averaging.py",
    "SplitModel": "methods/split.py",
    "Masked": "methods/_masked.py",
    "Rebasing": "methods/lga.py",
    "BySimilarity": "methods/spfl.py",
    "LocalExpert": "methods/alone.py",
}
"""Classes whose subclasses need not explain again what they override."""
UNDER_WAY = ("engines/network",)
"""Rooms that others are building."""


def bases_of(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0] for base in node.bases} & set(BASES)


def inherited(name: str) -> set[str]:
    """The documented functions of a base class, and of its own base classes."""
    tree = ast.parse((ROOT / BASES[name]).read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    own = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    return own.union(*(inherited(base) for base in bases_of(found)))


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public functions, classes and their public functions that have no docstring."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if not ast.get_docstring(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            known = set().union(*(inherited(base) for base in bases_of(node)))
            for inner in (one for one in node.body if isinstance(one, ast.FunctionDef)):
                if not (inner.name.startswith("_") or inner.name in known or ast.get_docstring(inner)):
                    yield f"{node.name}.{inner.name}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT.parents[1])))
def test_every_public_name_has_a_sentence(file: Path) -> None:
    if file.is_relative_to(ROOT) and str(file.relative_to(ROOT)).startswith(UNDER_WAY):
        pytest.skip("being built")
    assert list(undocumented(ast.parse(file.read_text(encoding="utf-8")))) == []
