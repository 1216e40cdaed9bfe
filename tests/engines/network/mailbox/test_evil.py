"""One evil owner of four in a mailbox, at every message: the others lose nothing but its share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from evil import BAD, GOOD, Trial, by_mailbox, evil_federation

from sparsona.engines.network.deploy import MailboxFederation

pytestmark = pytest.mark.network

TOLD = (
    "hello: 2^62 rows",
    "hello: 10^9 rows",
    "agreed: another model",
    "fit: 16 MB as body",
    "fit: never has the reference",
    "personal: a score of 999",
    "finish: more keys",
    "ping: a number without end",
)
"""One lie or more for each message. `python benchmarks/attacks.py` tells all of the table, silence included."""


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    folder = tmp_path_factory.mktemp("evil")
    nodes = MailboxFederation(folder / "f", (BAD, *GOOD), mailbox=str(folder / "box"), idle=0.2)
    with evil_federation(nodes, folder / "mood") as running:
        yield Trial(running, by_mailbox(running), folder / "mood")


@pytest.mark.parametrize("lie", TOLD)
def test_a_lie_costs_the_others_nothing_but_its_tellers_share(lie: str, trial: Trial) -> None:
    assert trial.harm(trial.tell(lie)) == ""
