"""``watch``: a live page about runs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sparsona.cli.app import out
from sparsona.errors import InputError


@contextmanager
def page_of(folder: Path, where: str) -> Iterator[None]:
    """Serve the live page of a folder while the block lasts, at ``PORT`` of this machine or ``HOST:PORT``; or none."""
    if not where:
        yield
        return
    from sparsona.report.live import watching

    host, _, port = where.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        raise InputError(f"--page {where} has no port: give a number such as 8321, or HOST:8321")
    folder.mkdir(parents=True, exist_ok=True)
    with watching(folder, host or "127.0.0.1", int(port)) as page:
        out.print(f"page: {page.url}", soft_wrap=True, highlight=False)
        yield


def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN_OR_FOLDER", help="a run, a study, a server's --home or a node's --state")
    ],
    host: Annotated[str, typer.Option(help="address to listen at; the page has no password")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of the page (0: any free port)")] = 8321,
    show: Annotated[bool, typer.Option("--open", help="show it in the browser")] = False,
) -> None:
    """Show a live page about runs that go on; it only reads their files."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: give the --out of a run, compare or sweep that has begun")
    from sparsona.report.live import watching

    with watching(folder, host, port) as page:
        out.print(f"page: {page.url} (Ctrl-C ends it)", soft_wrap=True, highlight=False)
        if show:
            typer.launch(page.url)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return
