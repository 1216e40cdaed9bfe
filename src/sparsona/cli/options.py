"""The options that describe an experiment, declared once for every command that runs one."""

import ast
import dataclasses
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer import Option
from typer.core import TyperCommand


@dataclass(frozen=True)
class Setting:
    """The key of an option in the experiment file, if it differs from the option's name."""

    key: str


@dataclass(frozen=True)
class NoSetting:
    """Marks an option that is not a setting of the experiment."""


List = Annotated[str | None, Option(metavar="A,B,...")]


@dataclass(frozen=True)
class RunOptions:
    """The options of an experiment. None means not given: the experiment file's value or the default holds.

    A new option is one line here: every command with :func:`takes_run_options` has it, and :class:`RunCommand` reads
    its help and default from the experiment's declaration.

    >>> RunOptions(rounds=3, sample=0.5, set=["lr=0.1"]).settings({"method": "fedavg", "rounds": 9})
    {'method': 'fedavg', 'rounds': 3, 'schedule': {'sample': 0.5}}
    """

    data: str | None = None
    model: str | None = None
    trainable: List = None
    lora: Annotated[str | None, Option(metavar="RANK")] = None
    base: Annotated[str | None, Option(metavar="FILE")] = None
    clients: int | None = None
    partition: str | None = None
    rounds: int | None = None
    sample: Annotated[float | None, Setting("schedule.sample")] = None
    seed: int | None = None
    engine: str | None = None
    workers: int | None = None
    ray_address: Annotated[str | None, Option(metavar="HOST:PORT"), Setting("cluster.address")] = None
    gpus_per_worker: Annotated[float | None, Setting("cluster.gpus_per_worker")] = None
    trainer: str | None = None
    packing: str | None = None
    max_update_norm: float | None = None
    device: str | None = None
    report_to: List = None
    server_memory_mb: int | None = None
    eval_every: Annotated[int | None, Setting("evaluation.every")] = None
    class_weights: Annotated[str | None, Setting("training.class_weights")] = None
    metric: Annotated[list[str] | None, Option(metavar="NAME"), Setting("evaluation.metrics")] = None
    pool: Annotated[List, Setting("personal.pool")] = None
    threshold: Annotated[str | None, Setting("evaluation.threshold")] = None
    new_clients: float | None = None
    target: Annotated[str | None, Option(metavar="COLUMN"), Setting("columns.target")] = None
    task: Annotated[str | None, Setting("columns.task")] = None
    features: Annotated[List, Setting("columns.features")] = None
    drop: Annotated[List, Setting("columns.drop")] = None
    categorical: Annotated[List, Setting("columns.categorical")] = None
    bounds: Annotated[List, Setting("columns.bounds")] = None
    client: Annotated[str | None, Option(metavar="COLUMN"), Setting("columns.client")] = None
    scaling: Annotated[str | None, Setting("columns.scaling")] = None
    inputs: Annotated[str | None, Setting("columns.inputs")] = None
    spelling: Annotated[str | None, Setting("columns.spelling")] = None
    missing: Annotated[List, Setting("columns.missing")] = None
    separator: Annotated[str | None, Option(metavar="CHARACTER"), Setting("columns.separator")] = None
    decimal: Annotated[str | None, Option(metavar="SIGN"), Setting("columns.decimal")] = None
    encoding: Annotated[str | None, Setting("columns.encoding")] = None
    split: Annotated[str | None, Option(metavar="HOW"), Setting("split.by")] = None
    set: Annotated[
        list[str] | None, Option(metavar="KEY=VALUE", help="any other setting; may be repeated"), NoSetting()
    ] = None

    def settings(self, base: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of `base`, updated by the given options; the experiment applies `set`."""
        out = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
        for name, setting in keys().items():
            value = getattr(self, name)
            if value is None:
                continue
            section, _, key = setting.rpartition(".")
            (out.setdefault(section, {}) if section else out)[key] = value
        return out


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(RunOptions, include_extras=True)


@cache
def keys() -> dict[str, str]:
    """Return the setting of each option, by the option's name."""
    found = {}
    for name, hint in _hints().items():
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if not any(isinstance(mark, NoSetting) for mark in marks):
            found[name] = next((mark.key for mark in marks if isinstance(mark, Setting)), name)
    return found


def _literal(default: ast.expr) -> Any:
    """Return a literal default; None, which help does not show, for a name."""
    return None if isinstance(default, ast.Name) else ast.literal_eval(default)


@cache
def declared() -> dict[str, tuple[str, Any]]:
    """Return text and default of every setting, read from the sources, because importing them loads torch."""
    root, found = Path(__file__).parents[1], dict[str, tuple[str, Any]]()
    tree = ast.parse((root / "experiment.py").read_text(encoding="utf-8"))
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}

    def read(within: ast.Module, kind: str, section: str) -> None:
        (owner,) = (node for node in within.body if isinstance(node, ast.ClassDef) and node.name == kind)
        for field in owner.body:
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.value, ast.Call)):
                continue
            name, called, given = ast.unparse(field.target), ast.unparse(field.value.func), field.value.args
            if called == "option":
                found[section + name] = ast.literal_eval(given[1]), _literal(given[0])
            elif not section and called in homes:
                home = root.parent / homes[called].replace(".", "/")
                file = home / "__init__.py" if home.is_dir() else home.with_suffix(".py")
                read(ast.parse(file.read_text(encoding="utf-8")), called, f"{name}.")
            elif not section:
                read(tree, called, f"{name}.")

    read(tree, "Experiment", "")
    return found


class RunCommand(TyperCommand):
    """A command with run options, whose help shows the texts and defaults of the experiment's settings."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Fill in the texts of the options."""
        for parameter in self.params:
            key = keys().get(parameter.name or "")
            if key is not None:
                text, default = declared()[key]
                shown = "" if default in (None, "", ()) else f" [{default}]"
                parameter.help = f"{text}{shown}"  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


ABOUT_DATA = (
    "partition", "clients", "seed", "target", "task", "features", "drop", "categorical", "bounds", "client",
    "scaling", "inputs", "spelling", "missing", "separator", "decimal", "encoding", "split",
)  # fmt: skip
"""The options that describe data and how they are split over clients."""


def takes_run_options(command: Callable[..., None], only: Collection[str] | None = None) -> Callable[..., None]:
    """Replace a command's parameter `options` by the fields of :class:`RunOptions`, all of them or `only` some.

    Add the result to an application with ``cls=RunCommand``.
    """

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
