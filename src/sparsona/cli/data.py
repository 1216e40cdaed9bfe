"""``data list``, ``data get``, ``data show``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sparsona.cli.app import err, group, out
from sparsona.cli.options import ABOUT_DATA, RunCommand, RunOptions, takes_run_options
from sparsona.errors import DataError

data = group("data", "List, download and inspect data sets.")


@data.command("list")
def list_() -> None:
    """List the data sets, and which are on this machine."""
    from sparsona import data as datasets
    from sparsona.report.console import size
    from sparsona.report.listing import table

    stores = [datasets.describe(source) for _, source in datasets.DATASETS]
    found = [(one.source, "yes" if one.present else "no") for one in stores]
    rows = [(source.name, source.about, here, size(source.size) if source.size else "-") for source, here in found]
    out.print(table("data sets", ("name", "about", "here", "download"), rows))


@data.command()
def get(name: str) -> None:
    """Download a data set from its publisher, or continue a download."""
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    from sparsona import data as datasets

    source = datasets.DATASETS.get(name)
    with Progress(*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn(), console=err) as bar:
        tasks: dict[str, Any] = {}

        def advance(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        fetched = datasets.fetch(source, progress=advance)
    for file in fetched.files:
        out.print(f"{file.name}: {file.note}", soft_wrap=True)
    out.print(f"{name} is in {fetched.folder}" if fetched.files else f"{name} needs no download", soft_wrap=True)


def show(
    options: RunOptions,
    name: Annotated[str, typer.Argument(help="a data set by name, or your own: folder:PATH, csv:PATH, ...")],
    to: Annotated[Path | None, typer.Option(help="also draw the classes by client: .png, .svg or .pdf")] = None,
) -> None:
    """Show a data set: what its columns mean, and how it is split.

    For a table, this shows what is understood of each column. With --partition, it shows the classes of each client.
    """
    from sparsona import data as datasets
    from sparsona.data.doubts import listed
    from sparsona.data.schema.roles import along_of
    from sparsona.experiment import build
    from sparsona.partition._split import class_counts
    from sparsona.prepare import prepare
    from sparsona.report.console import class_table
    from sparsona.report.drawings import draw_classes
    from sparsona.report.listing import table

    given = options.settings({"method": "local", "data": name})
    experiment, _ = build(given, "the command line")
    data = datasets.load(name, columns=experiment.columns, along=along_of(experiment.split.by))
    table_of = data.rows is not None and data.rows.block is None
    shape = "x".join(map(str, data.inputs.shape[1:]))
    held = f"rows of {len(data.rows.order)} columns" if data.rows and table_of else f"samples of {shape}"
    out.print(f"{data.name}: {len(data)} {held}, {data.classes or 'no'} classes, model {data.model}")
    if data.official_test:
        out.print(f"{data.official_test} of them are the publisher's test part")
    if data.groups is not None:
        more = ", ..." if len(data.group_names) > 8 else ""
        out.print(f"{len(data.group_names)} natural groups: {', '.join(data.group_names[:8])}{more}")
    if data.rows is None and options.partition is None:
        return
    if options.partition is None and data.groups is not None:
        given["partition"] = "groups"
    prepared = prepare(given, loaded=data, origin="the command line")
    lines = prepared.understood()
    if lines:
        out.print(table("what was understood", ("", "understood", "decided"), lines))
    for line in listed(prepared.doubts):
        out.print(f"warning: {line}", soft_wrap=True, highlight=False, markup=False)
    dealt = prepared.setup.federation.data
    if not dealt.classes:
        if options.partition is not None:
            raise DataError(f"{name} has no classes to show: leave --partition out")
        return
    counts = class_counts(prepared.setup.federation)
    names = dealt.class_names or tuple(str(c) for c in range(dealt.classes))
    out.print(class_table(counts, names))
    if to is not None:
        draw_classes(counts, names, to)
        out.print(f"drawn to {to}", soft_wrap=True)


data.command(cls=RunCommand)(takes_run_options(show, ABOUT_DATA))
