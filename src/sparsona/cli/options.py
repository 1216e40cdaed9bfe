"""The options that describe an experiment, declared once for every command that runs one."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, wraps
from typing import Annotated, Any, get_args, get_type_hints

from typer import Option


@dataclass(frozen=True)
class Key:
    """Where an option stands in the experiment file, if not at the top under its own name; nowhere, if empty."""

    path: str


@dataclass(frozen=True)
class RunOptions:
    """The options of an experiment. One that is None was not given: the experiment file's value or default holds.

    A new option is one line here: every command that :func:`takes_run_options` has it. Its name is the setting's in
    the experiment file, or a :class:`Key` says which setting it is.

    >>> RunOptions(rounds=3, sample=0.5, set=["lr=0.1"]).settings({"method": "fedavg", "rounds": 9})
    {'method': 'fedavg', 'rounds': 3, 'schedule': {'sample': 0.5}}
    """

    data: Annotated[str | None, Option(help="data set [digits]")] = None
    model: Annotated[str | None, Option(help="model [auto: the data set's own]")] = None
    clients: Annotated[int | None, Option(help="number of clients [10; of your own data all]")] = None
    partition: Annotated[
        str | None, Option(help="how data are dealt out [dirichlet-classes:0.3; your own: groups, a client a file]")
    ] = None
    rounds: Annotated[int | None, Option(help="rounds [20]")] = None
    sample: Annotated[float | None, Option(help="share of clients in a round [1.0]"), Key("schedule.sample")] = None
    seed: Annotated[int | None, Option(help="seed of all chance [0]")] = None
    engine: Annotated[
        str | None, Option(help="what runs the clients: inprocess, pool, ray [auto: the pool where it pays]")
    ] = None
    workers: Annotated[int | None, Option(help="worker processes [0: one a core]")] = None
    ray_address: Annotated[
        str | None,
        Option(metavar="HOST:PORT", help="the Ray cluster [RAY_ADDRESS, or a new one here]"),
        Key("cluster.address"),
    ] = None
    gpus_per_worker: Annotated[
        float | None, Option(help="on Ray: the share of a GPU that a worker has [0]"), Key("cluster.gpus_per_worker")
    ] = None
    trainer: Annotated[str | None, Option(help="plain, or fused: tiny nets in compiled code [auto]")] = None
    packing: Annotated[
        str | None, Option(help="tight: as few bytes as possible, or plain: less time for more bytes [tight]")
    ] = None
    max_update_norm: Annotated[
        float | None, Option(help="leave out updates larger than so many times the others' median [none]")
    ] = None
    device: Annotated[str | None, Option(help="cpu or cuda [cpu]")] = None
    server_memory_mb: Annotated[
        int | None, Option(help="of what the server has for its clients, more than so many MB are files [512]")
    ] = None
    eval_every: Annotated[
        int | None, Option(help="evaluate every so many rounds, 0: only the last [1]"), Key("evaluation.every")
    ] = None
    new_clients: Annotated[float | None, Option(help="share held out of training, to join at the end [0]")] = None
    target: Annotated[
        str | None,
        Option(metavar="COLUMN", help="what is to be predicted [a column called label, target, class or y]"),
        Key("columns.target"),
    ] = None
    task: Annotated[
        str | None,
        Option(help="classification, regression or multilabel [auto: by the target's values]"),
        Key("columns.task"),
    ] = None
    features: Annotated[
        str | None, Option(metavar="A,B,...", help="columns to learn from [all others]"), Key("columns.features")
    ] = None
    drop: Annotated[str | None, Option(metavar="A,B,...", help="columns to leave out"), Key("columns.drop")] = None
    categorical: Annotated[
        str | None, Option(metavar="A,B,...", help="columns whose values are names"), Key("columns.categorical")
    ] = None
    client: Annotated[
        str | None, Option(metavar="COLUMN", help="whose row it is, in one file of all clients"), Key("columns.client")
    ] = None
    scaling: Annotated[
        str | None,
        Option(help="agreed: by all training rows, own: by the client's, none [agreed]"),
        Key("columns.scaling"),
    ] = None
    inputs: Annotated[
        str | None, Option(help="what arrays hold: table, images, arrays or tokens [auto]"), Key("columns.inputs")
    ] = None
    spelling: Annotated[
        str | None,
        Option(help="exact: names that differ only in capitals or spaces are different ones [alike: refused]"),
        Key("columns.spelling"),
    ] = None
    missing: Annotated[
        str | None,
        Option(metavar="A,B,...", help="words and numbers that mean a missing value [NA, N/A, NaN, null, none, ?]"),
        Key("columns.missing"),
    ] = None
    separator: Annotated[
        str | None,
        Option(metavar="CHARACTER", help="what separates columns of a csv file [,]"),
        Key("columns.separator"),
    ] = None
    decimal: Annotated[
        str | None, Option(metavar="SIGN", help="the decimal sign of a csv file [.]"), Key("columns.decimal")
    ] = None
    encoding: Annotated[str | None, Option(help="encoding of a csv file [utf-8]"), Key("columns.encoding")] = None
    split: Annotated[
        str | None,
        Option(metavar="HOW", help="random, time:COLUMN, time:COLUMN:GAP or group:COLUMN [random]"),
        Key("split.by"),
    ] = None
    set: Annotated[
        list[str] | None, Option(metavar="KEY=VALUE", help="any other setting, again and again"), Key("")
    ] = None
    tensorboard: Annotated[
        bool, Option("--tensorboard", help="scalars for TensorBoard, in each run directory"), Key("")
    ] = False

    def settings(self, base: dict[str, Any]) -> dict[str, Any]:
        """The settings of `base` with the options that were given; those of `set` are left to the experiment."""
        out = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
        for name, hint in _hints().items():
            value = getattr(self, name)
            path = next((extra.path for extra in get_args(hint) if isinstance(extra, Key)), name)
            if value is None or not path:
                continue
            section, _, key = path.rpartition(".")
            (out.setdefault(section, {}) if section else out)[key] = value
        return out


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(RunOptions, include_extras=True)


ABOUT_DATA = (
    "partition", "clients", "seed", "target", "task", "features", "drop", "categorical", "client", "scaling", "inputs",
    "spelling", "missing", "separator", "decimal", "encoding", "split",
)  # fmt: skip
"""The options that say what data are and how they are dealt out."""


def takes_run_options(command: Callable[..., None], only: Collection[str] | None = None) -> Callable[..., None]:
    """The command with the fields of :class:`RunOptions` as options, in the place of its parameter `options`: all of
    them, or `only` some."""

    @wraps(command)
    def called(**given: Any) -> None:
        own = {name: given.pop(name) for name in fields}
        command(options=RunOptions(**own), **given)

    shown = [field for field in dataclasses.fields(RunOptions) if only is None or field.name in only]
    fields = [field.name for field in shown]
    own_hints = get_type_hints(command, include_extras=True)
    kept = [
        parameter.replace(annotation=own_hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "options"
    ]
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=_hints()[field.name]
        )
        for field in shown
    ]
    first = [p for p in kept if p.default is inspect.Parameter.empty]
    rest = [p for p in kept if p.default is not inspect.Parameter.empty]
    parameters = [*first, *shared, *rest]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
