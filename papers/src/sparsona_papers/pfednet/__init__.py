"""The experiments that pFedNet's draft does not have: lambda between local and consensus, bytes against accuracy, and
which sketch finds the right neighbours.

Logistic regression on covtype (its four wilderness areas; twenty clients by k-means; the areas cut into five clients
each), on heart disease with its four hospitals, and on Fashion-MNIST with three classes a client. covtype is an
excerpt: few samples to train on, many to test on. Differences are small, so there are several seeds; `quick` takes
fewer. Where methods are compared (`tuned-*`), each chooses among six settings on validation samples: six learning
rates, or two of them by three values of lambda or of the number of clusters. The sweeps over lambda are read on test
samples and are for the drawings; bytes are saved at the lambda that validation samples choose.
"""

from __future__ import annotations

from sparsona_papers._paper import Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers.pfednet.claims import claims
from sparsona_papers.pfednet.drawings import draw_bytes, draw_elements, draw_graphs, draw_lambda, means
from sparsona_papers.pfednet.plan import cases


@PAPERS.add
def pfednet(size: Size) -> Paper:
    """Every setting with all values of lambda; gamma, levels and sketches where they tell something. `quick` decides
    what can be decided here, so there is no `day`; the draft has no experiments, so there is no `paper`."""
    return Paper(
        "pFedNet: Communication Efficient Training of Federated Model Over Unbalanced Labels",
        list(cases(size)),
        list(claims()),
        {
            "pfednet-means.md": means,
            "pfednet-lambda.png": draw_lambda,
            "pfednet-bytes.png": draw_bytes,
            "pfednet-elements.png": draw_elements,
            "pfednet-graphs.png": draw_graphs,
        },
    )
