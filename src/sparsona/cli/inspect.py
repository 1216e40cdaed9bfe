"""``methods``, ``settings``, ``report``, ``export``, ``predict``, ``wire`` and ``draw``."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from sparsona.cli.app import out
from sparsona.cli.folders import label, runs_in
from sparsona.errors import InputError
from sparsona.methods import METHODS
from sparsona.registry import suggest
from sparsona.terminal import Screen
from sparsona.words import counted


def methods(
    name: Annotated[str | None, typer.Argument(metavar="[METHOD]", help="show the options of this method")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, all with their options")] = False,
) -> None:
    """List the methods, or show the options of one."""
    from sparsona.report import listing as show

    if name is not None:
        METHODS.check(name)
    if as_json:
        names = METHODS.names() if name is None else [name]
        found = [(one, *show.method_entry(one)) for one in names]
        tree = [{"name": one, "about": about, "options": {o.name: o.default for o in own}} for one, about, own in found]
        typer.echo(json.dumps(tree, indent=2, default=str))
    elif name is None:
        out.print(show.table("methods", ("name", "what it does"), METHODS.describe().items()))
        out.print("sparsona methods NAME shows the options of one", soft_wrap=True)
    else:
        about, own = show.method_entry(name)
        out.print(about, soft_wrap=True, highlight=False)
        rows = [(option.name, option.kind, show.default(option.default), option.text) for option in own]
        head = "name", "type", "default", "meaning"
        out.print(show.table(f"{name}: options, for --set", head, rows) if own else "no options")


def settings(
    section: Annotated[str | None, typer.Argument(help="one section: training, schedule, ...")] = None,
) -> None:
    """List every setting with its type, default and meaning."""
    from sparsona.experiment import SECTIONS, all_settings
    from sparsona.report import listing as show

    if section is not None and section not in SECTIONS:
        raise InputError(f"unknown section {section!r}{suggest(section, SECTIONS)}")
    found = [s for s in all_settings() if section is None or s.name.startswith(f"{section}.")]
    rows = [(s.name, s.kind, show.default(s.default), s.text) for s in found]
    out.print(show.table("settings", ("key", "type", "default", "meaning"), rows))
    out.print("a method's own options: sparsona methods NAME", soft_wrap=True)


def export(
    run: Annotated[Path, typer.Argument(help="a run directory, or a client's .safetensors file")],
    to: Annotated[Path, typer.Option(help="file to write: .safetensors, .npz, .onnx or .txt (trees)")],
    client: Annotated[str, typer.Option(help="client of the run directory")] = "",
    format: Annotated[
        str | None, typer.Option(help="safetensors, npz, onnx or txt [by the ending of the file's name]")
    ] = None,
    slim: Annotated[
        bool, typer.Option("--slim", help="export a smaller net: leave out the rows without weights")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="with the frozen weights, too (.safetensors)")] = False,
    base: Annotated[str, typer.Option(metavar="FILE", help="the model's frozen weights, if it has some")] = "",
) -> None:
    """Write one client's personal model to a file."""
    from sparsona.export.run import export_model
    from sparsona.export.slim import export_slim

    if not client and not run.is_file():
        raise InputError(f"{run} is not a model file: name a client of the run with --client NAME")
    if slim:
        sizes = export_slim(run, client, to)
        out.print(f"wrote {to}: {sizes.after} numbers instead of {sizes.before}", soft_wrap=True)
        return
    if whole:
        from sparsona.result import load

        if to.suffix != ".safetensors" or client not in (done := load(run, base=base)).models:
            raise InputError(f"cannot write {to}: --whole takes a client of the run, and a name with .safetensors")
        done.models[client].save(to, whole=True)
    else:
        export_model(run, client, to, format, base)
    out.print(f"wrote {to}", soft_wrap=True)


def predict(
    model: Annotated[Path, typer.Argument(help="a model that sparsona export wrote: .safetensors or .npz")],
    rows: Annotated[Path, typer.Argument(metavar="FILE", help="raw rows, without a target: .csv, .parquet or .npz")],
    to: Annotated[Path | None, typer.Option("--out", help="the csv to write [to the screen]")] = None,
    id: Annotated[
        str, typer.Option("--id", metavar="COLUMN", help="repeat this column of the input rows in the output")
    ] = "",
    exact: Annotated[bool, typer.Option("--probabilities", help="write probabilities with all digits")] = False,
    base: Annotated[str, typer.Option(metavar="FILE", help="the model's frozen weights, if it has some")] = "",
) -> None:
    """Predict raw rows with an exported model, as csv."""
    from sparsona.export.predict import predict_file, write_predictions

    if to is None:
        predict_file(model, rows, Screen(sys.stdout) if sys.stdout.isatty() else sys.stdout, id, exact, base)
        return
    count = write_predictions(model, rows, to, id, exact, base)
    out.print(f"wrote {to}: {counted(count, 'prediction')}", soft_wrap=True)


def wire(run: Annotated[Path, typer.Argument(help="a run directory")]) -> None:
    """Show where the bytes of a run went.

    Positions of sparse updates are compared with their entropy bound.
    """
    from sparsona.report import console as show
    from sparsona.runs.directory import RunDirectory

    out.print(show.breakdown(RunDirectory(run).summary()))


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_OR_FOLDER...", help="run directories, or folders of them; unfinished too"),
    ],
    file: Annotated[Path, typer.Option("--out", help="the file to write")] = Path("report.html"),
    show: Annotated[bool, typer.Option("--open", help="show it in the browser")] = False,
) -> None:
    """Write an HTML report that compares runs."""
    from sparsona.report.html import write_report

    write_report(runs, file)
    out.print(f"report: {file}", soft_wrap=True, highlight=False)
    if show and typer.launch(file.resolve().as_uri()) != 0:
        raise InputError(f"no browser opens {file}: open it by hand")


def draw(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories, or a folder of them")],
    point: Annotated[str, typer.Option(help="where models are measured: pre, post or ft")] = "pre",
    file: Annotated[Path, typer.Option("--out", help="the image to write")] = Path("curves.png"),
) -> None:
    """Draw accuracy against rounds, bytes and simulated seconds."""
    from sparsona.report import curves
    from sparsona.runs.directory import RunDirectory
    from sparsona.runs.scores import POINTS

    folders = [inner for given in runs for inner in runs_in(given)]
    summaries = [RunDirectory(folder).summary() for folder in folders]
    if point not in POINTS:
        raise InputError(f"{point!r} is no point of evaluation: choose one of {', '.join(POINTS)}")
    metric = summaries[0]["metric"]
    strangers = [str(f) for f, summary in zip(folders, summaries, strict=True) if summary["metric"] != metric]
    if strangers:
        raise InputError(f"{folders[0]} measures {metric}, {strangers[0]} does not: draw them apart")
    found = {label(folder, folders): curves.marks(folder, point) for folder in folders}
    for folder in folders:
        if not found[label(folder, folders)]:
            raise InputError(f"{folder} was not measured at {point}: choose another --point")
    try:
        curves.draw(found, file, point, curves.SHOWN, metric)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file} cannot be drawn ({error}): give --out a path that ends in .png, .pdf or .svg"
        ) from None
    out.print(f"drawn: {file}", soft_wrap=True)
