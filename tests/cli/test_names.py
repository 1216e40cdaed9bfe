"""Names from files reach the terminal as visible codes, whatever the command: no escape, no markup, no second line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

TITLE, CLEAR, BOLD = "\x1b]0;owned\x07", "\x1b[2J", "[/bold]"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Three owners whose file, column, category and class names are written for a terminal to obey."""
    folder = tmp_path / f"wards{CLEAR}"
    folder.mkdir()
    rng = np.random.default_rng(7)
    for ward in (f"east{TITLE}", "north[bold]", "west\u202e"):
        lines = [f"age{BOLD},pulse{CLEAR},sex{TITLE},ill"]
        for _ in range(60):
            age, pulse, sex = rng.integers(20, 90), rng.normal(70, 8), rng.choice([f"f{CLEAR}", f"m{BOLD}"])
            lines.append(f"{age},{pulse:.2f},{sex},{f'yes{CLEAR}' if age + pulse > 128 else f'no{BOLD}'}")
        (folder / f"{ward}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_no_command_lets_a_name_reach_the_terminal(sparsona, hostile: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    data, run = f"folder:{hostile}", tmp_path / f"run{CLEAR}"
    columns = ["--target", "ill", "--categorical", f"sex{TITLE}"]
    small = ["--data", data, *columns, "--rounds", "2"]
    rows = next(hostile.glob("east*"))
    model = tmp_path / f"model{CLEAR}.safetensors"
    client = rows.stem
    commands: list[list[object]] = [
        ["data", "show", data, *columns],
        ["run", "fedavg", *small, "--out", run],
        ["run", "fedavg", *small, "--out", run],
        ["run", f"nothing{CLEAR}"],
        ["run", "fedavg", *small, "--set", f"lr{CLEAR}=1"],
        ["run", "fedavg", "--data", data, "--target", f"nothing{CLEAR}"],
        ["compare", "fedavg", "local", *small, "--out", tmp_path / f"compare{CLEAR}"],
        ["wire", run],
        ["report", run, "--out", tmp_path / f"report{CLEAR}.html"],
        ["draw", run, "--out", tmp_path / f"drawn{CLEAR}.svg"],
        ["export", run, "--client", client, "--to", model],
        ["export", run, "--client", f"nobody{CLEAR}", "--to", model],
        ["predict", model, rows, "--out", tmp_path / f"predicted{CLEAR}.csv"],
        ["predict", model, tmp_path / f"absent{CLEAR}.csv"],
        ["methods", f"nothing{CLEAR}"],
        ["new", "method", f"nothing{CLEAR}"],
        ["node", "--state", tmp_path, "--accept", f"nothing{CLEAR}"],
        [f"nothing{CLEAR}"],
    ]
    codes: list[tuple[object, int, str]] = []
    for words in commands:
        code, out, err = sparsona(*words)
        said = out + err
        assert "Traceback" not in said, words
        assert code in (0, 2), (words, said)
        codes.append((words[0], code, said))
        rest = said.replace("\n", "").replace("\r", "")
        assert rest.isprintable(), (words, [c for c in rest if not c.isprintable()])
    assert {word for word, code, _ in codes if code == 0} >= {
        "data",
        "run",
        "compare",
        "wire",
        "report",
        "export",
        "predict",
    }
