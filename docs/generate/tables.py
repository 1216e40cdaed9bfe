"""The tables that are made from the program itself, so that they cannot differ from it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsona.experiment import SECTIONS, all_settings
from sparsona.methods import METHODS
from sparsona.options import Option, options_of
from sparsona.report.listing import default

COSTS = Path(__file__).parents[1] / "methods" / "costs.json"
"""What benchmarks/costs.py has measured of every method."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *lines])


def _row(option: Option, *more: str) -> tuple[str, ...]:
    return (f"`{option.name}`", *more, option.kind, f"`{default(option.default)}`", option.text)


def settings_page() -> str:
    """The page *All settings*: every key, section by section."""
    parts = [
        "# All settings",
        "Every key may be given as `--set KEY=VALUE`, in an experiment file, or as a keyword of `sparsona.run`. A key "
        "without a section is looked up among the method's options, then in all sections and at the top: "
        '`sparsona.run("fedprox", lr=0.05, mu=0.1)`. A Python keyword that could be both an option and a setting is '
        "refused, with both names. "
        "`sparsona settings` prints these tables, and `sparsona methods NAME` the options of a method.",
        "This page is made from the program's own models.",
        "## At the top",
    ]
    found = all_settings()
    columns = ("key", "type", "default", "meaning")
    parts.append(table(columns, (_row(s) for s in found if "." not in s.name)))
    for section, kind in SECTIONS.items():
        first = (inspect.getdoc(kind) or "").partition("\n")[0]
        parts += [f"## `[{section}]`", first, ""]
        parts.append(table(columns, (_row(s) for s in found if s.name.startswith(f"{section}."))))
    return "\n\n".join(parts) + "\n"


def options_table(name: str, symbols: Mapping[str, str]) -> str:
    """The options of a method; `symbols` are its paper's signs for them."""
    options = options_of(METHODS.get(name))
    if not options:
        return "It has no options."
    unknown = sorted(set(symbols) - {option.name for option in options})
    if unknown:
        raise ValueError(f"docs/methods/{name}.md: {', '.join(unknown)} is no option of {name}")
    rows = [_row(option, f"${symbols[option.name]}$" if option.name in symbols else "") for option in options]
    return table(("option", "in the paper", "type", "default", "meaning"), rows)


def costs() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(COSTS.read_text(encoding="utf-8"))
    return found


def cost_table(name: str) -> str:
    """What the method cost in the reference run, beside FedAvg."""
    kept = costs()
    if name not in kept["methods"]:
        return "Not measured yet: `python benchmarks/costs.py` measures all methods."
    rows = [_cost(one, kept) for one in dict.fromkeys((name, "fedavg"))]
    columns = ("", "up", "down", "operations", "a client keeps", "the server keeps", "`pre`", "`post`")
    return table(columns, rows) + f"\n\n{_unit(kept)}"


def _unit(kept: Mapping[str, Any]) -> str:
    return (
        f"Bytes up and down of a client and round, what a client keeps between rounds, and what the server keeps, in "
        f"models (1 is {kept['weights']:,} weights in float32, {4 * kept['weights']:,} bytes); operations against "
        f"FedAvg's. `{kept['command']}`, {kept['date']}: {kept['setting']}."
    )


def _cost(name: str, kept: Mapping[str, Any]) -> tuple[str, ...]:
    found, base = kept["methods"][name], kept["methods"]["fedavg"]
    model = 4 * kept["weights"]
    ratios = (found[key] / model for key in ("up", "down"))
    held = (found[key] / model for key in ("client_state", "server_state"))
    scores = (f"{100 * found[point]:.1f}" for point in ("pre", "post"))
    work = f"{found['flops'] / base['flops']:.2f}"
    return (f"`{name}`", *(f"{r:.3f}" for r in ratios), work, *(f"{r:.2f}" for r in held), *scores)


def costs_page_table() -> str:
    """All methods in one table, thriftiest first."""
    kept = costs()
    order = sorted(kept["methods"], key=lambda name: kept["methods"][name]["up"] + kept["methods"][name]["down"])
    columns = ("method", "up", "down", "operations", "a client keeps", "the server keeps", "`pre`", "`post`")
    rows = [(f"[`{n}`]({n}.md)", *_cost(n, kept)[1:]) for n in order if n in METHODS.names()]
    return table(columns, rows) + f"\n\n{_unit(kept)}"


def methods_list() -> str:
    """Every registered method with its first line."""
    return table(("method", "what it does"), ((f"[`{n}`]({n}.md)", t) for n, t in METHODS.describe().items()))


def skeleton(name: str) -> str:
    """The page of a method that has none of its own: what the program says of it."""
    kind = METHODS.get(name)
    module = inspect.getdoc(inspect.getmodule(kind)) or ""
    parts = [f"# `{name}`", module, inspect.getdoc(kind) or "", "## Options", "<!-- options -->"]
    return "\n\n".join([*parts, "## What it costs", "<!-- cost -->"]) + "\n"


def facts(name: str) -> str:
    """What the contract says of a method, and where it stands."""
    kind = METHODS.get(name)
    private = ", ".join(f"`{field}`" for field in kind.private) or "nothing declared"
    phases = kind().phases(0)
    rows = [
        ("run it", f"`sparsona run {name}`"),
        ("source", f"`{'/'.join(kind.__module__.split('.'))}`"),
        ("phases of the first round", ", ".join(f"`{phase.name}`" for phase in phases)),
        ("never travels", private if not kind.alone else "everything: nothing is sent"),
        ("error feedback", f"`{kind.feedback}`" if kind.feedback else "none"),
        ("BatchNorm statistics", "averaged" if kind.buffers == "averaged" else "each client's own"),
    ]
    return table(("", ""), rows)


def parts_table() -> str:
    """The parts of every method's messages, as they were read off frames."""
    kept = costs()["methods"]

    def shown(parts: Mapping[str, str]) -> str:
        return ", ".join(f"`{name}` ({kind})" for name, kind in sorted(parts.items())) or "nothing"

    rows = [(f"`{n}`", shown(kept[n]["parts"]["up"]), shown(kept[n]["parts"]["down"])) for n in sorted(kept)]
    return table(("method", "up", "down"), rows)
