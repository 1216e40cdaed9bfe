"""The heads of all messages between the server and its nodes, as types with ranges. Both directions are checked here.

A head is the small JSON object beside a frame. It reaches the other side's code only as one of these classes: each
number is finite and bounded, each text and list has a longest length, and unknown keys are refused.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sparsona.data.schema.schema import first_problem
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.errors import WireError, printable
from sparsona.federation.worker import Scores
from sparsona.metrics import in_percent
from sparsona.version import __version__
from sparsona.wire import Ledger

MOST_ROWS = 10**9  # largest number of rows that one client may declare
MOST_CLIENTS = 10**5
LONGEST_NAME = 1000
LONGEST_EXPERIMENT = 2**18
LONGEST_WHY = 500
LARGEST = 1e30  # Largest score, loss, duration or bound. Sums and squares of such numbers stay finite.
Count = Annotated[int, Field(strict=True, ge=0, le=2**53)]
Rows = Annotated[int, Field(strict=True, ge=0, le=MOST_ROWS)]
Amount = Annotated[float, Field(strict=True, ge=0, le=LARGEST, allow_inf_nan=False)]
Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Text = Annotated[str, Field(max_length=LONGEST_EXPERIMENT)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Point = Annotated[str, Field(pattern=r"^(pre|post|ft)$")]
Account = tuple[Count, Count, Count, Amount, Count, Count]  # the ledger of a frame, as a head carries it


class _HeadModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def head(self) -> Head:
        """Return the head as JSON, for the other side."""
        return self.model_dump(mode="json")


class Ping(_HeadModel):
    """The server asks whether a node is there."""

    kind: Literal["ping"] = "ping"


class Proposal(_HeadModel):
    """The server proposes an experiment."""

    kind: Literal["hello"] = "hello"
    run: RunId
    experiment: Text


class Agreed(_HeadModel):
    """All clients have joined; the body is the agreed schema."""

    kind: Literal["agreed"] = "agreed"
    run: RunId
    experiment: Text
    clients: Annotated[tuple[Name, ...], Field(max_length=MOST_CLIENTS)]


class TurnOrder(_HeadModel):
    """An order to train or to evaluate; the body is the downlink."""

    kind: Literal["turn"] = "turn"
    run: RunId
    job: Literal["fit", "trial", "personal"]
    round: Annotated[int, Field(strict=True, ge=0, le=10**9)]
    phase: Annotated[int, Field(strict=True, ge=0, le=100)]
    score: Flag = False
    fine_tune: Flag = False
    best_round: Count = 0


class Finish(_HeadModel):
    """The run is over; the body is the downlink of the personal model."""

    kind: Literal["finish"] = "finish"
    run: RunId
    round: Annotated[int, Field(strict=True, ge=0, le=10**9)]
    phase: Annotated[int, Field(strict=True, ge=0, le=100)]
    best_round: Count = 0


class Greeting(_HeadModel):
    """A node joins: its rows to train, check and test, and for data that come ready their schema."""

    kind: Literal["hello"] = "hello"
    name: Name
    sparsona: Annotated[str, Field(max_length=100)]
    scores: Flag
    model: Annotated[str, Field(max_length=LONGEST_NAME)]
    sizes: tuple[Annotated[Rows, Field(ge=1)], Rows, Rows]
    published: dict[str, Any] | None = None
    ledger: Account = (0, 0, 0, 0.0, 0, 0)


class ModelReady(_HeadModel):
    """A node has made its model; the hash must be the server's."""

    kind: Literal["ready"] = "ready"
    fingerprint: Hash


class TurnReply(_HeadModel):
    """A node has taken a turn; the body is its reply."""

    kind: Literal["turn"] = "turn"
    ledger: Account = (0, 0, 0, 0.0, 0, 0)
    paper: Count
    scores: dict[Point, Annotated[tuple[Number | None, ...], Field(max_length=LONGEST_NAME)]] = {}
    """Per evaluation point the scores on test and on validation rows, for each metric of the run in order."""
    loss: Number | None
    seconds: Amount
    flops: Count
    samples: Amount


class NeedsReference(_HeadModel):
    """A node lacks the reference of its downlink."""

    kind: Literal["whole"] = "whole"


class MessageTooOld(_HeadModel):
    """The message is too old: the node has answered one with this larger number."""

    kind: Literal["behind"] = "behind"
    number: Count


class Finished(_HeadModel):
    """A node has written its model; the body is the model, if its owner sends it."""

    kind: Literal["done"] = "done"
    memory: Hash


Question = Ping | Proposal | Agreed | TurnOrder | Finish
QUESTIONS: dict[str, type[Question]] = {
    kind.model_fields["kind"].default: kind for kind in (Ping, Proposal, Agreed, TurnOrder, Finish)
}
H = TypeVar("H", bound=_HeadModel)


def question(head: Head) -> Question:
    """Return the server's checked question to a node; raise `WireError` if its kind is unknown."""
    kind = QUESTIONS.get(head["kind"])
    if kind is None:
        raise WireError(f"a message of unknown kind {printable(head['kind'], 40)!r}")
    return _checked(kind, head)


def answer(head: Head, expected: type[H]) -> H:
    """Return a node's checked answer; raise `WireError` if it is not of the `expected` kind, or out of range."""
    wanted = expected.model_fields["kind"].default
    if head["kind"] != wanted:
        raise WireError(f"it answers {printable(head['kind'], 40)!r}, where {wanted!r} was asked for")
    return _checked(expected, head)


def greeting(head: Head) -> Greeting:
    """Return the checked greeting of a node; first its version, since the heads of another version may differ."""
    version = head.get("sparsona")
    if head["kind"] == "hello" and version != __version__:
        raise WireError(f"it has sparsona {printable(version, 20)}, the server {__version__}: install the same")
    return answer(head, Greeting)


def why(head: Head) -> str:
    """Return why a node refuses, in one printable line of at most `LONGEST_WHY` characters."""
    return printable(head.get("why", ""), LONGEST_WHY)


def ledger_of(told: Account, body: bytes) -> Ledger:
    """Return a node's ledger of its frame. It must add up to the frame's length."""
    ledger = Ledger(*told)
    if ledger.total != len(body):
        raise WireError(f"its account of {ledger.total} bytes is not one of {len(body)}")
    if ledger.against > ledger.total:
        raise WireError(f"its account names {ledger.against} bytes of {ledger.total}")
    return ledger


def told_ledger(ledger: Ledger) -> Account:
    """Return the ledger in the form of a head."""
    return (ledger.header, ledger.positions, ledger.values, ledger.bound, ledger.against, ledger.against_plain)


def scores_of(done: TurnReply, metrics: Sequence[str]) -> dict[str, Scores]:
    """Return the scores of a turn by evaluation point. Scores that are shown in per cent must lie between 0 and 1."""
    found = {}
    for point, told in done.scores.items():
        if len(told) != 2 * len(metrics):
            raise WireError(f"it sends {len(told)} scores at {point}, and {2 * len(metrics)} are measured")
        values = [math.nan if one is None else one for one in told]
        pairs = dict(zip(metrics, zip(values[::2], values[1::2], strict=True), strict=True))
        for metric, pair in pairs.items():
            if in_percent(metric) and not all(math.isnan(one) or 0 <= one <= 1 for one in pair):
                raise WireError(f"its score at {point} is not between 0 and 1")
        found[point] = Scores(*pairs.pop(metrics[0]), pairs)
    return found


def _checked(kind: type[H], head: Head) -> H:
    try:
        return kind.model_validate(head)
    except ValidationError as error:
        raise WireError(f"its message {printable(head['kind'], 40)!r} is not valid ({first_problem(error)})") from None
