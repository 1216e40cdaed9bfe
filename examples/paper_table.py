"""A paper's table from data to LaTeX: four methods, two partitions, five seeds, rates chosen on validation rows.

    python examples/paper_table.py --out runs/paper           # 240 runs
    python examples/paper_table.py --out runs/tiny --tiny     # 32 runs, for a look

After a kill, the same command goes on: finished runs are not made again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import sparsona

METHODS = ("local", "fedavg", "fedprox", "knn-per")
PARTITIONS = {"skewed": "dirichlet-classes:0.3", "two classes": "classes:2"}


def main(out: Path, tiny: bool = False) -> str:
    """Run what is not there yet and write table.tex, and of each partition p-values, rates and curves."""
    rates, seeds = ((0.03, 0.3), 2) if tiny else ((0.03, 0.1, 0.3, 1.0), 5)
    sizes = {"clients": 4, "rounds": 3} if tiny else {"clients": 20, "rounds": 50}
    studies = {}
    for name, partition in PARTITIONS.items():
        study = sparsona.sweep(
            over={"method": METHODS, "lr": rates, "seed": range(seeds)},
            choose_by="validation",
            data="digits",
            partition=partition,
            out=out / name.replace(" ", "-"),
            resume=True,
            **sizes,
        )
        study.p_values.to_csv(study.folder / "p-values.csv")
        study.candidates.to_csv(study.folder / "rates.csv")
        study.curves(study.folder / "curves.png", over=("bytes",))
        study.report()
        studies[name] = study
    return sparsona.to_latex(studies, out / "table.tex")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), help="folder of all runs and files")
    parser.add_argument("--tiny", action="store_true", help="few clients, rounds, rates and seeds")
    print(main(**vars(parser.parse_args())))
