"""SPFL of "Personalized Heterogeneous Federated Learning with Gradient Similarity" and its synchronous rivals: Table 1,
ten clients of six classes each, their own (non-IID) or one set for all (IID), and the studies of Tables 6 to 8. Digits,
which the paper has not, cost next to nothing: 40 epochs, five seeds.

The paper takes 100 rounds of an epoch in batches of 128 at a learning rate of 0.01, with weight decay 1e-4 and ten
seeds. `quick` takes 12 rounds of 10 batches of 32 on 12,000 images, measures similarity every 5 rounds (2 for `often`,
10 for `seldom`, which the paper's 5 and 20 against 10 stand for), has three seeds, and chooses the learning rate of
every row on validation samples. `day` takes 50 such rounds for SPFL and what its gain is measured by. `whole` has the
paper's length on mnist and cifar-10, `paper` on EMNIST and CIFAR-100; every row chooses among the paper's rate, a third
and three times of it. FedPer with two steps a batch is SPFL's control: it has its own head, its two steps, and a plain
mean in place of the similarities.

Table 7 changes one thing in each row of SPFL, at one rate: short on digits and mnist (`quick`), at the paper's length
on its four data sets (`paper`). Table 8 is read off the ends of its first rows, and so are the cosines of figures 4 and
5. The paper has one net for all data sets, `spfl-cnn`.
"""

from __future__ import annotations

from sparsona_papers._paper import Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers.spfl.claims import claims
from sparsona_papers.spfl.drawings import draw_clients, draw_similarity
from sparsona_papers.spfl.plan import DAY as DAY
from sparsona_papers.spfl.plan import cases
from sparsona_papers.spfl.readings import read_extra


@PAPERS.add
def spfl(size: Size) -> Paper:
    """All rows on the paper's data sets and digits, both partitions, several seeds."""
    return Paper(
        title="SPFL: Personalized Heterogeneous Federated Learning with Gradient Similarity, Table 1",
        cases=list(cases(size)),
        claims=list(claims()),
        drawings={"spfl-similarity.png": draw_similarity, "spfl-clients.png": draw_clients},
        extra=read_extra,
    )
