"""What a contributor meets first: make's help, the list of checks, the hooks."""

from __future__ import annotations

import re
import subprocess

from pages import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def make(*words: str) -> str:
    return subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_bare_make_shows_every_target() -> None:
    shown = set(re.findall(r"^make ([a-z-]+)", make(), re.MULTILINE))
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert shown == set(phony[1].replace("\\", "").split()) - {"help"}
    assert make() == make("help")


def test_the_checks_of_ci_are_those_of_make_check() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and line[0] != "#"]
    assert commands[-1] == "make check"
    assert [line for line in commands if line.startswith("make")] == ["make check"]
    (listed,) = re.findall(r"^CHECKS := (.*)$", MAKEFILE, re.MULTILINE)
    assert listed in make("--dry-run", "check")


def test_hooks_run_what_lint_and_types_run() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    called = {entry.removesuffix(" --force-exclude") for entry in re.findall(r"entry: \.venv/bin/(.*)", hooks)}
    assert called == {"ruff check", "ruff format --check", "mypy"}
    assert all(f"$(BIN)/{command}" in MAKEFILE for command in called)
    assert "https:" not in hooks
