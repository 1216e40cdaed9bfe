"""Table 2 of "Personalized Heterogeneous Federated Learning with Gradient Similarity": LGA and PLGA with five of ten
clients late, by one to five rounds; and, which the paper has not, methods at equal simulated seconds on phones.

The paper takes 800 rounds of 20 batches of 64 at a learning rate of 0.001. Its authors' client reads its samples class
by class and never shuffles them, so that a round sees two or three of its six classes: `stored`. `shuffled` is what
everyone else does. Both are run. `quick` takes digits (60 rounds of 5 batches of 8, five seeds) and 12,000 images of
mnist (60 rounds of 8 batches of 32, three seeds): a round then sees nearly half of a client's samples, too. 60 is a
multiple of all stragglers' cycles. `day` has 240 rounds of the same on mnist, and three seeds. `whole` has the paper's
length on mnist and cifar-10, `paper` on EMNIST and CIFAR-100. Every row chooses its learning rate on validation
samples, in a third of the rounds (`day`: in a sixth).

The authors' client also reads raw pixels of 0 to 255: `raw`, in stored order, of digits in `quick`, and of mnist where
`paper` varies the settings that 4.2 calls best.

The paper's "server" accuracy is `pre` of the methods with one model. Its "client" accuracy is read off the records
(:func:`sparsona_papers.plga.held.held`): each client with the model that it holds, stragglers with their stale ones;
under PLGA with the mixture that it got last.
"""

from __future__ import annotations

from sparsona_papers._paper import Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers.plga.claims import claims
from sparsona_papers.plga.drawings import at_equal_seconds, draw_phones, draw_rounds
from sparsona_papers.plga.held import held_by_all, held_in_trials, table
from sparsona_papers.plga.plan import MAIN as MAIN
from sparsona_papers.plga.plan import cases


@PAPERS.add
def plga(size: Size) -> Paper:
    """All rows with five stragglers, in both orders, and the race on phones."""
    return Paper(
        title="PLGA: Personalized Heterogeneous Federated Learning with Gradient Similarity, Table 2",
        cases=list(cases(size)),
        claims=list(claims()),
        drawings={
            "plga-seconds.md": at_equal_seconds,
            "spfl-seconds.png": draw_phones,
            "plga-rounds.png": draw_rounds,
        },
        tables={"The paper's client and server accuracy": table},
        extra=held_by_all,
        validation=held_in_trials,
    )
