"""Virtual time: what a turn takes, when a round ends, what is late then; and that it survives a restart."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import sparsona
from sparsona.chance import Chance
from sparsona.engines.inprocess import InProcess
from sparsona.errors import InputError
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import PRESETS, Device, Sampled, Timing, fleet
from sparsona.method import Method
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.local import LocalOnly
from sparsona.methods.spfl import SPFL
from sparsona.runs.records import ClientRecord, read_records
from sparsona.testing import tiny_setup

CSV = "client,seconds_per_sample,up,down\nc0,0.001,1e6,1e6\nc1,0.01,1e6,1e6\n*,0.1,1e6,2e6\n"


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "devices.csv"
    path.write_text(CSV)
    return str(path)


def loop(
    schedule: Sampled, method: Method[Any, Any] | None = None, rounds: int = 3
) -> tuple[Rounds, list[ClientRecord]]:
    setup = tiny_setup(method or FedAvg(), rounds=rounds)
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records.jsonl"
        timed = schedule.among(setup.task.clients)
        made = assemble(setup, InProcess(setup), timed, LAST_ROUND, records=records)
        made.run()
        return made, [line for line in read_records(records) if line.took_part]


def test_a_turn_is_down_work_and_up() -> None:
    assert Device(0.5, up=8.0, down=16.0).seconds(received=4, samples=3, sent=2) == 2 + 1.5 + 2


def test_a_round_lasts_as_long_as_its_slowest_client_by_real_frames(table: str) -> None:
    made, lines = loop(Sampled(devices=table))
    shares = made.setup.federation.splits
    for line in lines:
        rate, down = {"c0": (0.001, 1e6), "c1": (0.01, 1e6), "c2": (0.1, 2e6)}[line.client]
        work = rate * len(shares[line.client].train)
        assert line.took == pytest.approx(8 * line.down.total / down + work + 8 * line.up.total / 1e6)
    slowest = [max(line.took for line in lines if line.round == r) for r in (1, 2, 3)]
    assert made.clock == pytest.approx(sum(slowest))
    assert [line.clock for line in lines if line.client == "c0"] == pytest.approx(
        [slowest[0], sum(slowest[:2]), sum(slowest)]
    )
    assert all(line.arrived for line in lines)


def test_at_the_deadline_the_slow_are_lost(table: str) -> None:
    made, lines = loop(Sampled(devices=table, deadline=1.0))
    assert {line.client for line in lines if not line.arrived} == {"c2"}
    assert made.clock == pytest.approx(3.0)
    assert made.delivery.snapshot().pending == ()
    assert "c2" not in made.delivery.snapshot().acked


def test_a_generous_deadline_is_not_waited_for(table: str) -> None:
    patient, _ = loop(Sampled(devices=table, deadline=100.0))
    plain, _ = loop(Sampled(devices=table))
    assert patient.clock == plain.clock


def test_in_windows_the_slow_are_late_and_busy_until_they_arrive(table: str) -> None:
    made, lines = loop(Sampled(devices=table, window=0.5), rounds=9)
    assert made.clock == pytest.approx(4.5)
    slow = [line for line in lines if line.client == "c2"]
    rounds = -(-slow[0].took // 0.5)
    assert rounds > 2
    assert [line.round for line in slow] == [1 + i * rounds for i in range(len(slow))]
    assert not any(line.arrived for line in slow)
    assert made.delivery.snapshot().acked["c2"] == ((len(slow) - 2) * rounds, 0)
    assert [line.round for line in lines if line.client == "c0"] == list(range(1, 10))


def test_who_sends_nothing_is_busy_all_the_same(table: str) -> None:
    _, lines = loop(Sampled(devices=table, window=0.5), LocalOnly(), rounds=9)
    assert len([line for line in lines if line.client == "c2"]) < 4


def test_a_measuring_pass_takes_time_and_is_waited_for_even_in_windows(table: str) -> None:
    made, lines = loop(Sampled(devices=table, window=0.5), SPFL(), rounds=1)
    first = max(line.took for line in lines) / 2
    assert made.clock == pytest.approx(first + 0.5, rel=0.05)
    assert set(made.server.similarity.clients) == {"c0", "c1", "c2"}


def test_stragglers_are_late_by_rounds_not_by_seconds(table: str) -> None:
    made, lines = loop(Sampled(devices=table, stragglers={"c2": 2}), rounds=4)
    assert [line.round for line in lines if line.client == "c2"] == [1, 4]
    assert made.clock == pytest.approx(sum(max(x.took for x in lines if x.round == r and x.client != "c2")
                                           for r in (1, 2, 3, 4)))  # fmt: skip


@pytest.mark.parametrize("schedule", [{"window": 0.3}, {"deadline": 1.0}, {"stragglers": 2}])
def test_the_clock_survives_a_restart(schedule: dict[str, Any], table: str, tmp_path: Path) -> None:
    def run(checkpoint: Path | None = None, stop: int = 99, resume: bool = False) -> Rounds:
        setup = tiny_setup(FedAvg(), rounds=6)
        timed = Sampled(devices=table, **schedule).among(setup.task.clients)
        made = assemble(setup, InProcess(setup), timed, LAST_ROUND, checkpoint=checkpoint)
        if resume:
            made.resume()

        def interrupt(_: object) -> None:
            if made.done == stop:
                raise KeyboardInterrupt

        try:
            made.run(interrupt)
        except KeyboardInterrupt:
            assert made.done == stop
        return made

    whole = run()
    run(tmp_path / "checkpoint", stop=2)
    again = run(tmp_path / "checkpoint", resume=True)
    assert again.clock == whole.clock
    assert (again.server.weights == whole.server.weights).all()
    ours, theirs = (made.delivery.snapshot().pending for made in (again, whole))
    assert [(r.client, r.at, r.due) for r in ours] == [(r.client, r.at, r.due) for r in theirs]


def test_every_run_reports_simulated_seconds(tmp_path: Path) -> None:
    result = sparsona.run("fedavg", clients=3, rounds=3, out=tmp_path / "run")
    clocks = [r.clock for r in result.history]
    assert 0 < clocks[0] < clocks[1] < clocks[2]
    assert result.summary["simulated_seconds"] == pytest.approx(clocks[-1], abs=1e-3)
    line = json.loads((tmp_path / "run" / "records.jsonl").read_text().splitlines()[0])
    assert line["clock"] == clocks[0]
    assert 0 < line["took"] <= clocks[0]


def test_time_changes_no_result_while_the_server_waits() -> None:
    shared: dict[str, Any] = {"clients": 3, "rounds": 2}
    one = sparsona.run("fedavg", **shared)
    other = sparsona.run("fedavg", **shared, schedule={"devices": "hospital"})
    assert one.summary["digest"] == other.summary["digest"]
    assert one.summary["simulated_seconds"] > other.summary["simulated_seconds"]


def test_phones_differ_from_each_other_but_not_from_themselves() -> None:
    phones = fleet("phone-4g")
    speeds = {phones.device(f"c{i}", Chance(0)).up for i in range(50)}
    assert len(speeds) == 50
    assert phones.device("c1", Chance(0)) == phones.device("c1", Chance(0))
    assert phones.device("c1", Chance(0)) != phones.device("c1", Chance(1))
    mixed = fleet("hospital+sensor")
    kinds = {mixed.device(f"c{i}", Chance(0)).seconds_per_sample > 1e-2 for i in range(50)}
    assert kinds == {True, False}


def test_availability_of_devices() -> None:
    schedule = Sampled(devices="sensor")
    names = [f"c{i}" for i in range(10)]
    asked = sum(len(schedule.plan(r, names, Chance(0)).invited) for r in range(100))
    assert 850 <= asked <= 950
    assert PRESETS["sensor"].availability == 0.9


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("client,up\nc0,1\n", "must begin with the line client,seconds_per_sample,up,down,availability"),
        ("client,seconds_per_sample,up,down\nc0,fast,1,1\n", "line 2: could not convert"),
        ("client,seconds_per_sample,up,down\nc0,1,0,1\n", "line 2: a device needs finite, positive numbers: up is 0"),
        ("client,seconds_per_sample,up,down\nc0,1\n", "line 2"),
        ("client,seconds_per_sample,up,down\nc0,1,1,1\n", "no row for client 'c1'"),
    ],
)
def test_bad_tables_of_devices_are_named(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text(text)
    with pytest.raises(InputError, match=complaint):
        Sampled(devices=str(tmp_path / "devices.csv")).among(["c0", "c1"])


def test_bad_settings_of_time_are_named() -> None:
    with pytest.raises(InputError, match="unknown device 'phone-5g'; did you mean 'phone-4g'"):
        Sampled(devices="phone-5g").among(["a"])
    with pytest.raises(InputError, match="cannot read nowhere"):
        Sampled(devices="nowhere.csv").among(["a"])
    with pytest.raises(InputError, match="exclude each other"):
        Sampled(deadline=1.0, window=1.0).among(["a"])


def test_an_exchange_nobody_answers_lasts_until_the_deadline() -> None:
    timing = Timing(fleet("phone-4g"), Chance(0), deadline=5.0)
    assert timing.length({}, silent=True, training=True) == 5.0
    assert timing.length({"a": 2.0}, silent=False, training=True) == 2.0


@pytest.mark.parametrize("devices", ["sensor", "phone-4g+phone-wifi", "hospital+sensor"])
def test_availability_is_that_of_the_device(devices: str) -> None:
    found = [fleet(devices).availability(f"c{n}", Chance(1)) for n in range(40)]
    assert found == [fleet(devices).device(f"c{n}", Chance(1)).availability for n in range(40)]
    assert set(found) == {kind.availability for kind in fleet(devices).kinds}


def test_a_table_that_was_changed_is_read_again_by_the_next_run_only(table: str) -> None:
    """A process may make many runs: each has the table as it stands when it begins, until its end."""

    def seconds(schedule: Sampled) -> float:
        timing = schedule.plan(0, ["c0"], Chance(0)).timing
        assert timing is not None
        return timing.fleet.device("c0", Chance(0)).seconds_per_sample

    first = Sampled(devices=table).among(["c0"])
    assert seconds(first) == 0.001
    Path(table).write_text(CSV.replace("c0,0.001", "c0,0.002"))
    assert seconds(Sampled(devices=table).among(["c0"])) == 0.002
    assert seconds(first) == 0.001
    assert fleet(table).named["c0"].seconds_per_sample == 0.002
