"""tests/ mirrors src/sparsona/, and papers/tests/ its source: a test stands where what it tests stands, by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparsona
from sparsona.methods import METHODS

TESTS, SOURCE = Path(__file__).parent, Path(sparsona.__file__).parent
BESIDE = ("docs", "examples")
"""Folders of tests that mirror folders beside src."""
WHOLE = {
    "test_docstrings": "every public name",
    "test_layers": "which room imports which",
    "test_mirror": "this",
    "test_wheel": "the package as it is installed",
    "cli/test_compare": "the command compare",
    "cli/test_search": "the commands tune and choose",
    "cli/test_sweep": "the command sweep",
    "cli/test_cli": "all commands, as a user calls them",
    "cli/test_names": "hostile names on the terminal, by every command",
    "cli/test_own_data": "an owner's tables, from the command line",
    "cli/test_start": "starting is cheap",
    "data/test_hostile": "files that are not what they say",
    "data/test_images": "all sets of images",
    "data/test_real": "the publishers' files, where they are here",
    "data/test_ways_in": "the same rows by every way in",
    "partition/test_along": "splits along a column",
    "wire/test_powers": "values that are powers of two",
    "methods/test_frozen": "every method on nets with a frozen part",
    "methods/test_rivals": "small rivals, one test each",
    "methods/test_shared_parts": "what all averaging methods share",
    "engines/test_metrics": "scores on every engine, beside scikit-learn's",
    "engines/test_evaluation": "what is measured, on every engine",
    "engines/network/test_loop": "server and nodes, with messages but without a network",
    "engines/network/mailbox/test_crashes": "a federation through a mailbox whose processes are killed",
    "engines/network/mailbox/test_evil": "one evil owner of four, at every message",
    "engines/network/mailbox/test_hosts": "two hosts that share nothing but a folder copied by rsync",
    "engines/network/test_organiser": "what a dishonest organiser can read",
    "engines/network/test_crashes": "a federation on loopback whose processes are killed",
    "engines/network/test_network": "a federation on loopback",
    "engines/test_from_the_command_line": "engines under Ctrl-C and kill -9",
    "export/test_portable": "models for programs without this package",
    "export/test_buffers": "nets with BatchNorm, in all formats",
    "export/test_export": "a model from a run to a prediction",
    "federation/test_clock": "virtual time",
    "federation/test_new_clients": "clients that join after training",
    "methods/test_baselines": "local, fedavg, fedavg-ft, fedprox",
    "methods/test_meta": "per-fedavg, pfedme, fedupdate",
    "methods/test_split_models": "methods whose models have two parts or several",
    "metrics/test_metrics": "every registered metric",
    "models/test_models": "every registered net",
    "privacy/test_audit": "attacks on the frames of private runs",
    "studies/test_space": "what a search may change",
    "report/loggers/test_mlflow": "the logger of MLflow",
    "report/loggers/test_tensorboard": "the logger of TensorBoard",
    "report/loggers/test_wandb": "the logger of Weights & Biases",
    "report/test_browser": "the page in a real browser",
    "runs/test_spill": "the store below what clients remember, references and the server's state",
    "report/test_clients": "a run's clients in the terminal",
    "report/test_page": "what a page shows",
    "report/test_serve": "the page of runs that go on, over HTTP",
    "runs/test_mutated_files": "files of every kind with mutations",
    "runs/test_hostile_directories": "run directories that are not what they say",
    "training/test_step_rule": "every form of the step rule, compared",
    "wire/test_checked": "every access of the coder of differences, checked",
    "wire/test_cost": "time and memory of hostile frames",
    "wire/test_fuzz": "mutated and random frames",
    "wire/test_golden": "bytes that may never change",
    "wire/test_decoding_memory": "what decoding holds",
    "wire/test_round_trip": "every kind of part, there and back",
    "wire/test_sizes": "bytes against the entropy bound",
}
"""Tests of a package as a whole, or of several of its modules: what they are about."""

REGISTERED = {name.replace("-", "_") for name in METHODS.names()}
"""Methods that share a file may have a test each."""

FILES = sorted(file for file in TESTS.rglob("test_*.py"))
PAPERS = TESTS.parent / "papers"


def known_names(folder: Path) -> set[str]:
    """The modules and packages of a folder of the source, without leading underscores; and the package itself."""
    found = {entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists()}
    return {name.strip("_") for name in found} | {folder.name}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TESTS)))
def test_a_test_stands_where_its_module_stands(file: Path) -> None:
    place = file.relative_to(TESTS).with_suffix("")
    if place.parts[0] in BESIDE:
        assert (TESTS.parent / place.parts[0]).is_dir()
        return
    folder = SOURCE / place.parent
    assert folder.is_dir(), f"src/sparsona has no folder {place.parent}"
    if str(place) not in WHOLE:
        name = place.name.removeprefix("test_")
        known = known_names(folder) | (REGISTERED if place.parts[0] == "methods" else set())
        assert name in known, f"{place.parent} has no module {name}: name the test after one, or in WHOLE"


@pytest.mark.parametrize("file", sorted((PAPERS / "tests").rglob("test_*.py")), ids=lambda file: file.name)
def test_a_test_of_the_papers_stands_where_its_module_stands(file: Path) -> None:
    folder = PAPERS / "src" / "sparsona_papers" / file.parent.relative_to(PAPERS / "tests")
    assert file.stem.removeprefix("test_") in known_names(folder)


def test_every_topic_has_its_file() -> None:
    assert {place for place in WHOLE if not (TESTS / f"{place}.py").exists()} == set()
