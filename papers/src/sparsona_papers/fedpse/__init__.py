"""The tables 1 to 3 of FedPSE and its studies of EWA, DPS and the correlation distance.

All models are measured at `pre`, `post` and, under FedAvg, at `ft`: fedavg at `ft` is `fedavg-ft`, without a second
training of the same global model. The paper trains to convergence and does not say how many rounds; its listing says
100. `quick` takes 10 rounds of a quarter of an epoch on images and 30 whole epochs on texts; the headline is run again
with 8 whole epochs, and again with rates that validation samples choose (`tuned`). Ten clients of Fashion-MNIST have
three seeds, most else one. In all other sizes every row chooses its learning rate on validation samples, in five
rounds. `day` is the part of the whole that decides most: ten clients of Fashion-MNIST, lambda 1 and 0.5, and FedPSE at
0, in 100 rounds of half an epoch. `paper` has what the whole has not: CIFAR-10 with ResNet18, 25 to 100 clients, and
the curves of figures 2, 4, 5, 7 and 8. The paper also tunes the batch, between 64 and 512; here it is 128.
"""

from __future__ import annotations

from sparsona_papers._paper import Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers.fedpse.claims import claims
from sparsona_papers.fedpse.drawings import draw_curves, draw_distance, draw_dps, draw_ewa
from sparsona_papers.fedpse.plan import cases
from sparsona_papers.fedpse.readings import read_distances, read_extra


@PAPERS.add
def fedpse(size: Size) -> Paper:
    """Table 1, the parts of FedPSE left out, its sparsities, partial participation, and how it goes with the rounds and
    with the number of clients."""
    return Paper(
        title="FedPSE: Personalized Sparsification with Element-wise Aggregation for Federated Learning",
        cases=list(cases(size)),
        claims=list(claims(size)),
        extra=read_extra,
        watch=read_distances,
        drawings={
            "fedpse-ewa.png": draw_ewa,
            "fedpse-dps.png": draw_dps,
            "fedpse-distance.png": draw_distance,
            "fedpse-curves.png": draw_curves,
        },
    )
