"""Every command and every Python block of README and docs is executed; what is too long or needs others is checked.

A page runs in a folder of its own, from its first line to its last. Runs are made small: two rounds, few clients, and
the digits in the place of a data set that must be fetched. Nothing else of a command is changed.
"""

from __future__ import annotations

import doctest
import re
import sys
import tomllib
import types
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pages
import pytest
import typer
from pages import ROOT, Snippet, has_placeholder, snippets

from sparsona import cli
from sparsona.experiment import build

LONG = ("reproduce", "card", "deploy", "server", "node", "demo", "sweep", "watch")
"""Commands that run long or want a network. Their tests are elsewhere; here their options are checked."""
ELSEWHERE = ("network.md", "scale.md")
"""Pages about other machines: their commands are checked."""
FETCHED = ("mnist", "fashion-mnist", "cifar-10", "cifar-100", "emnist", "femnist", "imdb", "covtype", "heart-disease")
FEW = {"--rounds": 2, "--seeds": 1, "--trials": 2, "--clients": 5, "--repeats": 2}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Calls the entry point in this process, in a folder with the tables of three wards."""
    monkeypatch.chdir(tmp_path)
    _tables(tmp_path)

    def call(words: list[str], where: str) -> str:
        monkeypatch.setattr(sys, "argv", words)
        capsys.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        told = capsys.readouterr()
        assert code == 0, f"{where}: {' '.join(words)}\n{told.err[-2000:]}"
        return told.out

    return call


def _tables(folder: Path) -> None:
    data = ROOT / "docs" / "data.md"
    first = next(s for s in snippets(data) if s.kind == "python" and "wards" in s.text)
    exec(compile(first.text, str(first), "exec"), {})
    assert (folder / "wards" / "east.csv").exists()
    (folder / "hospitals").mkdir()
    for hospital, ward in {"cleveland": "north", "hungarian": "south", "va": "east"}.items():  # those of the README
        head, *rows = (folder / "wards" / f"{ward}.csv").read_text(encoding="utf-8").split()
        wider = [f"pain,{head}", *(f"{number % 4 + 1},{row}" for number, row in enumerate(rows))]
        (folder / "hospitals" / f"{hospital}.csv").write_text("\n".join(wider), encoding="utf-8")
    (folder / "va-new.csv").write_text("pain,age,sex,pressure\n2,45,f,118\n", encoding="utf-8")


def small(words: list[str]) -> list[str]:
    """The command with fewer rounds, clients and seeds, and with data that are there."""
    out, name = list(words), words[1]
    again = "--resume" in out or any(word.endswith(".toml") for word in out)
    for option, most in FEW.items():
        if option in out and (not again or option == "--seeds"):
            at = out.index(option) + 1
            out[at] = str(min(int(out[at]), most + again))
    if "--data" in out and out[out.index("--data") + 1] in FETCHED:
        out[out.index("--data") + 1] = "digits"
        for option in ("--model", "--target"):
            if option in out:
                del out[out.index(option) : out.index(option) + 2]
        if "groups" in out:
            out[out.index("groups")] = "iid"
            out[out.index("--clients") + 1] = "5"
    if name in ("run", "compare", "tune", "choose") and "--rounds" not in out and not again:
        out += ["--rounds", "2"]
    if name == "choose":
        out[2:2] = ["fedavg", "fedpse"]
    if name == "compare" and "--seeds" not in out and not again:
        out += ["--seeds", "1"]
    if name == "tune" and "--trials" not in out and not again:
        out += ["--trials", "2"]
    return [word for word in out if word != "--open"]


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page: Path, shell: Callable[..., str]) -> None:
    spaces: dict[str, object] = {}
    for snippet in snippets(page):
        if snippet.kind == "command":
            _command(snippet, shell, "papers" in page.relative_to(ROOT).parts or page.name in ELSEWHERE)
        elif snippet.kind == "python" and ">>>" in snippet.text:
            _examples(snippet)
        elif snippet.kind == "python" and "title=" not in snippet.info and not _is_example(snippet.text):
            _block(snippet, spaces)
        elif snippet.kind == "toml" and "method =" in snippet.text:
            build(tomllib.loads(snippet.text))


def _command(snippet: Snippet, shell: Callable[..., str], only_check: bool) -> None:
    words = snippet.words
    if words[0] != "sparsona":
        check_program(words, snippet)
    elif has_placeholder(snippet) or only_check or words[1] in LONG or words[1:3] == ["data", "get"]:
        check_options(words, snippet)
    else:
        check_options(words, snippet)
        if "fedbabu" not in words or words[1] == "new":  # a plug-in: test_write_a_method.py installs and runs it
            shell(small(words), str(snippet))


def check_options(words: list[str], snippet: Snippet) -> None:
    """The command exists and takes these options."""
    command, rest = typer.main.get_command(cli.app), words[1:]
    while (inner := getattr(command, "commands", None)) and rest and not rest[0].startswith("-"):
        assert rest[0] in inner, f"{snippet}: there is no command {' '.join(words)}"
        command, rest = inner[rest[0]], rest[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert given <= {*known, "--help"}, f"{snippet}: {command.name} has no {sorted(given - known)}"


def check_program(words: list[str], snippet: Snippet) -> None:
    """What it names is there: a file and its options, a target of make, an extra."""
    if words[0] == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in words[1:] if "=" not in word} <= targets, f"{snippet}: {words}"
    elif words[0] == "pip":
        for folder in (word for flag, word in pairwise(words) if flag == "-e"):
            assert (ROOT / folder / "pyproject.toml").exists(), f"{snippet}: {words}"
        for extras in re.findall(r"sparsona\[([^]]*)\]", " ".join(words)):
            assert set(extras.split(",")) <= set(EXTRAS), f"{snippet}: {words}"
    elif words[0] == "python" and len(words) > 1 and words[1].endswith(".py"):
        known = ROOT / words[1] if "/" in words[1] else ROOT / "examples" / words[1]
        assert known.exists(), f"{snippet}: there is no {words[1]}"
        text = known.read_text(encoding="utf-8")
        for option in (word for word in words[2:] if word.startswith("--")):
            assert f'"{option}"' in text, f"{snippet}: {words[1]} has no {option}"
    elif words[0] == "bash":
        assert (ROOT / words[1]).exists(), f"{snippet}: there is no {words[1]}"


def _examples(snippet: Snippet) -> None:
    test = doctest.DocTestParser().get_doctest(snippet.text, {}, str(snippet), str(snippet.page), snippet.line)
    told: list[str] = []
    found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=told.append)
    assert found.failed == 0, "".join(told)


def _block(snippet: Snippet, spaces: dict[str, object]) -> None:
    module = types.ModuleType(f"page_{abs(hash(str(snippet)))}")
    sys.modules[module.__name__] = module
    module.__dict__.update(spaces)
    exec(compile("\n" * snippet.line + snippet.text, str(snippet.page), "exec"), module.__dict__)
    spaces.update({k: v for k, v in module.__dict__.items() if not k.startswith("__")})


def _is_example(text: str) -> bool:
    """Whether the block is a file of examples/, which has a test of its own."""
    return any(file.read_text(encoding="utf-8") == text for file in (ROOT / "examples").glob("*.py"))


def test_runs_are_made_small() -> None:
    words = ["sparsona", "run", "fedavg", "--data", "mnist", "--model", "lenet5", "--clients", "100", "--rounds", "30"]
    assert small(words) == ["sparsona", "run", "fedavg", "--data", "digits", "--clients", "5", "--rounds", "2"]
    assert small(["sparsona", "report", "runs/x", "--open"]) == ["sparsona", "report", "runs/x"]


def test_a_wrong_option_a_wrong_file_and_a_wrong_target_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("x\n\n    sparsona run fedavg --ronds 3\n    python benchmarks/nothing.py\n    make coffee\n")
    one, two, three = snippets(page)
    with pytest.raises(AssertionError, match="ronds"):
        check_options(one.words, Snippet(ROOT / "README.md", 1, "command", one.text))
    for wrong in (two, three):
        with pytest.raises(AssertionError):
            check_program(wrong.words, Snippet(ROOT / "README.md", 1, "command", wrong.text))
