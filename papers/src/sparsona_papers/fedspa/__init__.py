"""Table 1 of FedSpa, its sparsity sweep, ERK against uniform, and its figures 1, 3 and 4, on nets that a CPU can train.

CIFAR-10 with the small `lenet-cifar` for VGG11, and Fashion-MNIST with the paper's LeNet5 for EMNIST-Letters. As in the
paper: 100 clients, 10 a round, batch 128, learning rate 0.1 * 0.998^t, weight decay 5e-4, gradients clipped at 10, and
CIFAR images cropped and flipped. All methods are measured at `pre` and `post`; fedavg at `ft` is `fedavg-ft`. `quick`
takes one local epoch for five and few rounds; Ditto then trains an epoch for each of its two models. The whole has the
paper's five epochs, and every row chooses its learning rate on validation samples, in a tenth of the rounds.
Fashion-MNIST under the most skewed labels has three seeds for the methods, all else one. `day` is the part of the whole
that decides most: there, three seeds of FedSpa and FedAvg, and one of four methods and three studies.

`paper` is for a cluster: EMNIST-Letters with LeNet5, CIFAR-10 with VGG11 and CIFAR-100 with ResNet18, each IID and in
the settings A and B, with the paper's rounds, epochs, rates and three seeds; its studies on CIFAR-100. It has 261
runs: `sparsona reproduce fedspa --size paper --engine ray` takes them to all nodes.
"""

from __future__ import annotations

from sparsona_papers._paper import Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers.fedspa.checks import read_extra
from sparsona_papers.fedspa.claims import CLAIMS
from sparsona_papers.fedspa.drawings import draw_communication, draw_rounds, draw_sparsity
from sparsona_papers.fedspa.plan import cases


@PAPERS.add
def fedspa(size: Size) -> Paper:
    """Data sets by three settings by seven methods, and the studies of FedSpa."""
    return Paper(
        title="FedSpa: Achieving Personalized Federated Learning with Sparse Local Models",
        cases=list(cases(size)),
        claims=CLAIMS,
        extra=read_extra,
        drawings={
            "fedspa-communication.png": draw_communication,
            "fedspa-rounds.png": draw_rounds,
            "fedspa-sparsity.png": draw_sparsity,
        },
    )
