"""``server``: the organiser's machine in a federation."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from sparsona.cli.app import out
from sparsona.cli.watch import page_of


def server(
    keys: Annotated[Path, typer.Option(help="folder of the nodes' public keys, NAME.pub")],
    certificates: Annotated[
        Path | None, typer.Option(help="with Flower: folder of ca.crt, server.pem and server.key")
    ] = None,
    home: Annotated[Path, typer.Option(help="folder for the database, the logs and the runs")] = Path("server"),
    host: Annotated[str, typer.Option(help="with Flower: address to listen at; 0.0.0.0 for all")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="with Flower: port to listen at")] = 9092,
    mailbox: Annotated[
        str, typer.Option(metavar="URL", help="a folder, sftp://, s3:// or webdav+https:// instead of Flower")
    ] = "",
    key: Annotated[Path | None, typer.Option(help="with a mailbox: the organiser's private key")] = None,
    experiment: Annotated[
        Path | None, typer.Option(help="with a mailbox: the experiment file to run; its data are ignored")
    ] = None,
    name: Annotated[
        str, typer.Option(help="with a mailbox: name of the run; an interrupted run of this name goes on")
    ] = "run",
    patience: Annotated[float, typer.Option(min=1, help="with a mailbox: seconds to wait for all nodes")] = 300.0,
    fewest: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="with a mailbox: begin without nodes that cannot take part if N can [all must]"
        ),
    ] = 0,
    idle: Annotated[float, typer.Option(min=0.05, help="with a mailbox: most seconds between two looks")] = 30.0,
    page: Annotated[str, typer.Option(metavar="[HOST:]PORT", help="show a live page about the runs")] = "",
) -> None:
    """Run the organiser's side of a federation.

    With --certificates it is a SuperLink of Flower, to which `sparsona deploy run` gives experiments. With --mailbox it
    runs --experiment and ends. Only nodes with a key in --keys take part. Run directories are in HOME/runs.
    """
    from sparsona.engines.network.flower.processes import end_like_ctrl_c
    from sparsona.errors import InputError, RunError

    if mailbox:
        if key is None or experiment is None:
            raise InputError("sparsona server --mailbox needs --key and --experiment")
        from sparsona.engines.network.mailbox.server import run_in_mailbox, seals_of
        from sparsona.experiment import build, read

        agreed, _ = build(read(experiment), str(experiment))
        end_like_ctrl_c()
        with page_of(home, page):
            try:
                run_in_mailbox(mailbox, seals_of(key, keys), home, agreed, name, patience, fewest, idle)
            except KeyboardInterrupt:
                out.print(f"stopped; the same command goes on with the run {name}", soft_wrap=True)
                raise typer.Exit(130) from None
        return
    if certificates is None:
        raise InputError("sparsona server needs --certificates for Flower, or --mailbox")
    from sparsona.engines.network.flower.server import Server

    end_like_ctrl_c()
    with closing(Server(home, host, port, certificates, keys)) as running, page_of(home, page):
        out.print(f"listening at {running.address} for {', '.join(sorted(running.nodes))}; Ctrl-C ends it")
        try:
            code = running.link.wait()
        except KeyboardInterrupt:
            return
        raise RunError(f"flower-superlink ended with {code}: {running.home / 'superlink.log'} says why")
