"""The site: generated tables say what the program says; pictures, formulas and links work; nothing is loaded."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pages import ROOT

from sparsona.experiment import all_settings
from sparsona.methods import METHODS
from sparsona.options import options_of

GENERATE = ROOT / "docs" / "generate"


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module with the tables."""
    monkeypatch.syspath_prepend(GENERATE)
    return importlib.import_module("tables")


def test_every_setting_stands_on_its_page_with_a_meaning(generate: ModuleType) -> None:
    page = generate.settings_page()
    kept = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert kept == page, "docs/settings.md is not what docs/generate/tables.py makes: write settings_page() there"
    for setting in all_settings():
        assert setting.text, f"nothing says what {setting.name} means"
        assert f"| `{setting.name}` | " in page
    assert "| `training.momentum` | float >= 0, < 1 | `0.0` | momentum of sgd |" in page


@pytest.mark.parametrize("name", METHODS.names())
def test_a_methods_page_has_all_of_its_options(name: str, generate: ModuleType) -> None:
    table = generate.options_table(name, {})
    for option in options_of(METHODS.get(name)):
        assert f"| `{option.name}` | " in table


def test_a_symbol_of_no_option_is_an_error(generate: ModuleType) -> None:
    with pytest.raises(ValueError, match="nothing is no option of fedavg"):
        generate.options_table("fedavg", {"nothing": "x"})


def test_a_method_without_a_page_has_a_skeleton(generate: ModuleType) -> None:
    assert "McMahan" in generate.skeleton("fedavg")
    assert "<!-- options -->" in generate.skeleton("fedavg")


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "methods").glob("*.md")), ids=lambda page: page.stem)
def test_a_written_page_is_of_a_method_and_complete(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.stem == "index":
        return
    METHODS.check(page.stem)
    for part in ("```picture", "$$", "<!-- options -->", "<!-- cost -->", "## When it fails"):
        assert part in text, f"{page.name} has no {part}"


def test_a_picture_is_drawn_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(GENERATE)
    pictures = importlib.import_module("pictures")
    drawn = pictures.draw("server  ss..  the model\ndown  s.  a <part>\nup  p  n_k\nclient  pp  its own")
    assert drawn.count("<rect") == 2 + 4 + 2 + 1 + 2
    assert "a &lt;part&gt;" in drawn
    assert 'aria-label="the server has the model; down goes a &lt;part&gt;' in drawn
    with pytest.raises(ValueError, match="PLACE CELLS LABEL"):
        pictures.draw("nowhere ss the model")


def test_the_page_about_privacy_names_the_methods_that_keep_statistics() -> None:
    text = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    told = text.partition("### BatchNorm\n")[2].partition("\n## ")[0]
    assert re.findall(r"`([a-z0-9-]+)`", told) == sorted(name for name, kind in METHODS if kind.buffers == "own")


def test_measured_methods_are_described_on_the_page_about_privacy(generate: ModuleType) -> None:
    text = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    assert [name for name in generate.costs()["methods"] if f"`{name}`" not in rows] == []


def test_loads_from_elsewhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<script src="https://cdn.example/x.js"></script><a href="https://x">x</a>')
    (tmp_path / "style.css").write_text("@import 'https://fonts.example/x.css';")
    done = subprocess.run([sys.executable, GENERATE / "offline.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "page.html: <script> https://cdn.example/x.js" in done.stderr
    assert "style.css" in done.stderr
    assert done.stderr.count("https://x\n") == 0


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: make docs does it")
def test_the_site_builds_strictly_and_loads_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run([sys.executable, GENERATE / "offline.py", site], check=True)
    shown = (site / "methods" / "fedpse.html").read_text(encoding="utf-8")
    assert "<math" in shown
    assert '<svg class="picture"' in shown
    assert "arithmatex" not in shown


def test_the_charts_and_tables_of_speed_are_made_from_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(GENERATE)
    speed = importlib.import_module("speed")
    kept = json.loads(speed.KEPT.read_text(encoding="utf-8"))
    for chart in speed.CHARTS:
        drawn = (ROOT / "docs" / "img" / chart.file).read_text(encoding="utf-8")
        assert drawn == speed.drawn(chart, kept), "python docs/generate/speed.py"
    page = speed.PAGE.read_text(encoding="utf-8")
    assert page == speed.page(page, kept), "python docs/generate/speed.py"
    assert all(line.count("|") <= 7 for line in page.splitlines()), "a table has at most six columns"


def test_a_bar_is_as_long_as_its_share_of_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(GENERATE)
    speed = importlib.import_module("speed")
    rows = {"(b) the limit": {"rates": [100.0], "mb": 0}, "(c) sparsona fedavg": {"rates": [40.0, 60.0], "mb": 7}}
    work = {"W9": {"unit": "updates", "rows": rows, "date": "2026-11-18", "machine": "two cores"}}
    drawn = speed.drawn(speed.Chart("x.svg", "a < b", ("W9",)), work)
    assert "a &lt; b" in drawn
    assert [float(width) for width in re.findall(r'<rect x="250" y="\d+" width="([\d.]+)" height="16"', drawn)] == [
        speed.WIDTH, speed.WIDTH / 2,
    ]  # fmt: skip
    assert "| fedavg | 50 | 40 .. 60 | 0.50 | 7 |" in speed.table("W9", work["W9"])
