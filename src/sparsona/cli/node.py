"""``node``: an owner's machine in a federation."""

from pathlib import Path
from typing import Annotated

import typer

from sparsona.cli.app import out
from sparsona.cli.watch import page_of


def node(
    state: Annotated[Path, typer.Option(help="folder for what the client remembers, its log and its model")],
    superlink: Annotated[str, typer.Option(metavar="HOST:PORT", help="with Flower: the organiser's SuperLink")] = "",
    mailbox: Annotated[
        str, typer.Option(metavar="URL", help="a folder, sftp://, s3:// or webdav+https:// instead of Flower")
    ] = "",
    name: Annotated[str, typer.Option(help="this client's name, as registered with its key")] = "",
    data: Annotated[
        Path | None, typer.Option(help="this client's data: a .csv, .parquet or .npz file, or their folder")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="with Flower: the organiser's ca.crt")] = None,
    server_key: Annotated[Path | None, typer.Option(help="with a mailbox: the organiser's public key")] = None,
    once: Annotated[bool, typer.Option("--once", help="with a mailbox: answer all waiting messages, and end")] = False,
    key: Annotated[Path | None, typer.Option(help="this client's private key")] = None,
    experiment: Annotated[
        Path | None,
        typer.Option(help="the experiment file that was agreed on: its columns and split need no other consent"),
    ] = None,
    accept: Annotated[
        str, typer.Option(metavar="FINGERPRINT", help="consent to statistics that a server asks for, and end")
    ] = "",
    test: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.99, help="share of the rows to test on [as --experiment says, or 0.2]"),
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(min=0.0, max=0.99, help="share of the other rows to choose on [as --experiment says, or 0.1]"),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="random, time:COLUMN or group:COLUMN [as --experiment says, or random]"),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(metavar="CHARACTER", help="separator of this csv file [as the experiment says]"),
    ] = None,
    decimal: Annotated[
        str | None, typer.Option(metavar="SIGN", help="the decimal sign of this csv file [as the experiment says]")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="encoding of this csv file [as the experiment says]")] = None,
    missing: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="codes of a missing value in this file [as the experiment says]"),
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(metavar="A=0:9,B=x/y", help="ranges and names of this file's columns [as the experiment says]"),
    ] = None,
    allow_methods: Annotated[
        str, typer.Option(metavar="A,B", help="methods that may run here [any of this package]")
    ] = "",
    max_epochs: Annotated[int, typer.Option(min=1, help="most epochs of training in a round")] = 20,
    max_weights: Annotated[int, typer.Option(min=1, help="largest model, in weights")] = 100_000_000,
    max_rounds: Annotated[int, typer.Option(min=1, help="most rounds of a run")] = 1000,
    max_proposals: Annotated[int, typer.Option(min=1, help="most runs over the life of --state")] = 100,
    least_rows: Annotated[
        int, typer.Option(min=1, help="no batch, score, category or class of fewer rows leaves this machine")
    ] = 20,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="for tests: split and shuffle as a simulation with this seed. In production the organiser must not "
            "know it [a secret in --state]",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(min=0.001, help="privacy budget of the training rows over all runs [only that of a run, if any]"),
    ] = None,
    delta: Annotated[
        float, typer.Option(min=1e-10, max=0.1, help="probability with which --epsilon may fail, over all runs")
    ] = 1e-6,
    send_scores: Annotated[
        bool | None, typer.Option(help="send the scores on this client's test rows [yes, but not with --epsilon]")
    ] = None,
    send_model: Annotated[bool, typer.Option(help="send the client's own model at the end")] = False,
    base: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the model's frozen weights (.safetensors), if it has some")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    idle: Annotated[
        float | None,
        typer.Option(min=0.05, help="most seconds between two looks for work [1, with a mailbox 30]"),
    ] = None,
    page: Annotated[str, typer.Option(metavar="[HOST:]PORT", help="show a live page about this node")] = "",
) -> None:
    """Take part in a federation; the data stay on this machine.

    The client's model and a report are in the state folder at the end. Its log says what was received and sent.

    Without --experiment, the node waits for your consent (--accept) before it tells a server any statistics.
    """
    from sparsona.data.schema.columns import Columns
    from sparsona.data.schema.roles import along_of
    from sparsona.engines.network.consent import Terms
    from sparsona.engines.network.flower.checks import check_address, check_certificate
    from sparsona.engines.network.flower.private import need_flwr
    from sparsona.engines.network.keys import private_key
    from sparsona.engines.network.node import Connection, Owner, accepted
    from sparsona.engines.network.own_data import OwnFormat, check_own
    from sparsona.errors import InputError
    from sparsona.methods import METHODS

    if accept:
        out.print(f"accepted: {accepted(state, accept)}", soft_wrap=True, markup=False, highlight=False)
        return
    given = {"--name": name, "--data": data, "--key": key}
    given |= {"--server-key": server_key} if mailbox else {"--superlink (or --mailbox)": superlink, "--ca": ca}
    if lacking := [option for option, value in given.items() if not value]:
        raise InputError(f"sparsona node needs {', '.join(lacking)}")
    assert data is not None
    assert key is not None
    methods = tuple(one.strip() for one in allow_methods.split(",") if one.strip())
    for method in methods:
        METHODS.check(method)
    written = OwnFormat(separator, decimal, encoding, missing, bounds)
    written.applied(Columns())  # a wrong one is refused here, not when a run begins
    terms = Terms.of(experiment, seed, test=test, validation=validation, by=split)
    along_of(terms.split.by)
    connection: Connection
    if mailbox:
        assert server_key is not None
        check_own(data, name, written)
        from sparsona.engines.network.mailbox.boxes import MailboxConnection
        from sparsona.engines.network.mailbox.seal import Seal

        connection = MailboxConnection(name, mailbox, Seal(key, server_key), idle or 30.0, once)
    else:
        assert ca is not None
        check_address(superlink)
        check_own(data, name, written)
        check_certificate(ca)
        need_flwr()
        private_key(key)
        from sparsona.engines.network.flower.connection import FlowerConnection

        connection = FlowerConnection(superlink, ca, key, idle or 1.0)
    from sparsona.engines.network.consent import Rules
    from sparsona.engines.network.flower.processes import end_like_ctrl_c

    end_like_ctrl_c()
    scores = epsilon is None if send_scores is None else send_scores
    most = max_rounds, max_proposals
    frozen = str(base.resolve()) if base else ""
    rules = Rules(methods, max_epochs, max_weights, scores, send_model, least_rows, *most, epsilon, delta)
    try:
        with page_of(state, page):
            Owner(name, connection, data, state, rules, device, written, terms, frozen).run()
    except KeyboardInterrupt:
        out.print("stopped; start the node again to go on")
