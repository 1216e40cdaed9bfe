"""pFedGate's tables: table 1 with its densities, partial participation, new clients, ablations, gates in a dendrogram.

Fashion-MNIST with the LEAF net, the paper's for EMNIST, stands in for EMNIST, whose 62 classes are not to be had
everywhere. `quick` has LeNet5, which is the LEAF net with a quarter of its width, 2,000 images, 10 clients of about 120
training images, 60 rounds of three batches of 40, and three seeds; its studies have one, but for new clients, curves
and trees. `day` has 10,000 images, 20 clients of about 300 and 100 rounds, hence four times the steps of `quick`, and
three seeds of the rows that decide most. Where the gate starts and how blocks are cut is studied on the LEAF net itself
(`leaf-*`): 1,000 images, 4 clients, 80 rounds. The paper has 100 clients, 400 rounds and batches of 128, and so has the
whole. `paper` has its four data sets, nets, clients and densities, and every rate that it tried; what is not in its
table 1 is called a study there. All methods choose their learning rate on validation images; pFedGate's gate has the
paper's rate for its density (`quick`, `day`: 0.1). The paper's mean over the clients is weighted by their sizes: the
tables have both.
"""

from __future__ import annotations

from sparsona_papers._differences import Runs, bottom, by_size, newcomers, values
from sparsona_papers._paper import Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers._tables import MEASURED, number, spread
from sparsona_papers.pfedgate.claims import claims
from sparsona_papers.pfedgate.gates import dendrogram_of, masks_table
from sparsona_papers.pfedgate.plan import MODELS, cases
from sparsona_papers.pfedgate.printed import printed, table_1
from sparsona_papers.pfedgate.readings import read_run
from sparsona_papers.pfedgate.settings import DATA


@PAPERS.add
def pfedgate(size: Size) -> Paper:
    """The experiments of the pFedGate paper, at a laptop's length, a day's, whole, or with the paper's own data."""
    drawings = {f"pfedgate-dendrogram-{data}.png": dendrogram_of(data) for data in MODELS}
    return Paper(
        "pFedGate: Efficient Personalized Federated Learning via Sparse Model-Adaptation",
        list(cases(size)),
        list(claims(size)),
        drawings={**drawings, "pfedgate-masks.md": masks_table},
        extra=read_run,
        tables={
            "Means weighted by the clients' sizes, as the paper has them, and bottom deciles (paper, for Fashion-MNIST"
            " EMNIST's)": _weighted,
            **({"Table 1 of the paper, as printed": lambda runs: table_1()} if size == "quick" else {}),
        },
    )


def _weighted(runs: Runs) -> str:
    columns = (
        "row",
        "paper, weighted",
        "bottom decile",
        "weighted, `pre`",
        "`post`",
        "bottom decile, `pre`",
        "`post`",
        "validation, `post`",
        "new, `post`",
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row, own in runs.items():
        if row.startswith(MEASURED):
            continue
        cells = [
            spread(list(values(runs, row, point, by).values())) for by in (by_size, bottom) for point in ("pre", "post")
        ]
        checked = [run["validation"]["post"] for run in own.values() if "post" in run.get("validation", {})]
        new = list(values(runs, row, "post", newcomers).values())
        data = next((name for name in DATA if row.startswith(f"{name}-")), "")
        paper = printed(data, row.removeprefix(f"{data}-")) if data else (None, None)
        told = " | ".join(map(number, paper))
        lines.append(f"| {row} | {told} | {' | '.join(cells)} | {spread(checked)} | {spread(new)} |")
    return "\n".join(lines) if len(lines) > 2 else ""
