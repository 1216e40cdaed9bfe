"""The command line as a person or a script meets it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from sparsona.federation.rounds import Rounds
from sparsona.runs.directory import RunDirectory


def test_a_run_leaves_everything_that_is_promised(sparsona: Any, tmp_path: Path) -> None:
    code, out, _ = sparsona("run", "fedprox", "--rounds", 3, "--clients", 4, "--set", "mu=0.5", "--out", "runs/x")
    assert code == 0
    assert "fedprox on digits: accuracy after 3 rounds" in out
    assert "results: runs/x" in out
    run = tmp_path / "runs" / "x"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["method"] == "fedprox"
    assert summary["options"].items() >= {"mu": 0.5, "merge": "mean"}.items()
    for key in ("data", "model", "clients", "rounds", "seed", "seconds", "peak_rss_mb", "digest"):
        assert key in summary
    for point in ("pre", "post"):
        assert {"mean", "weighted", "bottom_decile", "worst"} <= set(summary["accuracy"][point])
    records = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    assert len(records) == 12
    assert (
        sum(sum(r["up"][kind] for kind in ("header", "positions", "values")) for r in records) == summary["bytes"]["up"]
    )
    assert summary["paper_bytes"]["up"] == 3 * 4 * 4 * summary["weights"]
    assert sorted(p.stem for p in (run / "models").iterdir()) == ["c0", "c1", "c2", "c3"]
    written = tomllib.loads((run / "experiment.toml").read_text())
    assert written["options"].items() >= {"mu": 0.5, "merge": "mean"}.items()
    assert written["model"] == "mlp"


def test_models_that_run_away_are_named_at_the_end(sparsona: Any) -> None:
    one_step = ("--model", "logistic", "--clients", 8, "--quiet", "--set", "training.steps=1")
    code, _, err = sparsona("run", "fedavg", *one_step, "--rounds", 3, "--set", "training.lr=300", "--out", "far")
    assert code == 0
    assert err.startswith("far: warning: the training loss exploded for 7 of 8 clients")
    assert "training.lr" in err
    near = ("--set", "training.lr=0.1", "--out", "near")
    assert sparsona("run", "fedavg", *one_step, "--rounds", 3, *near) == (0, "", "")
    few = ("--rounds", 12, "--sample", 0.25, "--set", "training.lr=300", "--out", "few")
    assert "warning: the training loss exploded" in sparsona("run", "fedavg", *one_step, *few)[2], "clients come late"


def test_a_comparison_names_models_that_run_away_also_where_a_budget_ends_them(sparsona: Any) -> None:
    shared = ("--model", "logistic", "--clients", 4, "--rounds", 6, "--quiet", "--seeds", 1)
    far = ("--set", "training.steps=1", "--set", "training.lr=300", "--budget-mb", 0.03)
    code, _, err = sparsona("compare", "fedavg", *shared, *far, "--out", "both")
    assert code == 0
    assert not RunDirectory(Path("both") / "fedavg-seed0").summary_file.exists()
    assert "fedavg-seed0: warning: the training loss exploded for 4 of 4 clients" in err
    page = (Path("both") / "report.html").read_text(encoding="utf-8")
    assert "fedavg-seed0: the training loss exploded for 4 of 4 clients" in page, "also in the report"


def test_the_experiment_file_runs_again_to_the_same_digest(sparsona: Any, tmp_path: Path) -> None:
    sparsona(
        "run", "fedavg", "--rounds", 2, "--clients", 3, "--sample", 0.5, "--eval-every", 2, "--out", "a", "--quiet"
    )
    code, out, err = sparsona("run", "a/experiment.toml", "--out", "b", "--quiet")
    assert (code, out, err) == (0, "", "")
    one, two = (json.loads((tmp_path / x / "summary.json").read_text()) for x in "ab")
    assert one["digest"] == two["digest"]
    assert one["bytes"] == two["bytes"]


def test_runs_get_names_of_their_own(sparsona: Any, tmp_path: Path) -> None:
    for _ in range(2):
        sparsona("run", "local", "--rounds", 1, "--clients", 2, "--quiet")
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["local-digits-0", "local-digits-0-2"]


def test_export(sparsona: Any, tmp_path: Path) -> None:
    sparsona("run", "local", "--rounds", 1, "--clients", 2, "--out", "r", "--quiet")
    assert sparsona("export", "r", "--client", "c1", "--to", "m/c1.safetensors")[0] == 0
    assert sparsona("export", "r", "--client", "c1", "--to", "c1.npz")[0] == 0
    tensors = load_file(tmp_path / "m" / "c1.safetensors")
    with np.load(tmp_path / "c1.npz") as arrays:
        assert all(np.array_equal(arrays[name], tensor) for name, tensor in tensors.items())
    assert tensors["fc1.weight"].shape == (50, 64)
    code, _, err = sparsona("export", "r", "--client", "c9", "--to", "x.npz")
    assert (code, err.count("\n")) == (2, 1)
    assert "no client 'c9'" in err
    assert (
        "a name that ends in .safetensors, .npz, .onnx" in sparsona("export", "r", "--client", "c1", "--to", "x.pkl")[2]
    )
    assert "not a run directory" in sparsona("export", "nowhere", "--client", "c1", "--to", "x.npz")[2]


def test_methods_as_a_table_and_as_json(sparsona: Any) -> None:
    assert "fedavg-ft" in sparsona("methods")[1]
    listed = {entry["name"]: entry for entry in json.loads(sparsona("methods", "--json")[1])}
    assert listed["fedprox"]["options"]["mu"] == 0.1
    assert listed["local"]["about"]


def test_wire(sparsona: Any) -> None:
    sparsona("run", "fedavg", "--rounds", 2, "--clients", 3, "--out", "c/r", "--quiet")
    code, out, _ = sparsona("wire", "c/r")
    assert code == 0
    assert "positions" in out
    assert sparsona("wire", "c")[0] == 2


def test_resume_without_a_folder_continues_the_last_run_of_that_name(sparsona: Any, tmp_path: Path) -> None:
    words = ("run", "local", "--rounds", 2, "--clients", 2, "--quiet")
    sparsona(*words)
    sparsona(*words)
    (tmp_path / "runs" / "local-digits-0-2" / "summary.json").unlink()
    assert sparsona(*words, "--resume")[0] == 0
    assert (tmp_path / "runs" / "local-digits-0-2" / "summary.json").exists()
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_data_commands(sparsona: Any, tmp_path: Path) -> None:
    assert "heart-disease" in sparsona("data", "list")[1]
    code, out, _ = sparsona("data", "show", "digits", "--partition", "sorted:1.0", "--to", "classes.png")
    assert code == 0
    assert "1797 samples" in out
    assert (tmp_path / "classes.png").read_bytes().startswith(b"\x89PNG")
    assert "needs no download" in sparsona("data", "get", "digits")[1]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run", "fedavgg"], "unknown method 'fedavgg'; did you mean 'fedavg'?"),
        (["run", "missing.toml"], "cannot read missing.toml: No such file"),
        (["run", "fedavg", "--data", "nowhere"], "unknown data set 'nowhere'"),
        (["run", "fedavg", "--partition", "classes:99"], "99"),
        (["run", "fedavg", "--clients", "100000"], "100000"),
        (["run", "fedavg", "--set", "lr=1e30"], "lower it"),
        (["run", "fedavg", "--set", "lrr=1"], "nothing is called 'lrr'; did you mean 'lr'"),
        (["run", "fedavg", "--sample", "7"], "schedule.sample"),
        (["data", "show", "mnistt"], "unknown data set 'mnistt'; did you mean 'mnist'"),
        (["data", "show", "digits", "--partition", "iid", "--to", "x.txt"], "must end in .png"),
        (["run", "fedavg", "--rouns", "3"], "sparsona: no such option: --rouns (Possible options: "),
        (["run", "fedavg", "--rouns", "3"], "; sparsona run --help shows what there is\n"),
        (["run", "fedavg", "--rounds", "x"], "invalid value for '--rounds': "),
        (["runn", "fedavg"], "no such command 'runn'"),
        (["compare", "fedavg", "--seeds"], "'--seeds' requires an argument"),
        (["methods", "fedavg", "fedpse"], "unexpected extra argument"),
        (["export", "r", "--to", "x.npz"], "name a client of the run with --client NAME"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(sparsona: Any, words: list[str], line: str) -> None:
    code, _, err = sparsona(*words)
    assert code == 2
    assert line in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_without_a_command_the_commands_are_shown(sparsona: Any) -> None:
    for words, command in (((), "compare"), (("data",), "get")):
        code, out, err = sparsona(*words)
        assert code == 2
        assert f"\n  {command} " in out + err


@pytest.mark.parametrize(("words", "resumes"), [(("run", "local"), True), (("wire", "r"), False)])
def test_only_what_can_be_resumed_is_said_to_be(
    sparsona: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], resumes: bool
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "r")

    monkeypatch.setattr("sparsona.prepare.prepare", full)
    monkeypatch.setattr(RunDirectory, "summary", full)
    more = "; if rounds were finished they are kept, continue with --resume" if resumes else ""
    assert sparsona(*words) == (2, "", f"sparsona: cannot read or write r: No space left on device{more}\n")


def test_a_missing_data_set_says_what_to_do(sparsona: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARSONA_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    code, _, err = sparsona("run", "fedavg", "--data", "mnist")
    assert code == 2
    assert "sparsona data get mnist" in err


def test_a_broken_experiment_file_keeps_the_run(sparsona: Any, tmp_path: Path) -> None:
    sparsona("run", "local", "--rounds", 1, "--clients", 2, "--out", "r", "--quiet")
    (tmp_path / "r" / "experiment.toml").write_text("method = ")
    code, _, err = sparsona("run", "local", "--rounds", 1, "--clients", 2, "--out", "r", "--resume")
    assert code == 2
    assert "not a TOML file" in err
    assert (tmp_path / "r" / "summary.json").exists()


def command(*words: object) -> list[str]:
    return [sys.executable, "-c", "from sparsona.cli import main; main()", *map(str, words)]


RUN = ("run", "local", "--rounds", 30, "--clients", 6, "--seed", 3, "--engine", "inprocess", "--quiet")


def test_killed_anywhere_and_resumed_it_ends_with_the_same_digest(tmp_path: Path) -> None:
    subprocess.run(command(*RUN, "--out", tmp_path / "whole"), check=True, timeout=120)
    whole = json.loads((tmp_path / "whole" / "summary.json").read_text())
    broken = tmp_path / "broken"
    kills = 0
    for wait in (0.05, 0.2, 0.0, 0.11):
        again = ("--resume",) if (broken / "experiment.toml").exists() else ()
        process = subprocess.Popen(command(*RUN, "--out", broken, *again))
        before = _progress(broken)
        deadline = time.monotonic() + 60
        while _progress(broken) <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert kills >= 2, "the run must have been killed in its middle"
    subprocess.run(command(*RUN, "--out", broken, "--resume"), check=True, timeout=120)
    resumed = json.loads((broken / "summary.json").read_text())
    assert resumed["digest"] == whole["digest"]
    for key in ("accuracy", "picked", "bytes", "paper_bytes"):
        assert resumed[key] == whole[key]
    ours, theirs = ((tmp_path / x / "records.jsonl").read_text().splitlines() for x in ("whole", "broken"))
    strip = [
        [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines] for lines in (ours, theirs)
    ]
    assert strip[0] == strip[1]


def _progress(run: Path) -> int:
    try:
        return int(json.loads((run / "checkpoint" / "manifest.json").read_text())["done"])
    except FileNotFoundError:
        return 0


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """A file-size limit stands in for a full disk: writing fails in the middle of the run."""
    run = tmp_path / "r"
    limited = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY));"
        "from sparsona.cli import main; main()"
    )
    words = [str(w) for w in (*RUN, "--out", run)]
    done = subprocess.run([sys.executable, "-c", limited, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "cannot read or write" in done.stderr
    assert "--resume" in done.stderr
    subprocess.run(command(*words, "--resume"), check=True, timeout=120)
    assert (run / "summary.json").exists()


def test_ctrl_c_leaves_a_resumable_run(tmp_path: Path) -> None:
    run = tmp_path / "r"
    long = [str(w) for w in ("run", "local", "--rounds", 3000, "--clients", 6, "--engine", "inprocess", "--out", run)]
    process = subprocess.Popen(command(*long), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while _progress(run) < 1 and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in err
    assert "Traceback" not in err
    assert _progress(run) >= 1


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


def test_ctrl_c_before_the_first_round_is_done_prints_a_command_that_goes_on_there(
    sparsona: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("run", "local", "--rounds", 1, "--clients", 2, "--engine", "inprocess", "--out", "my run", "--quiet")
    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "open", interrupt)
        assert sparsona(*words) == (130, "", "interrupted: nothing was done\n")
    told = "interrupted: continue with sparsona run 'my run/experiment.toml' --resume\n"
    again = *shlex.split(told.partition("sparsona ")[2]), "--quiet"
    for name, now in (("__init__", words), ("_round", again)):
        with monkeypatch.context() as patched:
            patched.setattr(Rounds, name, interrupt)
            assert sparsona(*now) == (130, "", told)
        assert not (tmp_path / "my run" / "records.jsonl").exists()
    assert sparsona(*again)[0] == 0
    assert (tmp_path / "my run" / "summary.json").exists()
    assert not (tmp_path / "runs").exists()


def test_an_experiment_file_of_ones_own_is_no_run(sparsona: Any, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text('method = "local"\nclients = 2\nrounds = 1\n')
    code, _, err = sparsona("run", "experiment.toml", "--resume", "--quiet")
    assert code == 2
    assert "there is no run in runs/local-digits-0 to resume" in err
    assert sparsona("run", "experiment.toml", "--quiet")[0] == 0
    assert (tmp_path / "runs" / "local-digits-0" / "summary.json").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name != "runs"] == ["experiment.toml"]


def contents(folder: Path) -> dict[Path, bytes]:
    """All that is in a run, except the models, which are made of the rest."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "models"]
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("records.jsonl", None),
        ("records.jsonl", b'{"round":1}'),
        ("records.jsonl", b"\xff" * 9999),
        ("checkpoint/manifest.json", None),
        ("checkpoint/manifest.json", b"[]"),
        ("checkpoint/manifest.json", b"{"),
        ("checkpoint/manifest.json", b"\xff"),
        ("checkpoint/manifest.json", b'{"clients":{}}'),
        ("checkpoint/server.2", None),
        ("checkpoint/loop.2", b"{}"),
        ("checkpoint/clients/c1.2", None),
        ("checkpoint/clients/c1.2", b"\x02" + bytes(7) + b"[]"),
    ],
)
def test_a_damaged_run_is_one_line_and_loses_nothing(
    sparsona: Any, tmp_path: Path, file: str, damage: bytes | None
) -> None:
    words = ("run", "local", "--rounds", 2, "--clients", 2, "--engine", "inprocess", "--quiet")
    assert sparsona(*words, "--out", "r")[0] == 0
    run, path = tmp_path / "r", tmp_path / "r" / file
    digest = json.loads((run / "summary.json").read_text())["digest"]
    path.unlink() if damage is None else path.write_bytes(damage)
    before = contents(run)
    for again in (words, ("run", "r/experiment.toml", "--quiet")):
        code, _, err = sparsona(*again, *(("--out", "r") if again is words else ()), "--resume")
        assert code == 2
        assert err.count("\n") == 1
        assert err.endswith(": run it again into another --out\n")
        assert contents(run) == before
    assert sparsona("run", "r/experiment.toml", "--out", "other", "--quiet")[0] == 0, "the advice helps"
    assert json.loads((tmp_path / "other" / "summary.json").read_text())["digest"] == digest


@pytest.mark.parametrize("damage", ["{", "[]", "3", "{}"])
def test_a_damaged_summary_is_one_line_and_can_be_written_again(sparsona: Any, tmp_path: Path, damage: str) -> None:
    sparsona("run", "local", "--rounds", 1, "--clients", 2, "--out", "r", "--quiet")
    file = tmp_path / "r" / "summary.json"
    digest = json.loads(file.read_text())["digest"]
    file.write_text(damage)
    code, _, err = sparsona("wire", "r")
    assert code == 2
    assert err.count("\n") == 1
    assert "r/summary.json is damaged" in err
    assert sparsona(*shlex.split(err.partition(", sparsona ")[2]), "--quiet")[0] == 0
    assert json.loads(file.read_text())["digest"] == digest
