"""The command line. It reads arguments and prints; the work is done elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

from sparsona import data as datasets
from sparsona import reproduce as papers
from sparsona.api import execute
from sparsona.chance import Chance
from sparsona.errors import DataError, InputError, SparsonaError
from sparsona.experiment import Experiment, assign, option_names, read
from sparsona.methods import METHODS
from sparsona.partition._split import class_counts, federate
from sparsona.prepare import prepare
from sparsona.report import console as show
from sparsona.report import curves
from sparsona.report.plots import draw_classes
from sparsona.runs.directory import RunDirectory
from sparsona.runs.scores import POINTS
from sparsona.training.slim.export import export_slim
from sparsona.version import __version__

app = typer.Typer(
    help="Sparse, personalised federated learning over thin networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Data sets: list, get, show.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")
out = Console()
err = Console(stderr=True)


@app.command()
def run(
    what: Annotated[str, typer.Argument(metavar="METHOD|experiment.toml", help="a method, or an experiment file")],
    data: Annotated[str | None, typer.Option(help="data set [digits]")] = None,
    model: Annotated[str | None, typer.Option(help="model [auto: the data set's own]")] = None,
    clients: Annotated[int | None, typer.Option(help="number of clients [10]")] = None,
    partition: Annotated[str | None, typer.Option(help="how data are dealt out [dirichlet-classes:0.3]")] = None,
    rounds: Annotated[int | None, typer.Option(help="rounds [20]")] = None,
    sample: Annotated[float | None, typer.Option(help="share of clients in a round [1.0]")] = None,
    seed: Annotated[int | None, typer.Option(help="seed of all chance [0]")] = None,
    engine: Annotated[
        str | None, typer.Option(help="what runs the clients: inprocess, pool [auto: the pool where it pays]")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="worker processes [0: one a core]")] = None,
    trainer: Annotated[str | None, typer.Option(help="plain, or batched: tiny models of many clients at once")] = None,
    packing: Annotated[
        str | None, typer.Option(help="tight: as few bytes as possible, or plain: less time for more bytes [tight]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda [cpu]")] = None,
    eval_every: Annotated[int | None, typer.Option(help="evaluate every so many rounds, 0: only the last [1]")] = None,
    new_clients: Annotated[
        float | None, typer.Option(help="share held out of training, to join at the end [0]")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="any other setting")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="run directory [runs/METHOD-DATA-SEED]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress bar, no tables")] = False,
) -> None:
    """Run an experiment: a method by name, or a complete experiment file."""
    file = Path(what)
    chosen: dict[str, Any] = read(file) if file.suffix == ".toml" else {"method": what}
    flags = {
        "data": data, "model": model, "clients": clients, "partition": partition, "rounds": rounds, "seed": seed,
        "engine": engine, "workers": workers, "trainer": trainer, "packing": packing, "device": device,
        "new_clients": new_clients,
    }  # fmt: skip
    chosen |= {key: value for key, value in flags.items() if value is not None}
    for section, key, value in (("schedule", "sample", sample), ("evaluation", "every", eval_every)):
        if value is not None:
            chosen[section] = {**chosen.get(section, {}), key: value}
    METHODS.get(str(chosen.get("method", "")))
    prepared = prepare(assign(chosen, settings or ()), origin=what if file.suffix == ".toml" else "the command line")
    experiment = prepared.experiment
    if folder is None:
        stem = _stem(experiment.method, experiment)
        there = RunDirectory.around(file)
        folder = (there.path if there else _latest(stem)) if resume else _fresh(stem)
    metric = prepared.setup.objective.metric_name
    try:
        with show.RoundProgress(err, experiment.method, experiment.rounds, metric, quiet) as progress:
            result = execute(prepared, RunDirectory(folder), resume, progress.advance, progress.started)
    except KeyboardInterrupt:
        written = RunDirectory(folder).experiment_file
        how = f"continue with sparsona run {quote(str(written))} --resume" if written.exists() else "nothing was done"
        err.print(f"interrupted: {how}", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
    if not quiet:
        out.print(show.closing(result.summary))
        out.print(show.traffic(result.summary), soft_wrap=True)
        out.print(f"results: {folder}", soft_wrap=True)


def _stem(what: str, experiment: Experiment) -> str:
    return f"{what}-{Path(experiment.data.replace(':', '-')).name}-{experiment.seed}"


def _numbered(stem: str) -> Iterator[Path]:
    return (Path("runs") / (stem if number == 1 else f"{stem}-{number}") for number in count(1))


def _fresh(stem: str) -> Path:
    """The first run directory of this name that is not taken."""
    return next(path for path in _numbered(stem) if not path.exists())


def _latest(stem: str) -> Path:
    """The last run directory of this name that is there, or the first one."""
    return (list(takewhile(Path.exists, _numbered(stem))) or [Path("runs") / stem])[-1]


@app.command()
def compare(
    names: Annotated[list[str], typer.Argument(metavar="METHOD...", help="methods to run side by side")],
    data: Annotated[str | None, typer.Option(help="data set [digits]")] = None,
    model: Annotated[str | None, typer.Option(help="model [auto]")] = None,
    clients: Annotated[int | None, typer.Option(help="number of clients [10]")] = None,
    partition: Annotated[str | None, typer.Option(help="how data are dealt out [dirichlet-classes:0.3]")] = None,
    rounds: Annotated[int | None, typer.Option(help="rounds [20]")] = None,
    seed: Annotated[int | None, typer.Option(help="seed of all chance [0]")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="any shared setting")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the runs [runs/compare-DATA-SEED]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the runs in --out")] = False,
) -> None:
    """Run several methods on the same clients, and end with one table."""
    flags = {"data": data, "model": model, "clients": clients, "partition": partition, "rounds": rounds, "seed": seed}
    shared = {key: value for key, value in flags.items() if value is not None}
    prepared = [
        prepare(assign({"method": name, **shared}, settings or ()), origin="the command line") for name in names
    ]
    first = prepared[0].experiment
    if folder is None:
        stem = _stem("compare", first)
        folder = _latest(stem) if resume else _fresh(stem)
    metric, summaries = prepared[0].setup.objective.metric_name, []
    for name, one in zip(names, prepared, strict=True):
        with show.RoundProgress(err, name, one.experiment.rounds, metric, quiet=False) as progress:
            result = execute(one, RunDirectory(folder / name), resume, progress.advance, progress.started)
        summaries.append(result.summary)
    title = f"{first.data}, {first.clients} clients, {first.partition}, {first.rounds} rounds, seed {first.seed}"
    out.print(show.comparison(summaries, title))
    curves.draw(
        {name: curves.marks(folder / name, "pre") for name in names}, folder / "curves.png", "pre", OVERS, metric
    )
    out.print(f"results: {folder}, with curves.png", soft_wrap=True)


SYSTEMS = ("fedpse", "pfednet", "spfl", "plga", "fedspa", "pfedgate")


@app.command()
def demo() -> None:
    """Every system that is here, beside its plainest rivals, on handwritten digits dealt out unevenly."""
    landed = [name for name in SYSTEMS if name in METHODS.names()]
    compare(["local", "fedavg", "fedavg-ft", *landed], rounds=30, settings=["engine=pool"])


@app.command()
def methods(as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False) -> None:
    """List the methods, with their options and defaults."""
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "about": (kind.__doc__ or "").strip().partition("\n")[0],
            "options": {option: getattr(kind, option) for option in option_names(kind)},
        }
        for name, kind in METHODS
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, default=str))
        return
    cells = [(r["name"], r["about"], ", ".join(f"{k}={v}" for k, v in r["options"].items())) for r in rows]
    out.print(show.listing("methods", ("name", "what it does", "options (--set)"), cells))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="a run directory")],
    client: Annotated[str, typer.Option(help="whose model")],
    to: Annotated[Path, typer.Option(help="file to write: .safetensors or .npz")],
    slim: Annotated[
        bool, typer.Option("--slim", help="the small net of a sparse model: rows without weights go")
    ] = False,
) -> None:
    """Write one client's personal model to a file."""
    if slim:
        sizes = export_slim(run, client, to)
        out.print(f"wrote {to}: {sizes.after} numbers instead of {sizes.before}", soft_wrap=True)
        return
    RunDirectory(run).export(client, to)
    out.print(f"wrote {to}", soft_wrap=True)


@app.command()
def wire(run: Annotated[Path, typer.Argument(help="a run directory")]) -> None:
    """Where the bytes of a run went, and how far its positions are from the entropy bound."""
    summary = RunDirectory(run).summary()
    out.print(show.breakdown(summary))


@app.command()
def draw(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories, or a folder of them")],
    point: Annotated[str, typer.Option(help="where models are measured: pre, post or ft")] = "pre",
    file: Annotated[Path, typer.Option("--out", help="the image to write")] = Path("curves.png"),
) -> None:
    """Accuracy against rounds, bytes and simulated seconds: a curve a run."""
    folders = [inner for given in runs for inner in _runs_in(given)]
    summaries = [RunDirectory(folder).summary() for folder in folders]
    if point not in POINTS:
        raise InputError(f"{point!r} is no point of evaluation: choose one of {', '.join(POINTS)}")
    metric = summaries[0]["metric"]
    strangers = [str(f) for f, summary in zip(folders, summaries, strict=True) if summary["metric"] != metric]
    if strangers:
        raise InputError(f"{folders[0]} measures {metric}, {strangers[0]} does not: draw them apart")
    found = {_label(folder, folders): curves.marks(folder, point) for folder in folders}
    for folder in folders:
        if not found[_label(folder, folders)]:
            raise InputError(f"{folder} was not measured at {point}: choose another --point")
    try:
        curves.draw(found, file, point, OVERS, metric)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file} cannot be drawn ({error}): give --out a path that ends in .png, .pdf or .svg"
        ) from None
    out.print(f"drawn: {file}", soft_wrap=True)


OVERS: tuple[curves.Over, ...] = ("rounds", "bytes", "seconds")


def _runs_in(folder: Path) -> list[Path]:
    """A run directory itself, or the finished runs in a folder of several."""
    inner = sorted(file.parent for file in folder.glob("*/summary.json"))
    return inner if inner and not (folder / "summary.json").exists() else [folder]


def _label(folder: Path, among: list[Path]) -> str:
    """The folder's name, or as much of its path as tells it from the others."""
    alike = sum(other.resolve().name == folder.resolve().name for other in among) > 1
    return str(folder) if alike else folder.resolve().name


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="whose experiments: the name of a file in sparsona/reproduce")],
    quick: Annotated[bool, typer.Option("--quick", help="what a small machine runs within the hour")] = False,
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the runs [runs/reproduce-PAPER]")] = None,
    only: Annotated[str, typer.Option(help="the cases whose names match this pattern")] = "*",
) -> None:
    """Run a paper's experiments and set its numbers beside ours. Stop and start it at will: it continues."""
    target = folder or Path("runs") / f"reproduce-{paper}{'-quick' if quick else ''}"
    table = papers.reproduce(paper, quick, target, only, say=lambda text: err.print(text, soft_wrap=True))
    out.print(f"results: {table}", soft_wrap=True)


@data_app.command("list")
def data_list() -> None:
    """What data sets there are, and which are on this machine."""
    found = [datasets.describe(source) for _, source in datasets.DATASETS]
    rows = [(d.name, d.about, "yes" if d.present else "no", show.size(d.size) if d.size else "-") for d in found]
    out.print(show.listing("data sets", ("name", "about", "here", "download"), rows))


@data_app.command("get")
def data_get(name: str) -> None:
    """Download a data set from its publisher; an interrupted download continues."""
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


@data_app.command("show")
def data_show(
    name: str,
    partition: Annotated[str | None, typer.Option(help="deal it out, and show classes by client")] = None,
    clients: Annotated[int, typer.Option(help="number of clients, 0: as many as there are natural groups")] = 10,
    seed: int = 0,
    to: Annotated[Path | None, typer.Option(help="also draw the classes by client: .png, .svg or .pdf")] = None,
) -> None:
    """What a data set holds, and how a partition deals it out."""
    data = datasets.load(name)
    shape = "x".join(map(str, data.inputs.shape[1:]))
    out.print(f"{data.name}: {len(data)} samples of {shape}, {data.classes or 'no'} classes, model {data.model}")
    if data.official_test:
        out.print(f"{data.official_test} of them are the publisher's test part")
    if data.groups is not None:
        out.print(f"{len(data.group_names)} natural groups: {', '.join(data.group_names[:8])}")
    if partition is None:
        return
    if not data.classes:
        raise DataError(f"{name} has no classes to show: leave --partition out")
    counts = class_counts(federate(data, partition, clients, Chance(seed)))
    names = data.class_names or tuple(str(c) for c in range(data.classes))
    out.print(show.class_table(counts, names))
    if to is not None:
        draw_classes(counts, names, to)
        out.print(f"drawn to {to}", soft_wrap=True)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """The entry point: a problem is one line on standard error and exit code 2."""
    try:
        app()
    except SparsonaError as error:
        _fail(str(error))
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _fail(f"cannot read or write{where}: {error.strerror}; what was finished is kept, continue with --resume")


def _fail(message: str) -> None:
    typer.echo(f"sparsona: {' '.join(message.split())}", err=True)
    sys.stdout.flush()
    sys.exit(2)
