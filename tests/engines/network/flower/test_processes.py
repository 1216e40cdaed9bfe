"""What is passed on of a run's output."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='the network needs Flower: pip install "sparsona[flower]"')

from sparsona.engines.network.flower import processes
from sparsona.engines.network.flower.processes import Flwr, LogRelay
from sparsona.errors import RunError

pytestmark = pytest.mark.network

BEFORE = ["Using SuperLink: sparsona", "Successfully started run 77", "INFO : Starting logstream for run_id `77`"]


def test_a_log_that_is_sent_again_goes_on_where_it_broke_off() -> None:
    said: list[str] = []
    heard = LogRelay(said.append)
    for line in [*BEFORE, "round 1", "round 2"]:
        heard.line(line)
    for _ in range(2):
        heard.again()
        for line in [BEFORE[-1], "round 1", "round 2", "round 3"]:
            heard.line(line)
    assert said == [*BEFORE, "round 1", "round 2", "round 3"]
    assert heard.number == "77"


FAILED = [
    "ERROR :     ServerApp raised an exception",
    "Traceback (most recent call last):",
    "RunError: va did not join",
]


def test_of_a_run_that_says_why_it_ends_only_that_is_kept() -> None:
    said: list[str] = []
    heard = LogRelay(said.append)
    for line in [*BEFORE, "va is here", "sparsona: va did not join; start it", *FAILED]:
        heard.line(line)
    assert said == [*BEFORE, "va is here"]
    assert heard.problem == "va did not join; start it"
    heard.again()
    for line in [BEFORE[-1], "va is here", "sparsona: va did not join; start it", *FAILED, "Exit Code: 201"]:
        heard.line(line)
    assert said == [*BEFORE, "va is here"]


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    said: list[str] = []
    heard = LogRelay(said.append)
    for line in [*BEFORE, *FAILED]:
        heard.line(line)
    assert said == [*BEFORE, *FAILED]
    assert not heard.problem


@pytest.fixture
def flwr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flwr:
    """A Flower whose stream ends in the middle of a run, once. The file `why` has the last lines of one that fails."""
    script = tmp_path / "commands.py"
    script.write_text(
        "import json, pathlib, sys\n"
        f"place = pathlib.Path({str(tmp_path)!r})\n"
        "command = json.loads(sys.argv[1])[0]\n"
        "(place / 'asked').open('a').write(' '.join(command) + chr(10))\n"
        f"before = {BEFORE!r} if command[0] == 'run' else {BEFORE[-1:]!r}\n"
        "ended = command[0] == 'log'\n"
        "last = (place / 'why').read_text().splitlines() if (place / 'why').exists() else ['round 2']\n"
        "print(*before, 'round 1', *(last if ended else []), chr(0), sep=chr(10))\n"
        "how = 'failed' if (place / 'why').exists() else 'completed'\n"
        "runs = [{'run-id': '77', 'status': 'finished:' + how if ended else 'running'}]\n"
        "print(json.dumps({'success': True, 'runs': runs}), chr(0), sep=chr(10))\n"
    )
    monkeypatch.setattr(Flwr, "_command", lambda self, commands: [sys.executable, str(script), json.dumps(commands)])
    monkeypatch.setattr(processes, "AGAIN", 0.0)
    return Flwr(tmp_path, "127.0.0.1:1", tmp_path / "ca.crt")


def test_a_run_is_watched_to_its_end_though_the_stream_breaks_off(flwr: Flwr, tmp_path: Path) -> None:
    said: list[str] = []
    assert flwr.run(tmp_path / "app", said.append) == "finished:completed"
    assert said == [*BEFORE, "round 1", "round 2"]
    assert [line.split()[0] for line in (tmp_path / "asked").read_text().splitlines()] == ["run", "log"]


def test_a_run_that_cannot_go_on_is_one_line(flwr: Flwr, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "why").write_text("\n".join(["sparsona: va did not join; start it", *FAILED]))
    with pytest.raises(RunError, match=r"^va did not join; start it$"):
        flwr.run(tmp_path / "app", said.append)
    assert said == [*BEFORE, "round 1"]


def test_a_run_with_a_mistake_of_ours_ends_with_its_traceback(flwr: Flwr, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "why").write_text("\n".join(FAILED))
    assert flwr.run(tmp_path / "app", said.append) == "finished:failed"
    assert said == [*BEFORE, "round 1", *FAILED]
