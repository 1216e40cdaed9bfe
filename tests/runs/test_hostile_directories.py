"""Run directories that were tampered with, damaged, shared or full: one clear line, and no file outside is touched."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparsona
from sparsona.cli import main
from sparsona.errors import RunError, SparsonaError
from sparsona.runs.checkpoint import Checkpointer, _Manifest
from sparsona.runs.directory import SUMMARY, RunDirectory
from sparsona.runs.state import pack
from sparsona.runs.store import SpillStore


def train(out: Path, rounds: int = 2, method: str = "local", resume: bool = False, **settings: Any) -> dict[str, Any]:
    found = sparsona.run(
        method, clients=2, rounds=rounds, partition="iid", engine="inprocess", out=out, resume=resume, **settings
    )
    return found.summary


def command(*words: object) -> tuple[int, str]:
    """The exit code and what is said on standard error."""
    told = subprocess.run(
        [sys.executable, "-c", "from sparsona.cli import main; main()", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return told.returncode, told.stderr


def refused(out: Path) -> str:
    """The one line with which a resume is refused."""
    with pytest.raises(SparsonaError) as caught:
        train(out, resume=True)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    train(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("inside", ["checkpoint/clients", "checkpoint", "models"])
def test_a_linked_folder_is_refused_and_what_it_leads_to_stays(finished: Path, tmp_path: Path, inside: str) -> None:
    victim = tmp_path / "victim"
    (finished / inside).rename(victim)
    for name in ("c9.7", "thesis.1", "server.9", "notes.txt"):
        (victim / name).write_text("precious")
    (finished / inside).symlink_to(victim)
    before = sorted(victim.rglob("*"))
    assert f"{inside} is a link or a device" in refused(finished)
    assert sorted(victim.rglob("*")) == before


@pytest.mark.parametrize(
    "name",
    [
        "records.jsonl",
        "summary.json",
        "summary.json.part",
        "checkpoint/manifest.json.part",
        "checkpoint/server.3",
        "checkpoint/server.2",
        "checkpoint/clients/c0.3",
        "models/c0.safetensors",
        "similarity.json",
    ],
)
def test_a_linked_file_is_refused_and_what_it_leads_to_stays(finished: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (finished / name).unlink(missing_ok=True)
    (finished / name).symlink_to(victim)
    assert f"{name} is a link or a device" in refused(finished)
    assert victim.read_text() == "precious"


def test_a_pipe_is_refused_and_not_waited_for(finished: Path) -> None:
    (finished / "checkpoint" / "manifest.json").unlink()
    os.mkfifo(finished / "checkpoint" / "manifest.json")
    assert "manifest.json is a link or a device" in refused(finished)


def test_a_second_name_of_the_records_is_refused(finished: Path, tmp_path: Path) -> None:
    os.link(finished / "records.jsonl", tmp_path / "backup.jsonl")
    before = (tmp_path / "backup.jsonl").read_bytes()
    assert "hard link" in refused(finished)
    assert (tmp_path / "backup.jsonl").read_bytes() == before


def test_a_link_to_the_whole_directory_is_as_good_as_the_directory(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(finished)
    assert train(tmp_path / "link", resume=True)["rounds"] == 2


def test_only_files_of_our_names_are_removed(finished: Path) -> None:
    kept = [finished / "checkpoint" / name for name in ("notes.txt", "server.old", "clients/readme", "clients/a b.1")]
    gone = [finished / "checkpoint" / "clients" / "c0.99", finished / "checkpoint" / "clients" / "stranger.1"]
    for path in (*kept, *gone):
        path.write_text("left here")
    train(finished, resume=True)
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in gone), "versions that no checkpoint names are left from a crash"


def test_nothing_is_removed_when_a_resume_is_refused(finished: Path) -> None:
    stranger = finished / "checkpoint" / "clients" / "c0.99"
    stranger.write_text("left here")
    (finished / "checkpoint" / "clients" / "c1.2").write_bytes(b"damage")
    assert "state of client c1 is damaged" in refused(finished)
    assert stranger.exists()


@pytest.mark.parametrize("name", ["server.2", "loop.2", "clients/c0.2", "clients/c1.2", "manifest.json"])
def test_one_flipped_bit_in_any_file_of_a_checkpoint_is_found(tmp_path: Path, name: str) -> None:
    train(tmp_path / "run", method="fedavg" if "clients" not in name else "local")
    file = tmp_path / "run" / "checkpoint" / name
    data = file.read_bytes()
    for position in (len(data) - 1, len(data) // 2, 20):
        file.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(RunError, match="damaged"):
            train(tmp_path / "run", method="fedavg" if "clients" not in name else "local", resume=True)
    file.write_bytes(data)
    train(tmp_path / "run", method="fedavg" if "clients" not in name else "local", resume=True)


def test_every_file_is_on_the_disk_before_the_manifest_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []
    sync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{handle}")).name))
        sync(handle)

    def replaced(self: Path, target: Path) -> Path:
        events.append(("replace", target.name))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    train(tmp_path / "run", rounds=1)
    monkeypatch.undo()
    at = events.index(("replace", "manifest.json"))
    before = {name for what, name in events[:at] if what == "sync"}
    assert {"c0.1", "c1.1", "clients", "server.1", "loop.1", "checkpoint", "manifest.json.part"} <= before
    assert ("sync", "records.jsonl") in events[:at]
    assert events[at + 1] == ("sync", "checkpoint")
    done = events.index(("replace", "summary.json"))
    assert {"c0.safetensors", "c1.safetensors", "models"} <= {name for what, name in events[at:done] if what == "sync"}


HOLD = """
import sys, time, sparsona
def wait(report):
    print("running", flush=True)
    time.sleep(60)
sparsona.run("local", clients=2, rounds=2, partition="iid", engine="inprocess", out=sys.argv[1], on_round=wait)
"""


def test_two_at_once_get_one_clear_line_and_a_dead_one_does_not_block(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = subprocess.Popen([sys.executable, "-c", HOLD, out], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "running\n"
    try:
        code, told = command("run", out / "experiment.toml", "--resume", "--quiet")
        assert code == 2
        assert (
            told == f"sparsona: {out} is in use by another process: wait until it has ended, or choose another --out\n"
        )
    finally:
        first.kill()
        first.wait()
    assert train(out, resume=True)["rounds"] == 2


def test_the_same_process_cannot_open_a_directory_twice_either(tmp_path: Path) -> None:
    folder = RunDirectory(tmp_path / "run")
    with folder.open("x = 1", lambda file: "x = 1", resume=False), pytest.raises(RunError, match="in use"):
        RunDirectory(tmp_path / "run").open("x = 1", lambda file: "x = 1", resume=True).__enter__()
    with folder.open("x = 1", lambda file: "x = 1", resume=True):
        pass


def test_what_a_crash_leaves_before_the_experiment_is_written_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "experiment.toml.part").write_text("method = ")
    assert train(tmp_path / "run")["rounds"] == 2


def signed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest as somebody would who knows how it is hashed."""
    file = folder / "checkpoint" / "manifest.json"
    found = json.loads(file.read_text())
    change(found)
    if "sha256" in found:
        text = _Manifest.model_construct(**found).model_dump_json(exclude={"sha256"}, warnings=False)
        found["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(found))


@pytest.mark.parametrize(
    "change",
    [
        {"done": 10**15},
        {"done": 3},
        {"done": -1},
        {"done": 10**400},
        {"done": "2"},
        {"done": None},
        {"done": 1},
        {"records": 2**52},
        {"records": -5},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": -1.0},
        {"clients": []},
        {"clients": {"c0": [2]}},
        {"clients": {"c0": [-2, "0" * 64]}},
        {"clients": {"../../../etc/passwd": [1, "0" * 64]}},
        {"clients": {"c0": [10**30, "0" * 64]}},
        {"server": "0" * 64},
        {"loop": "x"},
        {"extra": 1},
    ],
    ids=str,
)
def test_absurd_manifests_are_one_line(finished: Path, change: dict[str, Any]) -> None:
    signed(finished, lambda found: found.update(change))
    before = sorted(finished.rglob("*"))
    refused(finished)
    assert sorted(finished.rglob("*")) == before


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"clients":' * 50_000,
        '{"done":' + "9" * 5000 + "}",
        '{"done": 1e999}',
        '{"done": 2, "done": 2}',
        "",
        "null",
        "\0" * 100,
    ],
    ids=range(8),
)
def test_manifests_of_any_shape_are_one_line(finished: Path, text: str) -> None:
    (finished / "checkpoint" / "manifest.json").write_text(text)
    refused(finished)


def test_a_state_of_another_type_is_one_line(finished: Path) -> None:
    other = pack({"weights": 3})
    for name in ("server", "loop"):
        (finished / "checkpoint" / f"{name}.2").write_bytes(other)
        signed(finished, lambda found, name=name: found.update({name: hashlib.sha256(other).hexdigest()}))  # type: ignore[misc]
        assert "a state is a dict, not a" in refused(finished)


def test_the_server_of_a_finished_run_can_be_read(tmp_path: Path) -> None:
    from sparsona.ops.server import ServerState

    train(tmp_path / "run", method="fedavg")
    checkpointer = Checkpointer(tmp_path / "run" / "checkpoint")
    assert isinstance(checkpointer.server(ServerState), ServerState)


FULL = """
import resource, signal, sys, sparsona
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def fill(report):
    if report.round == 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
try:
    sparsona.run("local", clients=2, rounds=2, partition="iid", engine="inprocess", out=sys.argv[1], on_round=fill)
except OSError as error:
    print("OSError", error.strerror)
"""


def test_a_disk_that_is_full_when_models_are_saved_is_an_os_error_and_loses_nothing(tmp_path: Path) -> None:
    """The command line makes one line of an OSError. A limit of file sizes stands in for the disk."""
    told = subprocess.run([sys.executable, "-c", FULL, tmp_path / "full"], capture_output=True, text=True, check=True)
    assert told.stdout == "OSError File too large\n"
    assert train(tmp_path / "full", resume=True)["digest"] == train(tmp_path / "whole")["digest"]


def fails(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the command line says, with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["sparsona", *words])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr().err
    assert (stop.value.code, told.count("\n")) == (2, 1)
    return told


def test_a_summary_without_any_of_its_keys_is_one_line(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = finished / "summary.json"
    whole = json.loads(file.read_text())
    broken = [{key: value for key, value in whole.items() if key != gone} for gone in (*SUMMARY, "accuracy")]
    broken += [
        whole | {"bytes": {"up": 1}},
        whole | {"bytes": {**whole["bytes"], "parts": []}},
        whole | {"rounds": "2"},
    ]
    for summary in broken:
        file.write_text(json.dumps(summary))
        told = fails(["wire", str(finished)], monkeypatch, capsys)
        assert "summary.json is damaged" in told
    file.write_text("[" * 100_000)
    assert "summary.json is damaged" in fails(["wire", str(finished)], monkeypatch, capsys)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 100_000 + "]" * 100_000,
        "options = " + "{a=" * 50_000 + "1" + "}" * 50_000,
        "options" + ".a" * 100_000 + " = 1",
        "[" + '"a b"."\\""' + ".1" * 100_000 + "]",
        "[training]\nlr" + " . a" * 500 + " = 1",
    ],
    ids=["arrays", "tables", "keys", "headers", "spaces"],
)
def test_experiments_100_000_deep_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "deep.toml"
    file.write_text('method = "fedavg"\n' + text)
    assert "is nested too deeply" in fails(["run", str(file)], monkeypatch, capsys)


def test_experiments_that_are_devices_or_endless_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "long.toml").write_text("# long\n" * 200_000)
    assert "not a regular file" in fails(["run", str(tmp_path / "zero.toml")], monkeypatch, capsys)
    assert "too long" in fails(["run", str(tmp_path / "long.toml")], monkeypatch, capsys)


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_saves_like_ctrl_c(tmp_path: Path, name: signal.Signals) -> None:
    run = tmp_path / "run"
    words = ["run", "local", "--rounds", 3000, "--clients", 6, "--engine", "inprocess", "--quiet", "--out", run]
    process = subprocess.Popen(
        [sys.executable, "-c", "from sparsona.cli import main; main()", *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
    )
    manifest = run / "checkpoint" / "manifest.json"
    while not manifest.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(name)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told.count("\n")) == (130, 1)
    assert "interrupted: continue with sparsona run" in told
    assert json.loads(manifest.read_text())["done"] >= 1


def test_a_handler_of_the_callers_own_stays(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        mine = signal.getsignal(signal.SIGTERM)
        seen: list[object] = []
        sparsona.run(
            "local", clients=2, rounds=1, on_round=lambda report: seen.append(signal.getsignal(signal.SIGTERM))
        )
        assert seen == [mine]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("moment", ["before the manifest", "after the manifest"])
def test_a_crash_around_the_manifest_changes_no_byte_that_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Downlinks are coded against what clients hold: a checkpoint that counts has all of it on the disk."""
    whole = train(tmp_path / "whole", 4, "fedavg")
    done = iter(range(6 if moment == "after the manifest" else 2))  # three stores are swept per round

    def crash(*_: object, **__: object) -> None:
        if next(done, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if moment == "after the manifest":
            patched.setattr(SpillStore, "sweep", crash)
        else:
            patched.setattr("sparsona.runs.checkpoint.sync", crash)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "broken", 4, "fedavg")
    again = train(tmp_path / "broken", 4, "fedavg", resume=True)
    assert (again["digest"], again["bytes"]) == (whole["digest"], whole["bytes"])


def test_a_missing_reference_is_one_line(tmp_path: Path) -> None:
    train(tmp_path / "run", 2, "fedavg")
    references = list((tmp_path / "run" / "checkpoint" / "references").iterdir())
    assert references
    references[0].unlink()
    with pytest.raises(RunError, match=f"reference {references[0].name} is damaged or missing"):
        train(tmp_path / "run", 2, "fedavg", resume=True)


def test_the_command_to_go_on_with_is_quoted(tmp_path: Path) -> None:
    run = tmp_path / "my runs; $(a)"
    run.mkdir()
    (run / "experiment.toml").write_text('method = "fedavg"\n')
    with pytest.raises(RunError, match="is not finished") as caught:
        RunDirectory(run).summary()
    assert f"--out '{run}' --resume" in str(caught.value)
