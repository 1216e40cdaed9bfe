"""``server``: the organiser's machine in a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparsona.cli.app import out


def server(
    certificates: Annotated[Path, typer.Option(help="folder of ca.crt, server.pem and server.key")],
    keys: Annotated[Path, typer.Option(help="folder of the nodes' public keys, NAME.pub")],
    home: Annotated[Path, typer.Option(help="folder for the database, the logs and the runs")] = Path("server"),
    host: Annotated[str, typer.Option(help="address to listen at; 0.0.0.0 for all")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen at")] = 9092,
) -> None:
    """Run the SuperLink that nodes connect to.

    `sparsona deploy run` gives it experiments. It accepts only nodes with a key in --keys. Run directories are in
    HOME/runs.
    """
    from sparsona.engines.network.flower.processes import end_like_ctrl_c
    from sparsona.engines.network.flower.server import Server
    from sparsona.errors import RunError

    end_like_ctrl_c()
    with Server(home, host, port, certificates, keys) as running:
        out.print(f"listening at {running.address} for {', '.join(sorted(running.nodes))}; Ctrl-C ends it")
        try:
            code = running.wait()
        except KeyboardInterrupt:
            return
        raise RunError(f"flower-superlink ended with {code}: {running.home / 'superlink.log'} says why")
