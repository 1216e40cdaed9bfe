"""What the runs of pFedGate cost: the command that makes some of them, and its CPU hours.

They are counted from what one core took on 17 November 2026 for a client's turn with 12 and with 768 images, by net,
and for each method beside FedAvg. Other work ran on both cores, which makes it up to twice too long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

from sparsona.reproduce import Size
from sparsona.reproduce.pfedgate.plan import case_name, data_of, rows
from sparsona.reproduce.pfedgate.settings import DATA, SCALES, DataSet, TableRow, grid_of, seeds_of

SAMPLE = {"leaf-cnn": 0.48e-3, "lenet-cifar": 0.49e-3, "cnn-cifar100": 0.72e-3}
"""Seconds for which FedAvg trains on an image. A test takes a third of it."""
TURN = {"leaf-cnn": (0.10, 0.018), "lenet-cifar": (0.015, 0.009), "cnn-cifar100": (0.15, 0.04)}
"""Seconds of a client's turn beside the training, with the wire tight and plain; the tight of the last is guessed."""
TIMES = {"fedem": 4.4, "pfedme": 5.5, "pfedme-fedem": 1.1, "per-fedavg": 2.3, "ditto": 2.2, "fedrep": 2.0,
         "heterofl": 1.5, "fedmask": 2.2, "pfedgate": 1.2}  # fmt: skip
"""The time of a method's training in units of FedAvg's."""
GET = {"emnist": "once `sparsona data get emnist` has run", "cifar-100": "once `sparsona data get cifar-100` has run",
       "femnist": "once LEAF has made the data (`sparsona data get femnist` says how)"}  # fmt: skip


def command(size: Size, *patterns: str) -> str:
    """How to make the runs whose names match one of the patterns, and about how long it takes.

    >>> command("whole", "cifar-10-local-*")
    "`sparsona reproduce pfedgate --only 'cifar-10-local-*'`: about 7 CPU hours"
    """
    first, *others = patterns
    call = f"`sparsona reproduce pfedgate{'' if size == 'whole' else f' --size {size}'} --only '{first}'`"
    more = "".join(f", then `--only '{other}'`" for other in others)
    asked = [data for data in data_of(size) if any(p.startswith((f"{data}-", "*")) for p in patterns)]
    needed = [GET[data] for data in asked if data in GET]
    return f"{call}{more}: about {_rounded(hours(size, *patterns))} CPU hours" + "".join(f", {told}" for told in needed)


def command_for(size: Size, names: Mapping[str, Sequence[str]]) -> str:
    """How to make rows, given by the data set: all their seeds, and nothing else.

    >>> command_for("paper", {"emnist": ["local", "pfedgate-0.1"]}).partition(":")[0].partition("--only ")[2]
    "'emnist-local-[123]'`, then `--only 'emnist-study-pfedgate-0.1-[123]'`"
    """
    patterns = []
    for data, wanted in names.items():
        known = {row.name: row for row in rows(size, data)}
        patterns += [case_name(size, data, known[name], "[123]") for name in wanted]
    return command(size, *patterns)


def hours(size: Size, *patterns: str) -> float:
    """The CPU hours of the runs whose names match one of the patterns, with the trials that choose their rates."""
    total = 0.0
    for data in data_of(size):
        for row in rows(size, data):
            names = [case_name(size, data, row, seed) for seed in seeds_of(size, row)]
            made = sum(any(fnmatch(name, pattern) for pattern in patterns) for name in names)
            total += _hours(size, DATA[data], row, made) if made else 0.0
    return total


def _hours(size: Size, data: DataSet, row: TableRow, runs: int) -> float:
    scale, grid = SCALES[size], grid_of(size, row)
    a_sample, turn = SAMPLE[data.model], TURN[data.model][scale.more.get("packing") == "plain"]
    images = data.trained * int(row.more.get("epochs", 1)) * TIMES.get(row.name, TIMES.get(row.method, 1.0))
    if row.method == "fedmd":
        images += data.clients * 5000 * 4 / 3
    share = float(row.more.get("schedule", {}).get("sample", 1.0))
    a_round = share * (images * a_sample + data.clients * turn)
    tested = 2 * (2 / 3) * data.trained / 3 * (3 if row.method == "fedem" else 1)  # at two points, test and validation
    measured = a_sample * (tested + (data.trained if row.name == "fedavg" else 0))  # `ft` trains, too
    evaluations = scale.rounds / (1 if row.curve else scale.every)
    trials = len(grid.values) * (grid.rounds * a_round + measured) if grid is not None else 0.0
    return (runs * (scale.rounds * a_round + evaluations * measured) + trials) / 3600


def _rounded(number: float) -> str:
    """Two digits.

    >>> _rounded(1234.5), _rounded(8.76)
    ('1,200', '9')
    """
    return f"{float(f'{number:.2g}'):,.0f}"
