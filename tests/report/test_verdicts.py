from __future__ import annotations

from pathlib import Path

from sparsona.report.verdicts import Verdict, write_verdicts

HEAD = "method,client,seed,test,gain,p,verdict\n"


def test_verdicts_are_one_line_each(tmp_path: Path) -> None:
    file = tmp_path / "clients.csv"
    write_verdicts(file, {"fedavg": [Verdict("east", 0, 0.25, 0.001, 40), Verdict("west", None, -0.1, 0.5, 35)]})
    assert file.read_text() == (
        f"{HEAD}fedavg,east,0,40,0.25,0.001,better\nfedavg,west,,35,-0.1,0.5,cannot be told from 35 test rows\n"
    )


def test_without_a_verdict_the_header_stands_alone(tmp_path: Path) -> None:
    write_verdicts(tmp_path / "clients.csv", {"local": []})
    assert (tmp_path / "clients.csv").read_text() == HEAD
