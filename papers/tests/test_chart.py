"""The chart of a page is made of its table, and only where the page shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparsona_papers.reproduce import HEADLINES, chart

TABLE = "| claim | verdict | evidence |\n|---|---|---|\n| A above B | {word} | day: +0.0948 ± 0.0192, 3 seeds |"


def page(folder: Path, word: str, picture: str) -> Path:
    written = folder / "study.md"
    written.write_text("\n\n".join([picture, HEADLINES[0], TABLE.format(word=word), HEADLINES[1]]))
    return written


@pytest.mark.parametrize("word", ["yes", "no", "within noise"])
def test_the_chart_names_the_claim_and_is_the_same_twice(tmp_path: Path, word: str) -> None:
    drawn = chart(page(tmp_path, word, "![differences](img/study.svg)"))
    assert drawn == tmp_path / "img" / "study.svg"
    first = drawn.read_bytes()
    chart(page(tmp_path, word, "![differences](img/study.svg)"))
    assert first.startswith(b"<?xml")
    assert drawn.read_bytes() == first


def test_another_verdict_is_another_picture(tmp_path: Path) -> None:
    drawn = {chart_of(tmp_path, word) for word in ("yes", "no")}
    assert len(drawn) == 2


def chart_of(folder: Path, word: str) -> bytes:
    drawn = chart(page(folder, word, "![differences](img/study.svg)"))
    assert drawn is not None
    return drawn.read_bytes()


def test_a_page_without_a_picture_gets_none(tmp_path: Path) -> None:
    assert chart(page(tmp_path, "yes", "no picture")) is None
    assert not (tmp_path / "img").exists()
