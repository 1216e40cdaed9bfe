"""``node``: an owner's machine in a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparsona.cli.app import out


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file to the application."""
    app.command()(node)


def node(
    superlink: Annotated[str, typer.Option(metavar="HOST:PORT", help="the organiser's SuperLink")],
    name: Annotated[str, typer.Option(help="this client's name, as registered with its key")],
    data: Annotated[Path, typer.Option(help="this client's data: a .csv, .parquet or .npz file, or their folder")],
    state: Annotated[Path, typer.Option(help="folder for what the client remembers, its log and its model")],
    ca: Annotated[Path, typer.Option(help="the organiser's ca.crt")],
    key: Annotated[Path, typer.Option(help="this client's private key")],
    separator: Annotated[
        str | None,
        typer.Option(metavar="CHARACTER", help="what separates columns of this csv file [as the experiment says]"),
    ] = None,
    decimal: Annotated[
        str | None, typer.Option(metavar="SIGN", help="the decimal sign of this csv file [as the experiment says]")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="encoding of this csv file [as the experiment says]")] = None,
    missing: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="what means a missing value in this file [as the experiment says]"),
    ] = None,
    allow_methods: Annotated[
        str, typer.Option(metavar="A,B", help="methods that may run here [any of this package]")
    ] = "",
    max_epochs: Annotated[int, typer.Option(min=1, help="most epochs of training in a round")] = 20,
    max_weights: Annotated[int, typer.Option(min=1, help="largest model, in weights")] = 100_000_000,
    send_scores: Annotated[bool, typer.Option(help="send the scores on this client's test rows")] = True,
    send_model: Annotated[bool, typer.Option(help="send the client's own model at the end")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    idle: Annotated[float, typer.Option(min=0.05, help="most seconds between two questions for work")] = 1.0,
) -> None:
    """Take part in a federation with the data on this machine, which stay here.

    The client's model and a report are in the state folder at the end. Its log says what was received and sent.
    """
    from sparsona.data.schema.columns import Columns
    from sparsona.engines.flower import need_flwr
    from sparsona.engines.flower.checks import check_address, check_certificate, check_private_key
    from sparsona.engines.flower.owned import OwnFormat, check_own
    from sparsona.methods import METHODS

    methods = tuple(one.strip() for one in allow_methods.split(",") if one.strip())
    for method in methods:
        METHODS.check(method)
    written = OwnFormat(separator, decimal, encoding, missing)
    written.applied(Columns())  # a wrong one is refused here, not when a run begins
    check_address(superlink)
    check_own(data, name, written)
    check_certificate(ca)
    need_flwr()
    check_private_key(key)
    from sparsona.engines.flower.node import Rules
    from sparsona.engines.flower.owner import Owner
    from sparsona.engines.flower.processes import end_like_ctrl_c

    end_like_ctrl_c()
    rules = Rules(methods, max_epochs, max_weights, send_scores, send_model)
    try:
        Owner(name, superlink, data, state, ca, key, rules, device, idle, written).run()
    except KeyboardInterrupt:
        out.print("stopped; start the node again to go on")
