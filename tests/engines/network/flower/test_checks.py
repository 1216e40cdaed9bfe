"""What `sparsona node` and `sparsona server` refuse before they start a process."""

from __future__ import annotations

import datetime
import importlib.util
import socket
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparsona.cli import app
from sparsona.engines.network import keys
from sparsona.engines.network.flower.checks import check_address, check_certificate, check_port
from sparsona.engines.network.flower.processes import free_port
from sparsona.engines.network.flower.server import Server
from sparsona.engines.network.keys import make_certificates, make_node_key, private_key
from sparsona.errors import InputError

needs_flower = pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs flwr")
CUT_OFF = """-----BEGIN CERTIFICATE-----
MIIBtjCCAV2gAwIBAgIUQ29
-----END CERTIFICATE-----
"""


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "fl.example.org:1", "[::1]:65535", "host_a:80"])
def test_addresses(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", "has no port from 1 to 65535: add the one of sparsona server"),
        ("127.0.0.1:", "has no port"),
        ("", "has no port"),
        ("fl.example.org:0", "has no port"),
        ("fl.example.org:65536", "has no port"),
        ("fl.example.org:http", "has no port"),
        (":9092", "has no name of a machine"),
        ("a b:9092", "has no name of a machine"),
        ("https://fl.example.org:9092", "has no name of a machine"),
        ("a:b:9092", "has no name of a machine"),
        ("::1:9092", "in brackets"),
    ],
)
def test_what_is_no_address_is_refused(address: str, why: str) -> None:
    with pytest.raises(InputError, match=r"--superlink .*fl\.example\.org:9092") as found:
        check_address(address)
    assert why in str(found.value)


@pytest.mark.parametrize("content", [b"ecdsa-sha2-nistp384 AAAA", b"", b"\xff\x00", CUT_OFF.encode()])
def test_what_is_no_certificate_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    with pytest.raises(InputError, match="No such file"):
        check_certificate(file)
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"is not a PEM certificate: give --ca the organiser's ca\.crt"):
        check_certificate(file)
    with pytest.raises(InputError, match="Is a directory"):
        check_certificate(tmp_path)


@pytest.mark.network
@needs_flower
def test_keys_and_certificates_of_our_own_pass_and_others_do_not(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    make_certificates(tmp_path, ["127.0.0.1"])
    check_certificate(tmp_path / "ca.crt")
    key = make_node_key(tmp_path, "va")
    private_key(key)
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    (tmp_path / "other").write_bytes(other)
    for name, why in {
        "va.pub": "is a public key: give --key the private one",
        "ca.crt": "is not a private key",
        "server.key": "is not a private key",
        "other": "is not an elliptic curve key",
        "nothing": "No such file",
    }.items():
        with pytest.raises(InputError, match=why):
            private_key(tmp_path / name)


@pytest.mark.network
@needs_flower
@pytest.mark.parametrize(
    ("days", "why"), [(-800, r"has expired on \d{4}-.*sparsona deploy keys --host"), (1, "set it")]
)
def test_a_certificate_that_is_not_valid_now_is_refused(
    days: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Then(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return datetime.datetime.now(tz) + datetime.timedelta(days)

    parts = {"datetime": Then, "timedelta": datetime.timedelta, "UTC": datetime.UTC}
    monkeypatch.setattr(keys, "datetime", types.SimpleNamespace(**parts))
    make_certificates(tmp_path / "certificates", ["127.0.0.1"])
    make_node_key(tmp_path / "keys", "va")
    with pytest.raises(InputError, match=why):
        check_certificate(tmp_path / "certificates" / "ca.crt")
    with pytest.raises(InputError, match=why):
        Server(tmp_path / "home", "127.0.0.1", free_port(), tmp_path / "certificates", tmp_path / "keys")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens at."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_a_port_that_another_program_has_is_refused(taken: int) -> None:
    for host in ("127.0.0.1", "0.0.0.0", "localhost"):
        with pytest.raises(InputError, match=f":{taken} .*in use.*--port"):
            check_port(host, taken)


def test_a_free_port_is_left_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as line:
            other.accept()[0].close()  # the port waits for late packets from now on, as after a server's end
            line.recv(1)
    check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


@pytest.mark.parametrize(("host", "why"), [("192.0.2.7", "cannot listen at"), ("no such host", "there is no machine")])
def test_a_host_that_is_not_this_machine_is_refused(host: str, why: str) -> None:
    with pytest.raises(InputError, match=f"{why}.*--host"):
        check_port(host, 9)


@pytest.mark.parametrize("port", [-1, 0, 65536, 99999])
def test_a_server_refuses_a_port_that_there_is_not_and_makes_nothing(port: int, tmp_path: Path) -> None:
    given = ["--certificates", str(tmp_path), "--keys", str(tmp_path), "--home", str(tmp_path / "home")]
    found = CliRunner().invoke(app, ["server", *given, "--port", str(port)])
    assert isinstance(found.exception, InputError)
    assert str(found.exception) == f"there is no port {port}: give --port a number from 1 to 65535"
    assert not (tmp_path / "home").exists()


def test_a_server_does_not_take_anothers_port_for_its_own(taken: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f":{taken} .*in use"):
        Server(tmp_path / "home", "127.0.0.1", taken, tmp_path, tmp_path)
    assert not (tmp_path / "home").exists()


def node(tmp_path: Path, **changed: str) -> str:
    """What `sparsona node` says against one wrong setting."""
    file = tmp_path / "va.csv"
    if not file.exists():
        file.write_text("age,ill\n5,1\n")
    given = {"superlink": "127.0.0.1:9", "name": "va", "data": str(file), "state": str(tmp_path / "state")}
    given |= {"ca": str(file), "key": str(file)} | changed
    words = [word for option, value in given.items() for word in (f"--{option}", value)]
    found = CliRunner().invoke(app, ["node", *words])
    assert isinstance(found.exception, InputError)
    assert not (tmp_path / "state").exists()
    return str(found.exception)


def test_a_node_looks_at_its_settings_and_its_data_first(tmp_path: Path) -> None:
    assert "--superlink '127.0.0.1' has no port" in node(tmp_path, superlink="127.0.0.1")
    (tmp_path / "none.csv").write_text("")
    assert "none.csv is empty; give a header line" in node(tmp_path, data=str(tmp_path / "none.csv"))
    assert "holds 0 files of 'vb', expected one of" in node(tmp_path, data=str(tmp_path), name="vb")
    assert "va.csv is not a PEM certificate" in node(tmp_path)


@pytest.mark.network
@needs_flower
def test_a_node_looks_at_its_key_first(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["127.0.0.1"])
    make_node_key(tmp_path, "va")
    assert "va.pub is a public key" in node(tmp_path, ca=str(tmp_path / "ca.crt"), key=str(tmp_path / "va.pub"))


def test_a_deployment_looks_at_its_settings_first(tmp_path: Path) -> None:
    for options, why in ((["--superlink", "here"], "has no port"), ([], "is not a PEM certificate")):
        (tmp_path / "ca").write_text("")
        found = CliRunner().invoke(app, ["deploy", "run", "none.toml", "--ca", str(tmp_path / "ca"), *options])
        assert isinstance(found.exception, InputError)
        assert why in str(found.exception)
