"""The server's loop, the engine and the nodes, with messages but without a network."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from flower_helpers import SPOILED, Direct, Federation, spoiled, ward_tables
from safetensors.torch import save_file

from sparsona.data.schema.exchange import LIMIT, agree
from sparsona.data.schema.limits import pack_text, text_in
from sparsona.engines.network import engine as engine_module
from sparsona.engines.network import memory as memory_module
from sparsona.engines.network.carrier import Parcel, Returned
from sparsona.engines.network.consent import Rules
from sparsona.engines.network.flower.started.sparsona_pauses import Backoff
from sparsona.engines.network.node import CONSENT
from sparsona.engines.network.own_data import SHARE, OwnFormat
from sparsona.engines.network.serverapp import NetworkRun
from sparsona.errors import InputError, RunError
from sparsona.experiment import to_toml
from sparsona.export.predict import load_model
from sparsona.federation.worker import Evaluator, Scores
from sparsona.message import Message
from sparsona.method import Model
from sparsona.models._build import build_model
from sparsona.report.artefacts import drawn_findings
from sparsona.report.measured import measure
from sparsona.runs.directory import RunDirectory
from sparsona.wire import decode, encode


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "SOON", 0.01)
    monkeypatch.setattr(engine_module, "RETRY", 0.02)


def is_fit(parcel: Parcel, round: int, client: str) -> bool:
    head = parcel.head
    return head["kind"] == "turn" and head["job"] == "fit" and head["round"] == round and parcel.client == client


@pytest.mark.parametrize("method", ["fedavg", "fedpse", "fedspa", "pfednet", "pfedgate", "local"])
def test_a_network_gives_the_digest_and_the_bytes_of_the_simulator(method: str, tmp_path: Path) -> None:
    federation = Federation(tmp_path, method=method)
    found, simulated = federation.run(), federation.simulated()
    assert found["digest"] == simulated["digest"]
    assert found["bytes"] == simulated["bytes"]
    assert found["accuracy"] == simulated["accuracy"]


def test_owners_bring_the_base_that_the_experiment_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = build_model("mlp:8", (1, 8, 8), 10)
    for name in ("base", "other"):
        save_file(net.state_dict(), tmp_path / f"{name}.safetensors")
        net = build_model("mlp:8", (1, 8, 8), 10)
    base, other = (str(tmp_path / f"{name}.safetensors") for name in ("base", "other"))
    federation = Federation(tmp_path, method="fedavg", model="mlp:8", trainable=["head"], base=base)
    assert len(federation.experiment.base) == 64
    text = to_toml(federation.experiment.model_copy(update={"base": base}))

    def run(**files: str) -> dict[str, object]:
        nodes = {client: federation.node(client, base=files.get(client, base)) for client in federation.clients}
        return NetworkRun(Direct(nodes), federation.home, text, "run", 20.0).execute()

    for wrong in ("", other):
        caplog.clear()
        with pytest.raises(RunError, match="c1 cannot take part"):
            run(c1=wrong)
        said = [one.name for one in caplog.records if f"{federation.experiment.base[:12]} is needed" in one.message]
        assert len(said) == 2, "on both machines"
    assert run()["digest"] == federation.simulated()["digest"]


@pytest.mark.parametrize(("method", "keep"), [("fedavg", "best"), ("fedspa", "best"), ("ditto", "best-per-client")])
def test_a_node_keeps_the_models_that_the_simulator_keeps(method: str, keep: str, tmp_path: Path) -> None:
    federation = Federation(tmp_path, method=method, rounds=4, evaluation={"keep": keep, "patience": 2})
    found, simulated = federation.run(), federation.simulated()
    assert found["digest"] == simulated["digest"]
    assert found["rounds"] == simulated["rounds"]


@pytest.mark.parametrize("method", ["local", "ditto"])
def test_a_node_measures_a_model_once(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The personal model of a round's end is that of the next one's beginning."""
    federation, measured = Federation(tmp_path, method=method), list[bytes]()
    measure = Evaluator._measure

    def noted(self: Evaluator, model: Model) -> Scores:
        measured.append(np.asarray(model).tobytes())
        return measure(self, model)

    monkeypatch.setattr(Evaluator, "WORTHWHILE", 0)
    monkeypatch.setattr(Evaluator, "_measure", noted)
    found = federation.run()
    assert len(measured) == len(set(measured)) > 0
    assert found["accuracy"] == federation.simulated()["accuracy"]


def test_a_personal_model_stays_with_its_owner(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedpse", rounds=1)
    federation.run()
    assert not (federation.home / "runs" / "run" / "models").exists()
    kept = {path.name for path in federation.folder.glob("c*/*.safetensors")}
    assert kept == {"c0.safetensors", "c1.safetensors", "c2.safetensors"}
    assert "accuracy (pre)" in (federation.folder / "c0" / "report.txt").read_text()


def test_an_owner_may_send_its_model_and_keep_its_scores(tmp_path: Path) -> None:
    federation = Federation(tmp_path, Rules(scores=False, model=True, least_rows=1), method="fedavg", rounds=1)
    summary = federation.run()
    assert summary["accuracy"] == {}
    run = federation.home / "runs" / "run"
    own = federation.folder / "c1" / "c1.safetensors"
    assert RunDirectory(run).model_file("c1").read_bytes() == own.read_bytes()


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (Rules(methods=("fedavg", "local")), "allows fedavg, local, not fedpse"),
        (Rules(most_epochs=1), "allows 1 epoch a round, not 2.0"),
        (Rules(most_weights=1000), "allows 1000 weights, not 3760"),
    ],
)
def test_what_an_owner_does_not_allow_is_refused(
    rules: Rules, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = Federation(tmp_path, rules, method="fedpse", training={"epochs": 2})
    with pytest.raises(RunError, match=f"c0 cannot take part: the owner {why}; c1 cannot .*; c2 cannot .*--fewest"):
        federation.run(patience=1.0)
    assert why in caplog.text


@pytest.mark.parametrize(
    "training", [{"steps": 10**6}, {"steps": 10, "repeats": 10**4}, {"steps": 1, "batch": 10**8}, {"repeats": 21}]
)
def test_steps_and_repeats_are_epochs_too(
    training: dict[str, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = Federation(tmp_path, method="fedavg", training=training)
    with pytest.raises(RunError, match="c0 cannot take part: the owner allows 20 epochs a round"):
        federation.run(patience=1.0)
    assert "the owner allows 20 epochs a round" in caplog.text


def test_a_method_cannot_train_longer_than_the_owner_allows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    federation = Federation(
        tmp_path, Rules(most_epochs=2, least_rows=1), method="fedmd", rounds=1, options={"pretrain": 3}
    )
    federation.run()
    assert "the reply of c0 is left out: the owner of c0 allows 2 epochs in a training, not 3.0" in caplog.text


def test_an_experiment_cannot_name_a_file_of_the_owner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    federation = Federation(tmp_path, method="fedmd", rounds=1)
    text = to_toml(federation.experiment).replace('"synthetic"', f'"folder:{tmp_path}"')
    assert str(tmp_path) in text
    head = {"kind": "hello", "run": "0" * 32, "experiment": text}
    reply, body = federation.carrier.nodes["c0"].answer(head, lambda most: b"")
    assert (reply["kind"], body) == ("error", b"")
    assert "only --data is read" in reply["why"]


def test_a_node_that_starts_again_in_every_round_goes_on_from_its_disk(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedspa")
    carrier = federation.carrier

    def restart(parcel: Parcel, answer: Returned) -> Returned:
        carrier.nodes[parcel.client] = federation.node(parcel.client)
        return answer

    carrier.change = restart
    assert federation.run()["digest"] == federation.simulated()["digest"]


def test_a_reply_that_was_lost_on_the_way_comes_again_the_same(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedpse")
    carrier, replies = federation.carrier, []

    def lose(parcel: Parcel, answer: Returned) -> Returned:
        if not is_fit(parcel, 1, "c2"):
            return answer
        replies.append((answer.head, answer.body))
        carrier.nodes["c2"] = federation.node("c2")
        return answer if len(replies) == 3 else dataclasses.replace(answer, lost=True)

    carrier.change = lose
    found, simulated = federation.run(), federation.simulated()
    assert len(replies) == 3
    assert replies[0] == replies[1] == replies[2]
    assert found["digest"] == simulated["digest"]
    assert found["bytes"] == simulated["bytes"]


def test_an_order_that_vanished_without_a_word_is_sent_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    federation = Federation(tmp_path, method="fedspa")
    federation.carrier.silence = 0.05
    orders = []

    def vanish(parcel: Parcel, answer: Returned) -> Returned | None:
        if is_fit(parcel, 1, "c2"):
            orders.append(parcel)
            return None if len(orders) == 1 else answer
        return answer

    federation.carrier.change = vanish
    assert federation.run()["digest"] == federation.simulated()["digest"]
    assert len(orders) == 2
    assert "c2 is not reached (it was cut off)" in caplog.text


def test_a_node_that_has_lost_its_references_gets_the_whole(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedavg")
    carrier, asked = federation.carrier, []

    def forget(parcel: Parcel, answer: Returned) -> Returned:
        if is_fit(parcel, 1, "c0"):
            for folder in (federation.folder / "c0").glob("*/references"):
                shutil.rmtree(folder)
            carrier.nodes["c0"] = federation.node("c0")
        if answer.head is not None and answer.head["kind"] == "whole":
            asked.append(parcel.client)
        return answer

    carrier.change = forget
    found, simulated = federation.run(), federation.simulated()
    assert asked == ["c0"]
    assert found["digest"] == simulated["digest"]
    assert found["bytes"]["up"] == simulated["bytes"]["up"]
    assert found["bytes"]["down"] > simulated["bytes"]["down"]


class Killed(BaseException):
    """The end of the server's process."""


@pytest.mark.parametrize("method", ["fedpse", "pfednet"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_server_that_dies_in_a_round_goes_on_from_its_checkpoint(method: str, at: int, tmp_path: Path) -> None:
    federation = Federation(tmp_path, method=method)
    carrier, died = federation.carrier, list[int]()

    def kill(parcel: Parcel, answer: Returned) -> Returned:
        if not died and is_fit(parcel, at, "c1"):
            died.append(at)
            raise Killed
        return answer

    carrier.change = kill
    with pytest.raises(Killed):
        federation.run()
    found, simulated = federation.run(), federation.simulated()
    assert found["digest"] == simulated["digest"]
    assert found["bytes"] == simulated["bytes"]


def test_who_registers_later_does_not_join_a_run_that_has_begun(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedavg", rounds=2)
    simulated = federation.simulated()

    def kill(parcel: Parcel, answer: Returned) -> Returned:
        if is_fit(parcel, 1, "c1"):
            raise Killed
        return answer

    federation.carrier.change = kill
    with pytest.raises(Killed):
        federation.run()
    federation.carrier.clients = [*federation.carrier.clients, "c9"]
    federation.carrier.change = lambda parcel, answer: answer
    assert federation.run()["digest"] == simulated["digest"]


def test_a_run_of_that_name_with_other_settings_is_not_resumed(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedavg", rounds=1)
    federation.run()
    other = federation.experiment.model_copy(update={"seed": 6})
    federation.prepared = dataclasses.replace(federation.prepared, experiment=other)
    with pytest.raises(RunError, match="seed differs"):
        federation.run()


@pytest.mark.parametrize("kind", SPOILED)
def test_a_bad_reply_is_left_out_and_the_round_goes_on(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = Federation(tmp_path, method="fedavg", evaluation={"every": 0})

    def bad(parcel: Parcel, answer: Returned) -> Returned:
        if not is_fit(parcel, 1, "c2"):
            return answer
        assert answer.head is not None
        head, body = spoiled(kind, answer.head, answer.body, 1)
        return dataclasses.replace(answer, body=body, head=head)

    federation.carrier.change = bad
    federation.run()
    assert "the reply of c2 is left out" in caplog.text
    lines = {(line.round, line.client): line for line in RunDirectory(federation.home / "runs" / "run").lines()}
    assert lines[2, "c0"].up.total > 0
    assert [lines[3, client].arrived for client in ("c0", "c1", "c2")] == [True] * 3
    assert [place for place, line in lines.items() if line.refused] == [(2, "c2")]
    assert f"the reply of c2 is left out: {lines[2, 'c2'].refused}" in caplog.text


@pytest.mark.parametrize("head", [{"kind": "turn"}, {"kind": "hello"}, {"kind": "turn", "ledger": [1e9] * 6}])
def test_a_reply_with_a_bad_head_is_left_out(head, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    federation = Federation(tmp_path, method="fedavg", rounds=2, evaluation={"every": 0})
    federation.carrier.change = lambda parcel, answer: (
        dataclasses.replace(answer, head=head) if is_fit(parcel, 0, "c1") else answer
    )
    federation.run()
    assert "the reply of c1 is left out" in caplog.text


def test_two_replies_of_one_node_in_a_round_count_once(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedavg")
    federation.carrier.twice = True
    found, simulated = federation.run(), federation.simulated()
    assert found["digest"] == simulated["digest"]
    assert found["bytes"] == simulated["bytes"]


def test_a_client_that_never_answers_is_lost_at_the_deadline(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedpse", schedule={"deadline": 1.5}, evaluation={"every": 0})
    federation.carrier.change = lambda parcel, answer: None if is_fit(parcel, 1, "c1") else answer
    federation.run()
    lines = {(line.round, line.client): line for line in RunDirectory(federation.home / "runs" / "run").lines()}
    assert [lines[number, "c1"].arrived for number in (1, 2, 3)] == [True, False, True]


def test_a_silent_client_costs_one_deadline_a_round(tmp_path: Path) -> None:
    """Once it has let a deadline pass, it is asked to train, and not asked for its scores."""
    federation = Federation(tmp_path, method="fedavg", rounds=2, schedule={"deadline": 1.0})
    asked: list[str] = []

    def silent(parcel: Parcel, answer: Returned) -> Returned | None:
        if parcel.client != "c1" or parcel.head["kind"] not in ("turn", "finish"):
            return answer
        asked.append(parcel.head.get("job", "finish"))
        return None

    federation.carrier.change = silent
    federation.run()
    assert asked == ["fit", "fit", "finish"]


def test_a_full_disk_at_an_owner_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    federation = Federation(tmp_path, method="fedavg", rounds=1)

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(memory_module, "write_new", full)
    federation.run()
    assert "No space left on device" in caplog.text
    assert "Traceback" not in caplog.text
    lines = RunDirectory(federation.home / "runs" / "run").lines()
    assert {line.refused for line in lines} == {"the owner's machine cannot read or write a file; its log says more"}


def test_an_agreement_that_cannot_be_one_is_not_kept(tmp_path: Path) -> None:
    """Else each invented run would take 64 MB of the owner's disk."""
    federation = Federation(tmp_path, method="fedavg", rounds=1)
    run, node = "ab" * 16, federation.carrier.nodes["c0"]
    head = {"kind": "agreed", "run": run, "experiment": to_toml(federation.experiment), "clients": ["c0", "c1"]}
    assert node.answer(head, lambda most: bytes(most))[0]["kind"] == "error"
    assert not (federation.folder / "c0" / run).exists()


def test_by_windows_a_slow_node_is_late_and_not_lost(tmp_path: Path) -> None:
    federation = Federation(
        tmp_path, method="plga", rounds=8, schedule={"window": 0.3}, evaluation={"every": 0, "post": "participants"}
    )
    federation.carrier.delay = {"c2": 0.7}
    federation.run()
    lines = RunDirectory(federation.home / "runs" / "run").lines()
    asked = {line.round for line in lines if line.client == "c2" and line.took_part}
    came = {line.round for line in lines if line.client == "c2" and line.up.total}
    assert 1 in asked
    assert came
    assert min(came) > 1
    assert len(came) < 8
    assert {line.round for line in lines if line.client == "c0" and line.arrived} == set(range(1, 9))


def test_a_run_over_the_network_can_be_reported(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="pfednet", rounds=1)
    federation.run()
    run = measure(federation.home / "runs" / "run")
    assert [graph["name"] for graph in drawn_findings(run)["graphs"]] == ["network"]
    assert run.finished


def test_owners_of_tables_agree_over_the_network_as_in_a_simulation(tmp_path: Path) -> None:
    federation = ward_tables(tmp_path)
    found, simulated = federation.run(), federation.simulated()
    assert found["bytes"]["agreement"] == simulated["bytes"]["agreement"]
    assert found["digest"] == simulated["digest"]
    assert found["bytes"] == simulated["bytes"]


def test_a_pool_over_the_network_is_that_of_the_simulator_and_its_owner_reads_what_it_adds(tmp_path: Path) -> None:
    federation = ward_tables(tmp_path, method="fedthin", personal={"pool": ("trees", "shared")})
    found, simulated = federation.run(), federation.simulated()
    assert found["digest"] == simulated["digest"]
    assert found["bytes"] == simulated["bytes"]
    assert "pool: alone with trees" in (federation.folder / "east" / "report.txt").read_text()


def test_an_owner_may_write_its_file_otherwise_than_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Semicolons, decimal commas and a code for missing values at one of three hospitals: the same run."""
    federation = ward_tables(tmp_path)
    simulated, text = federation.simulated(), to_toml(federation.experiment)
    file = tmp_path / "tables" / "west.csv"
    head, *lines = file.read_text().splitlines()
    rows = (line.split(",") for line in lines)
    written = [f"{age.replace('.', ',') or '-9'};{sex};{label}" for age, sex, label in rows]
    file.write_text("\n".join([head.replace(",", ";"), *written]) + "\n", encoding="utf-16")
    plain = federation.node("west").answer({"kind": "hello", "run": "0" * 32, "experiment": text}, no_body)[0]
    assert plain["kind"] == "error"
    assert caplog.text.strip().endswith("sparsona node has these options, too, for this file alone")
    said = OwnFormat(separator=";", decimal=",", missing="-9", encoding="utf-16")
    federation.carrier.nodes["west"] = federation.node("west", said)
    assert federation.run()["digest"] == simulated["digest"]
    models = {ward: load_model(tmp_path / ward / f"{ward}.safetensors") for ward in ("east", "west")}
    assert {ward: model.card.schema.format.separator for ward, model in models.items()} == {"east": ",", "west": ";"}


def test_a_node_whose_rows_have_changed_does_not_go_on_with_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the first turn a file may be mended, with the owner's consent. After it the old one must come back."""
    federation = ward_tables(tmp_path)
    simulated = federation.simulated()
    file, carrier = tmp_path / "tables" / "north.csv", federation.carrier
    old = file.read_text()
    new = old.replace("well", "ill", 1)
    hello = {"kind": "hello", "experiment": to_toml(federation.experiment)}

    def write(text: str) -> None:
        file.write_text(text)
        carrier.nodes["north"] = federation.node("north")

    def stop(when: Callable[[Parcel], bool]) -> None:
        def kill(parcel: Parcel, answer: Returned) -> Returned:
            if when(parcel):
                raise Killed
            return answer

        carrier.change = kill
        with pytest.raises(Killed):
            federation.run(patience=1.0)

    write(new)
    stop(lambda parcel: parcel.head["kind"] == "agreed" and parcel.client == "west")
    write(old)
    with pytest.raises(RunError, match="north cannot take part"):
        federation.run(patience=1.0)
    federation.accept("north")
    stop(lambda parcel: is_fit(parcel, 1, "north"))
    write(new)
    stop(lambda parcel: is_fit(parcel, 1, "west"))  # the run goes on, and north is named
    assert "north takes part again as soon as" in caplog.text
    assert "the rows of north are not those with which it began this run" in caplog.text
    manifest = next((tmp_path / "north").glob("*/manifest.json"))
    noted = json.loads(manifest.read_text())
    assert noted.pop("rows")
    manifest.write_text(json.dumps(noted))  # as a node of an older version leaves it: any rows will do
    assert federation.node("north").answer({**hello, "run": manifest.parent.name}, no_body)[0]["kind"] == "hello"
    write(old)
    carrier.change = lambda parcel, answer: answer
    assert federation.run()["digest"] == simulated["digest"]


def test_the_records_say_why_a_node_did_not_take_a_turn(tmp_path: Path) -> None:
    """Its file changes in the middle of a run, and it is started again: it refuses the rest, and the others go on."""
    federation = ward_tables(tmp_path)
    file, carrier = tmp_path / "tables" / "north.csv", federation.carrier

    def change(parcel: Parcel, answer: Returned) -> Returned:
        if is_fit(parcel, 0, "north"):
            file.write_text(file.read_text().replace("well", "ill", 1))
            carrier.nodes["north"] = federation.node("north")
        return answer

    carrier.change = change
    federation.run()
    lines = list(RunDirectory(federation.home / "runs" / "run").lines())
    assert {line.refused for line in lines if line.client != "north" or line.round == 1} == {""}
    why = "the owner's data do not fit this experiment; its log says more"
    refused = [(line.round, line.arrived, line.refused) for line in lines if line.client == "north" and line.round > 1]
    assert refused == [(round, False, why) for round in range(2, federation.experiment.rounds + 1)]


def test_what_only_a_simulation_can_do_is_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedavg", schedule={"dropout": 0.2})
    with pytest.raises(InputError, match=r"schedule\.dropout"):
        federation.run()


def test_a_node_reads_no_more_than_a_frame_of_its_model_can_have(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedavg", rounds=1)
    federation.run()
    node, asked = federation.node("c0"), []

    def body(most: int) -> bytes:
        asked.append(most)
        return b"not a frame"

    run = (federation.home / "runs" / "run" / "run.id").read_text()
    head = {"kind": "turn", "run": run, "job": "fit", "round": 1, "phase": 0}
    assert node.answer(head, body)[0]["kind"] == "error"
    assert asked == [federation.prepared.setup.limit().bytes]
    for bad in ({**head, "run": "../../etc"}, {**head, "run": "f" * 32}, {**head, "kind": "shell"}, {"kind": "turn"}):
        assert node.answer(bad, body)[0]["kind"] == "error"
    assert len(asked) == 1


def test_a_node_takes_no_schema_that_does_not_fit_its_rows(tmp_path: Path) -> None:
    federation = ward_tables(tmp_path)
    node = federation.carrier.nodes["east"]
    head = {"run": "0" * 32, "experiment": to_toml(federation.experiment), "clients": list(federation.clients)}
    hello = {"kind": "hello", "run": head["run"], "experiment": head["experiment"]}
    reply, description = node.answer(hello, lambda most: b"")
    assert reply["kind"] == "hello"
    told = agree({"east": decode(description, LIMIT)})
    for name in ("age", "sex", "f", "ill", "label"):
        tree = json.dumps(json.loads(text_in(told, "schema"))).replace(f'"{name}"', '"other"')
        frame = encode(Message(**{**told.parts, "schema": pack_text(json.loads(tree))})).data
        reply, _ = node.answer({**head, "kind": "agreed"}, partial(bounded, frame))
        assert reply == {"kind": "error", "why": "the owner's data do not fit this experiment; its log says more"}
    assert node.answer({**head, "kind": "agreed"}, partial(bounded, encode(told).data))[0]["kind"] == "ready"


def no_body(most: int) -> bytes:
    return b""


def bounded(data: bytes, most: int) -> bytes:
    assert len(data) <= most
    return data


def test_pauses_grow_while_nothing_comes() -> None:
    pauses = Backoff(0.1, 0.2)
    assert [pauses.next() for _ in range(5)] == pytest.approx([0.1, 0.13, 0.169, 0.2, 0.2])
    pauses.restart()
    assert pauses.next() == 0.1
    assert Backoff(0.1, 0.05).next() == 0.05


def test_scores_of_few_rows_are_not_sent(tmp_path: Path) -> None:
    federation = Federation(tmp_path, Rules(least_rows=50), method="fedavg", rounds=1, training={"batch": 64})
    splits, told = federation.prepared.setup.federation.splits, {}

    def note(parcel: Parcel, answer: Returned) -> Returned:
        if answer.head is not None and answer.head["kind"] == "turn":
            told[parcel.client] = next(iter(answer.head["scores"].values()))
        return answer

    federation.carrier.change = note
    federation.run()
    kept = {client: [score is None for score in scores] for client, scores in told.items()}
    assert kept == {client: [len(split.test) < 50, len(split.validation) < 50] for client, split in splits.items()}
    assert {client for client, (_, validation) in kept.items() if validation}


def test_a_run_that_has_begun_keeps_its_settings(tmp_path: Path) -> None:
    """Other settings for the same round would be another question about the same rows."""
    federation = Federation(tmp_path, method="fedavg", rounds=1)
    federation.run()
    run = (federation.home / "runs" / "run" / "run.id").read_text()
    head = {"kind": "agreed", "run": run, "clients": list(federation.clients)}
    text = (tmp_path / "c0" / run / "experiment.toml").read_text()
    node, other = federation.node("c0"), text.replace("batch = 32", "batch = 31")
    assert other != text
    assert node.answer({**head, "experiment": text}, no_body)[0]["kind"] == "ready"
    assert node.answer({**head, "experiment": other}, no_body)[0]["kind"] == "error"
    assert node.answer({**head, "experiment": text}, lambda most: b"x")[0]["kind"] == "error"


@pytest.mark.parametrize("method", ["fedavg", "fedspa", "ditto", "scaffold", "fedavg-ft"])
def test_a_network_with_privacy_gives_the_digest_of_the_simulator(method: str, tmp_path: Path) -> None:
    """With a declared seed; by default the noise comes from the owner's secret."""
    federation = Federation(tmp_path, method=method, rounds=2, privacy={"noise": 1.0})
    assert federation.run()["digest"] == federation.simulated()["digest"]


BUDGET = Rules(least_rows=1, scores=False, epsilon=4.0, delta=1e-5)


def test_an_owner_enforces_its_budget_whatever_the_experiment_says(tmp_path: Path) -> None:
    federation = Federation(tmp_path, BUDGET, rounds=2, method="fedavg")
    plain = federation.simulated()
    assert federation.run()["digest"] != plain["digest"]
    for client in federation.clients:
        (entry,) = json.loads((tmp_path / client / CONSENT / "privacy.json").read_bytes()).values()
        assert entry["used"] == entry["mechanism"]["most"] > 0
        assert entry["epsilon"] <= 4.0
    for parcel in federation.carrier.sent:
        assert parcel.head["kind"] != "error"


def test_a_run_goes_on_without_an_owner_whose_budget_is_spent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    federation = Federation(tmp_path, BUDGET, rounds=3, method="fedavg")
    told: list[tuple[str, int, bool]] = []

    def watched(parcel: Parcel, answer: Returned) -> Returned:
        if parcel.head["kind"] == "turn" and parcel.head["job"] == "fit":
            told.append((parcel.client, parcel.head["round"], (answer.head or {}).get("kind") == "error"))
        if is_fit(parcel, 0, "c1"):  # as if its first turns had cost more
            file = tmp_path / "c1" / CONSENT / "privacy.json"
            spent = json.loads(file.read_bytes())
            for entry in spent.values():
                entry["used"] = entry["mechanism"]["most"]
            file.write_text(json.dumps(spent))
            federation.carrier.nodes["c1"] = federation.node("c1")
        return answer

    federation.carrier.change = watched
    found = federation.run()
    assert found["rounds"] == 3
    assert {(client, round) for client, round, refused in told if refused} == {("c1", 1), ("c1", 2)}


def test_a_round_that_is_asked_again_with_other_weights_gets_other_noise_and_is_charged(tmp_path: Path) -> None:
    """Else the difference of two replies would have no noise at all."""
    federation = Federation(tmp_path, BUDGET, rounds=2, method="fedavg", packing="plain")
    federation.run()
    file = tmp_path / "c0" / CONSENT / "privacy.json"
    orders = [p for p in federation.carrier.sent if is_fit(p, 1, "c0")]
    (run,) = json.loads(file.read_bytes())
    node = federation.node("c0")

    def used() -> int:
        return int(json.loads(file.read_bytes())[run]["used"])

    before = used()
    same = node.answer(orders[0].head, lambda most: orders[0].body)
    assert used() == before
    assert same[0]["kind"] == "turn"
    weights = decode(orders[0].body, federation.prepared.setup.limit()).vector("weights").copy()
    weights[0] += 1
    other = encode(Message(weights=weights).stamped(decode(orders[0].body, LIMIT).stamp), packing="plain").data
    head, _ = node.answer(orders[0].head, lambda most: other)
    assert head["kind"] == "error"  # the plan of two rounds is used up
    assert "privacy budget" in head["why"]


@pytest.mark.parametrize("changed", ["nothing", "rows", "settings", "clients"])
def test_noise_is_used_twice_for_the_very_same_turn_only(changed: str, tmp_path: Path) -> None:
    """The owner has lost all of a run but its ledger. A turn over other rows, settings or clients, or in another
    schema, is charged, and so refused."""
    federation = Federation(tmp_path, BUDGET, rounds=1, method="fedavg", packing="plain")
    federation.run()
    agreed, order = (
        next(p for p in federation.carrier.sent if p.client == "c0" and p.head["kind"] == kind)
        for kind in ("agreed", "turn")
    )
    before = (tmp_path / "c0" / CONSENT / "privacy.json").read_bytes()
    run, text = agreed.head["run"], str(agreed.head["experiment"])
    reply = (tmp_path / "c0" / run / "reply.1").read_bytes()
    shutil.rmtree(tmp_path / "c0" / run)
    if changed == "rows":
        file = federation.data / f"c0{SHARE}"
        held = dict(np.load(file))
        held["inputs"][0] = 255 - held["inputs"][0]
        np.savez_compressed(file.open("wb"), **held)
    if changed == "settings":
        assert "lr = 0.1" in text
        text = text.replace("lr = 0.1", "lr = 0.2")
    node, clients = federation.node("c0"), [*federation.clients, *(["other"] if changed == "clients" else [])]
    again = {**agreed.head, "experiment": text, "clients": clients}
    assert node.answer(again, lambda most: agreed.body)[0]["kind"] == "ready"
    head, body = node.answer(order.head, lambda most: order.body)
    if changed == "nothing":
        assert body == reply
    else:
        assert "privacy budget" in head["why"]
    assert (tmp_path / "c0" / CONSENT / "privacy.json").read_bytes() == before


def test_an_order_cannot_make_a_private_node_train_beside_its_turns(tmp_path: Path) -> None:
    federation = Federation(tmp_path, BUDGET, rounds=2, method="fedavg-ft")
    federation.run()
    order = next(p for p in federation.carrier.sent if p.head["kind"] == "turn")
    for other in ({"job": "personal", "fine_tune": True}, {"job": "trial"}):
        head, _ = federation.node(order.client).answer({**order.head, **other}, lambda most: order.body)
        assert "trains in its turns only" in head["why"]
