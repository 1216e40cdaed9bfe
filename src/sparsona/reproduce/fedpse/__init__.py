"""The tables 1 to 3 of FedPSE and its studies of EWA, DPS and the correlation distance.

All models are measured at `pre`, `post` and, under FedAvg, at `ft`: fedavg at `ft` is `fedavg-ft`, without a second
training of the same global model. The paper trains to convergence and does not say how many rounds; its listing says
100. `quick` takes 10 rounds of a quarter of an epoch on images and 30 whole epochs on texts; the headline
is run again with 8 whole epochs. Ten clients of Fashion-MNIST have three seeds, most else one. In the whole every row
chooses its learning rate on validation samples, in five rounds; `day` is the part of it that decides most: ten clients
of Fashion-MNIST, lambda 1 and 0.5, and FedPSE at 0, in 100 rounds of half an epoch.
"""

from __future__ import annotations

from sparsona.reproduce import PAPERS, Paper, Size
from sparsona.reproduce.fedpse.claims import CLAIMS, read_distances
from sparsona.reproduce.fedpse.drawings import draw_distance, draw_dps, draw_ewa
from sparsona.reproduce.fedpse.plan import cases


@PAPERS.add
def fedpse(size: Size) -> Paper:
    """Table 1 without CIFAR-10, the parts of FedPSE left out, its sparsities, and partial participation."""
    return Paper(
        title="FedPSE: Personalized Sparsification with Element-wise Aggregation for Federated Learning",
        cases=list(cases(size)),
        claims=CLAIMS,
        extra=lambda folder, prepared: read_distances(folder),
        watch=read_distances,
        drawings={"fedpse-ewa.png": draw_ewa, "fedpse-dps.png": draw_dps, "fedpse-distance.png": draw_distance},
    )
