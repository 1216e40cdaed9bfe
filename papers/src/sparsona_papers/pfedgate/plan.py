"""pFedGate's runs: the rows of its tables, in every size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparsona_papers._command import Command
from sparsona_papers._excerpt import excerpt
from sparsona_papers._paper import Case, Size
from sparsona_papers.pfedgate.printed import STANDS_FOR, TITLES, printed
from sparsona_papers.pfedgate.settings import DATA, FIXED, SEEDS, TableRow, grid_of, seeds_of, settings_of

BASELINES: dict[str, dict[str, Any]] = {
    "local": {},
    "fedavg": {},
    "fedrep": {},
    "fedper": {},
    "heterofl": {},
    "heterofl-all-labels": {"test_labels": "all"},
    "ditto": {},
    "per-fedavg": {},
    "pfedme": {},
    "fedmask": {},
    "pfedme-fedem": {"variant": "fedem", "lambda_": 1.0},
    "lg-fedavg": {},
    "fedem": {},
    "fedmd": {},
}
"""The rows beside pFedGate, with their options. fedavg at `ft` is FedAvg-FT."""
RARE = ("pfedme-fedem", "lg-fedavg", "fedem", "fedmd")
"""Rows that only the whole command runs."""
BESIDE = ("fedper", "per-fedavg", "fedmd")
"""Not in the paper's table 1: the last two stand in table 6, for FEMNIST and CIFAR-10."""
MODELS = {data: DATA[data].model for data in ("fashion-mnist", "cifar-10")}
"""The data sets of the whole, with their nets."""
DAY = ("local", "fedavg", "fedrep", "ditto", "heterofl", "heterofl-all-labels", "pfedgate-1", "pfedgate-0.5",
       "pfedgate-0.3", "pfedgate-0.5-closed", "pfedgate-0.5-client-wise", "pfedgate-0.5-20%", "fedavg-20%",
       "pfedgate-mixed", "pfedgate-mixed-whole-output", "pfedgate-0.5-new-5", "fedavg-new", f"fedavg{FIXED}",
       f"pfedgate-0.5{FIXED}")  # fmt: skip
"""The rows of `day`."""
SOME: dict[str, Any] = {"density": 0.5, "paths": "one", "knapsack": "greedy"}
"""The authors' code at density 0.5, except for the gate's start. In these nets the output layer fits anyway at 0.5 and
0.3, so that `whole_output` changes nothing.
"""
FIRST_BLOCKS: dict[str, Any] = {**SOME, "whole_output": False}
"""The paper's rule, for settings in which it matters: of the output layer only the first block is sure to be kept."""
TENTH: dict[str, Any] = {**FIRST_BLOCKS, "density": 0.1, "split": "paper"}
"""Density 0.1 under the paper's rule and its split: equal blocks would keep 0.2."""
MIXED: dict[str, Any] = {"density": (0.5, 0.1), "split": "paper"}
ABLATIONS: dict[str, dict[str, Any]] = {
    "no-pre-norm": {"pre_norm": False},
    "no-post-norm": {"post_norm": False},
    "no-sigmoid": {"sigmoid": False},
    "client-wise": {"gate_of": "client"},
}
NEW: dict[str, Any] = {"new_clients": 0.2}
SAMPLED: dict[str, Any] = {"schedule": {"sample": 0.2}}
SHARDS: dict[str, Any] = {"partition": "shards:2", "clients": 10}
"""Figure 4: ten clients with two shards of sorted labels each."""
REPEATED: dict[str, Any] = {"study": True, "repeated": True, "sizes": ("quick",)}
"""A study of `quick` with three seeds, wherever it stands."""
STUDY = "study-"
"""Prefix, behind the data set's name, of rows of the size `paper` that are not in table 1."""


def cases(size: Size) -> Iterator[Case]:
    """All runs, at a laptop's scale, a day's, whole, or with the paper's own data sets."""
    if size == "quick":
        yield from _leaf()
    for number, data in enumerate(data_of(size)):
        of = f" (paper: {TITLES[STANDS_FOR[data]]}, {DATA[data].model})" if data in STANDS_FOR else ""
        for place, row in enumerate(rows(size, data)):
            for seed in seeds_of(size, row):
                cost = 1e4 * number + 1e3 * seed + place + (500 if row.study else 0)
                settings, grid = settings_of(size, data, row, seed), grid_of(size, row)
                dealt = ", two shards a client" if row.more is SHARDS else ""
                table, name = f"{data}, {settings['model']}{dealt or of}", case_name(size, data, row, seed)
                yield Case(name, table, settings, printed(data, row.name)[0], cost, f"{data}-{row.name}", grid)


def data_of(size: Size) -> tuple[str, ...]:
    """The data sets of a size."""
    return {"whole": tuple(MODELS), "paper": tuple(TITLES)}.get(size, ("fashion-mnist",))


def case_name(size: Size, data: str, row: TableRow, seed: int | str) -> str:
    """The name of a run. In the size `paper` studies have their own, so that a pattern can leave them out.

    >>> case_name("paper", "emnist", TableRow("pfedgate-0.1", "pfedgate", {}, study=True), 2)
    'emnist-study-pfedgate-0.1-2'
    """
    return f"{data}-{STUDY if size == 'paper' and row.study else ''}{row.name}-{seed}"


def rows(size: Size, data: str) -> Iterator[TableRow]:
    """The rows of a size for a data set."""
    if size == "paper":
        yield from _own_rows(data)
        return
    for row in _rows():
        if row.name in DAY if size == "day" else size in row.sizes:
            yield row


def _leaf() -> Iterator[Case]:
    """Return runs with the paper's net, rates and steps on few clients: does the gate leave its start?

    `relu` cuts the outputs at zero, as the authors' net does: the run to be compared with that of the authors' code.
    `channels` cuts blocks between output channels: LeNet5 has widths in which that is the same cut.
    """
    variants: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
        "0.5-start-0": ({}, SEEDS),
        "0.5-start-0-relu": ({"logit_relu": True}, SEEDS[:1]),
        "0.5-start-3": ({"gate_start": 3.0}, SEEDS),
        "0.5-start-3-channels": ({"gate_start": 3.0, "split": "channel"}, SEEDS),
        "1-start-0": ({"density": 1.0}, SEEDS[:1]),
        "1-start-3": ({"density": 1.0, "gate_start": 3.0}, SEEDS[:1]),
    }
    for place, (variant, (options, seeds)) in enumerate(variants.items()):
        row = TableRow("", "pfedgate", {**SOME, "gate_start": 0.0, **options}, study=True)
        for seed in seeds:
            settings = settings_of("quick", "fashion-mnist", row, seed) | {
                "data": excerpt("fashion-mnist", 1000), "model": "leaf-cnn", "clients": 4, "rounds": 80,
                "packing": "plain",
            }  # fmt: skip
            name, table = f"leaf-{variant}", "fashion-mnist, leaf-cnn, 4 clients, 80 rounds"
            yield Case(f"{name}-{seed}", table, settings, cost=place, row=name)


def _rows() -> Iterator[TableRow]:
    for name in ("local", "fedavg"):
        yield TableRow(name, name, {})
    for density in (0.5, 1.0, 0.3):
        yield TableRow(f"pfedgate-{density:g}", "pfedgate", {**SOME, "density": density})
    yield TableRow("pfedgate-0.5-open", "pfedgate", {**SOME, "gate_start": 3.0}, sizes=("whole",))
    yield TableRow("pfedgate-0.5-closed", "pfedgate", {**SOME, "gate_start": 0.0}, sizes=("quick",))
    for name, options in BASELINES.items():
        if name not in ("local", "fedavg"):
            yield TableRow(name, _method(name), options, sizes=("whole",) if name in RARE else ("quick", "whole"))
    yield TableRow(f"fedavg{FIXED}", "fedavg", {}, **REPEATED)
    for density in (1.0, 0.5, 0.3):
        yield TableRow(f"pfedgate-{density:g}{FIXED}", "pfedgate", {**SOME, "density": density}, **REPEATED)
    for name, options in ABLATIONS.items():
        yield TableRow(f"pfedgate-0.5-{name}", "pfedgate", {**SOME, **options}, study=True)
    yield TableRow("fedavg-new", "fedavg", {}, NEW, study=True)
    for epochs in (1, 5, 10):
        options = {**SOME, "new_epochs": epochs}
        yield TableRow(f"pfedgate-0.5-new-{epochs}", "pfedgate", options, NEW, study=True)
    yield TableRow("pfedgate-mixed", "pfedgate", {**FIRST_BLOCKS, **MIXED}, study=True)
    yield TableRow("pfedgate-mixed-whole-output", "pfedgate", {**SOME, **MIXED}, study=True)
    yield TableRow("pfedgate-0.5-channels", "pfedgate", {**SOME, "split": "channel"}, study=True)
    yield TableRow("pfedgate-0.5-two-paths", "pfedgate", {**SOME, "paths": "two"}, study=True)
    yield TableRow("pfedgate-0.5-exact", "pfedgate", {**FIRST_BLOCKS, "knapsack": "exact"}, study=True)
    yield TableRow("pfedgate-0.5-20%", "pfedgate", SOME, SAMPLED, study=True)
    yield TableRow("fedavg-20%", "fedavg", {}, SAMPLED, study=True)
    yield TableRow("pfedgate-0.5-blocks-2", "pfedgate", {**FIRST_BLOCKS, "blocks": 2}, study=True)
    yield TableRow("pfedgate-0.5-blocks-2-whole-output", "pfedgate", {**SOME, "blocks": 2}, study=True)
    yield TableRow("pfedgate-0.5-blocks-10", "pfedgate", {**SOME, "blocks": 10}, study=True)
    for epochs in (2, 4, 8):
        yield TableRow(f"pfedgate-0.5-epochs-{epochs}", "pfedgate", SOME, {"epochs": epochs}, study=True)
    for alpha in (0.1, 0.01):
        skewed = {"partition": f"dirichlet-classes:{alpha}"}
        yield TableRow(f"pfedgate-1-alpha-{alpha}", "pfedgate", {**SOME, "density": 1.0}, skewed, study=True)
    yield TableRow("pfedgate-0.3-repo", "pfedgate", {**SOME, "density": 0.3, "ste": "repo"}, study=True)
    yield TableRow("pfedgate-0.5-one-by-one", "pfedgate", {**SOME, "test_batch": 1}, study=True, sizes=("whole",))
    yield from _followed()


def _followed() -> Iterator[TableRow]:
    """Short runs that are measured after every round (table 9, T0.8 of table 4), and clients with two shards each."""
    curves: dict[str, tuple[str, dict[str, Any]]] = {
        "fedavg": ("fedavg", {}),
        "fedem": ("fedem", {}),
        **{f"pfedgate-{density:g}": ("pfedgate", {**SOME, "density": density}) for density in (1.0, 0.5, 0.3)},
        **{f"pfedgate-0.5-{name}": ("pfedgate", {**SOME, **options}) for name, options in ABLATIONS.items()},
    }
    for name, (method, options) in curves.items():
        yield TableRow(f"{name}-curve", method, options, curve=True, **REPEATED)
    yield TableRow("pfedgate-0.3-shards", "pfedgate", {**SOME, "density": 0.3}, SHARDS, **REPEATED)


def _own_rows(data: str) -> Iterator[TableRow]:
    """Table 1 of the paper, and what its other tables have for this data set."""
    gate = {**SOME, "paths": DATA[data].paths}
    for name, options in BASELINES.items():
        if name not in BESIDE:
            masked = {"layers": DATA[data].masked} if name == "fedmask" else {}
            yield TableRow(name, _method(name), {**options, **masked}, curve=name in ("fedavg", "fedem"))
    for density in (1.0, 0.5, 0.3):
        yield TableRow(f"pfedgate-{density:g}", "pfedgate", {**gate, "density": density}, curve=True)
    if data in ("emnist", "cifar-100"):
        for name, options in ABLATIONS.items():
            yield TableRow(f"pfedgate-0.5-{name}", "pfedgate", {**gate, **options}, study=True, curve=True)
    if data == "emnist":
        yield TableRow("pfedgate-0.1", "pfedgate", TENTH, study=True)
        yield TableRow("pfedgate-mixed", "pfedgate", {**FIRST_BLOCKS, **MIXED}, study=True)
        for epochs in (2, 4, 8):
            yield TableRow(f"pfedgate-0.5-epochs-{epochs}", "pfedgate", gate, {"epochs": epochs}, study=True)
    if data in ("femnist", "cifar-10"):
        yield from _compared(DATA[data].masked)
    if data == "cifar-10":
        yield TableRow("pfedgate-0.1", "pfedgate", TENTH, study=True)
        for density, alpha in ((d, a) for d in (1.0, 0.5, 0.3, 0.1) for a in (0.2, 0.1, 0.01)):
            options, skewed = {**gate, "density": density}, {"partition": f"dirichlet-classes:{alpha}"}
            own = TENTH if density == 0.1 else options
            yield TableRow(f"pfedgate-{density:g}-alpha-{alpha}", "pfedgate", own, skewed, study=True)
        yield TableRow("pfedgate-0.3-shards", "pfedgate", {**gate, "density": 0.3}, SHARDS, study=True)


def _compared(masked: int) -> Iterator[TableRow]:
    """Tables 3, 6, 8 and 13, all of them of FEMNIST and CIFAR-10."""
    yield TableRow("per-fedavg", "per-fedavg", {}, study=True)
    yield TableRow("fedmd", "fedmd", {}, study=True, tuned=False)
    for what, more in (("20%", SAMPLED), ("new", NEW)):
        for name in ("fedavg", "fedem"):
            yield TableRow(f"{name}-{what}", name, {}, more, study=True)
        for density in (1.0, 0.5, 0.3):
            options = {**SOME, "density": density, **({"new_epochs": 5} if what == "new" else {})}
            name = f"pfedgate-{density:g}-{'new-5' if what == 'new' else what}"
            yield TableRow(name, "pfedgate", options, more, study=True)
    yield TableRow("fedmask-0.3", "fedmask", {"layers": masked, "keep": 0.3}, study=True)
    yield TableRow("pfedgate-0.5-blocks-2", "pfedgate", {**FIRST_BLOCKS, "blocks": 2}, study=True)
    for density in (0.5, 0.3):
        options = {**SOME, "density": density, "blocks": 10}
        yield TableRow(f"pfedgate-{density:g}-blocks-10", "pfedgate", options, study=True)


def _method(name: str) -> str:
    return name.removesuffix("-fedem").removesuffix("-all-labels")


COMMAND = Command("pfedgate", cases)
