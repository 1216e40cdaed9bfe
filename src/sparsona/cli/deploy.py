"""``deploy``: experiments on a real network."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsona.cli.app import err, group, out
from sparsona.cli.options import RunCommand, RunOptions, takes_run_options
from sparsona.words import counted

deploy = group("deploy", "Run experiments on a real network.")


@deploy.command()
def keys(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="clients that need a key")] = None,
    folder: Annotated[Path, typer.Option("--out", help="folder to write to")] = Path("keys"),
    host: Annotated[
        list[str] | None, typer.Option(help="with Flower: name or address of the SuperLink; makes its certificates")
    ] = None,
) -> None:
    """Make keys for a federation, and certificates of a SuperLink (--host).

    The file NAME stays with its owner. NAME.pub is for the other side: an owner's for the organiser, and the
    organiser's for all owners. ca.crt is for all.
    """
    from sparsona.engines.network.keys import make_certificates, make_node_key
    from sparsona.errors import InputError

    if not host and not names:
        raise InputError("nothing to make: give --host for certificates, names for keys")
    if host:
        make_certificates(folder, host)
        out.print(f"certificates for {', '.join(host)}: {folder}", soft_wrap=True)
    for name in names or ():
        out.print(f"key of {name}: {make_node_key(folder, name)}", soft_wrap=True)


@deploy.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="experiment.toml", help="an experiment file; its data are ignored")],
    ca: Annotated[Path, typer.Option(help="ca.crt of sparsona server")],
    superlink: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="where sparsona server listens, on this machine")
    ] = "127.0.0.1:9092",
    name: Annotated[str, typer.Option(help="name of the run; an interrupted run of this name goes on")] = "run",
    patience: Annotated[float, typer.Option(min=1, help="seconds to wait for all nodes")] = 300.0,
    fewest: Annotated[
        int, typer.Option(min=0, metavar="N", help="begin without nodes that cannot take part if N can [all must]")
    ] = 0,
) -> None:
    """Run an experiment on the nodes of a SuperLink.

    Call it on the machine of sparsona server, which accepts only nodes from other machines.
    """
    from sparsona.engines.network.flower.checks import check_address, check_certificate
    from sparsona.engines.network.flower.private import need_flwr
    from sparsona.experiment import build, read

    check_address(superlink)
    check_certificate(ca)
    need_flwr()
    from sparsona.engines.network.deploy import submit
    from sparsona.engines.network.setup import check_networkable

    experiment, _ = build(read(file), str(file))
    check_networkable(experiment)

    def say(line: str) -> None:
        out.print(line, highlight=False, markup=False, soft_wrap=True)

    try:
        submit(experiment, superlink, ca, name, patience, say, fewest)
    except KeyboardInterrupt:
        err.print("no longer watching; the run goes on at the server")
        raise typer.Exit(130) from None


@deploy.command(cls=RunCommand)
@takes_run_options
def local(
    options: RunOptions,
    nodes: Annotated[int, typer.Option(min=1, help="number of nodes")] = 3,
    method: Annotated[str, typer.Option(help="the method")] = "fedpse",
    folder: Annotated[Path | None, typer.Option("--out", help="folder to keep all in [a temporary one]")] = None,
    mailbox: Annotated[
        str, typer.Option(metavar="URL", help="carry messages through this folder or URL, without Flower")
    ] = "",
    check: Annotated[bool, typer.Option(help="run the simulator too, and compare digests and bytes")] = True,
) -> None:
    """Run an experiment on a whole federation on this machine.

    The command starts a server and nodes with keys of their own, and stops them at the end. Data are split as in a
    simulation; each node is a process that holds its own share only.
    """
    from sparsona.engines.network.flower.private import need_flwr
    from sparsona.methods import METHODS

    METHODS.check(method)
    if not mailbox:
        need_flwr()
    from sparsona.api import execute
    from sparsona.engines.network.deploy import LocalNodes, LoopbackFederation, MailboxFederation, local_federation
    from sparsona.engines.network.flower.processes import end_like_ctrl_c
    from sparsona.engines.network.mailbox.store import absolute_url
    from sparsona.engines.network.setup import check_networkable
    from sparsona.errors import RunError
    from sparsona.experiment import assign
    from sparsona.prepare import prepare
    from sparsona.rate import settled
    from sparsona.runs.directory import RunDirectory

    base: dict[str, Any] = {"method": method, "rounds": 3}
    settings = options.settings(base)
    settings.setdefault("clients", 0 if str(settings.get("data", "")).startswith("folder:") else nodes)
    prepared = settled(prepare(assign(settings, options.set or ()), origin="the command line"))
    prepared = replace(prepared, search=None)  # the network has no trials: its bytes are compared with the simulator's
    check_networkable(prepared.experiment)
    end_like_ctrl_c()
    with tempfile.TemporaryDirectory(prefix="sparsona-") as scratch:
        place = folder or Path(scratch)
        told = counted(len(prepared.setup.task.clients), "node")
        err.print(f"starting a server and {told} in {place}", soft_wrap=True)
        federation = prepared.setup.federation
        given = place, sorted(federation.clients)
        nodes_here: LocalNodes = LoopbackFederation(*given)
        if mailbox:
            nodes_here = MailboxFederation(*given, mailbox=absolute_url(mailbox))
        with local_federation(nodes_here, federation, prepared.experiment) as running:
            where = running.run(
                prepared.experiment, say=lambda line: err.print(line, highlight=False, markup=False, soft_wrap=True)
            )
        summary = RunDirectory(where).summary()
        out.print(f"digest of the network   {summary['digest']}", soft_wrap=True, highlight=False)
        if not check:
            return
        simulated = execute(prepared).summary
        out.print(f"digest of the simulator {simulated['digest']}", soft_wrap=True, highlight=False)
        for what in ("digest", "bytes"):
            if simulated[what] != summary[what]:
                raise RunError(f"the {what} of the simulator, {simulated[what]}, is not the network's, {summary[what]}")
        out.print("the simulator gives the same digest and the same bytes", highlight=False)
