"""Keys and certificates, and what the commands refuse before anything is started."""

from __future__ import annotations

import importlib.util
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparsona.cli import app
from sparsona.engines.network.keys import make_certificates, make_node_key
from sparsona.errors import InputError

flower = pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs flwr")


@pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="flwr is installed")
def test_without_flower_the_commands_say_how_to_get_it() -> None:
    found = CliRunner().invoke(app, ["deploy", "local"])
    assert isinstance(found.exception, InputError)
    assert 'pip install "sparsona[flower]"' in str(found.exception)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--allow-methods", "fedavg,fedpze", "did you mean 'fedpse'"),
        ("--separator", "ab", "--separator: value error, one character separates columns, such as ; or tab, not 'ab'"),
        ("--decimal", ";", "--decimal: "),
        ("--encoding", "latin-77", "--encoding: value error, encodings are utf-8"),
    ],
)
def test_a_wrong_option_of_a_node_is_refused_before_all_else(option: str, value: str, why: str) -> None:
    given = ["--superlink", "127.0.0.1:9", "--name", "a", "--data", "a", "--state", "a", "--ca", "a", "--key", "a"]
    found = CliRunner().invoke(app, ["node", *given, option, value])
    assert isinstance(found.exception, InputError)
    assert why in str(found.exception)


@pytest.mark.network
@flower
def test_keys_are_their_owners_and_never_overwritten(tmp_path: Path) -> None:
    key = make_node_key(tmp_path, "ward 7")
    assert key.name == "ward%207"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert (tmp_path / "ward%207.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    before = key.read_bytes()
    with pytest.raises(InputError, match="exists"):
        make_node_key(tmp_path, "ward 7")
    assert key.read_bytes() == before


@pytest.mark.network
@flower
def test_certificates_name_the_hosts(tmp_path: Path) -> None:
    from cryptography import x509

    make_certificates(tmp_path, ["fl.example.org", "10.0.0.1"])
    leaf = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "127.0.0.1"]
    assert stat.S_IMODE((tmp_path / "server.key").stat().st_mode) == 0o600
