"""A transformer that was trained once, adapted by ten clients: the whole net, its head, or low-rank adapters.

    python examples/adapters.py
    python examples/adapters.py --made --out FOLDER

The net learns to tell good film reviews from bad ones (`sparsona data get imdb`; without them, or with --made, texts
are made here with a fixed seed). Then ten clients, each with its own share of good and bad ones, adapt it to theirs.
Only what is trained travels: the table compares bytes and scores.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import sparsona
from sparsona.data import describe, load

WORDS, LENGTH, WIDTH = 2000, 48, 32
METHODS = ("fedavg", "fedpse", "fedspa")
TRAINED: dict[str, dict[str, Any]] = {
    "whole net": {},
    "head only": {"trainable": "head"},
    "LoRA, rank 2": {"lora": "rank=2"},
    "LoRA, rank 8": {"lora": "rank=8"},
}
CLIENTS, REVIEWS, ROUNDS = 10, 60, 5


class Reader(nn.Module):
    """A transformer of one layer over the words of a text; word 0 fills up."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.place = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The scores of "bad" and "good"."""
        empty = tokens == 0
        read = self.body(self.words(tokens) + self.place, src_key_padding_mask=empty)
        kept = (~empty)[..., None].float()
        return self.head((read * kept).sum(1) / kept.sum(1))  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/adapters"), help="where runs and the table go")
    parser.add_argument("--made", action="store_true", help="texts that are made here, not film reviews")
    given = parser.parse_args()
    print(report(given.out, given.made or not describe("imdb").present))


def report(out: Path, made: bool) -> str:
    """Train once, adapt in every way; returns the table, which is also written to table.md."""
    tokens, good = made_texts() if made else reviews()
    half = len(good) // 2
    net = pretrained(tokens[:half], good[:half])
    clients = dealt(tokens[half:], good[half:])
    lines = ["| what is trained | method | weights | bytes per client and round | accuracy |", "|---|---|---|---|---|"]
    for what, trained in TRAINED.items():
        for method in METHODS:
            done = sparsona.run(
                method, data=clients, model=net, inputs="tokens", rounds=ROUNDS, lr=0.05, batch=20, **trained,
                out=out / f"{method}-{what.replace(', ', '-').replace(' ', '-').lower()}",
            )  # fmt: skip
            found = done.summary
            size = sum(found["bytes"][way] for way in ("up", "down")) / CLIENTS / ROUNDS
            score = found["accuracy"]["pre"]["mean"]
            lines.append(f"| {what} | {method} | {found['weights']:,} | {size:,.0f} | {score:.3f} |")
    text = "\n".join(lines)
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    return text


def reviews(count: int = 4000) -> tuple[Any, Any]:
    """Film reviews as the numbers of their last words; rare words are 1."""
    data = load("imdb")
    chosen = np.random.default_rng(0).choice(len(data), count, replace=False)
    tokens = np.zeros((count, LENGTH), np.int64)
    for row, review in zip(tokens, data.inputs[chosen], strict=True):
        last = review[review > 0][-LENGTH:]
        row[: len(last)] = np.where(last < WORDS, last, 1)
    return tokens, data.targets[chosen]


def made_texts(count: int = 4000) -> tuple[Any, Any]:
    """Texts of common words, in which a few of fifty words praise or blame."""
    rng = np.random.default_rng(0)
    good = rng.integers(0, 2, count)
    tokens = np.minimum(rng.zipf(1.3, (count, LENGTH)) + 101, WORDS - 1)
    telling = rng.random((count, LENGTH)) < 0.08
    tokens = np.where(telling, 2 + 50 * good[:, None] + rng.integers(0, 50, (count, LENGTH)), tokens)
    tokens[np.arange(LENGTH) >= rng.integers(LENGTH // 2, LENGTH + 1, count)[:, None]] = 0
    return tokens, good


def pretrained(tokens: Any, good: Any, epochs: int = 4) -> Reader:
    """The net after a few passes over public texts, by plain torch."""
    torch.manual_seed(0)
    net, words, labels = Reader(), torch.from_numpy(tokens), torch.from_numpy(good)
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(good)).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(words[batch]), labels[batch]).backward()
            optimiser.step()
    return net


def dealt(tokens: Any, good: Any) -> dict[str, tuple[Any, Any]]:
    """Reviews by client: each has its own share of good ones."""
    rng, out = np.random.default_rng(1), {}
    places = [list(np.flatnonzero(good == kind)) for kind in (0, 1)]
    for client, share in enumerate(np.linspace(0.1, 0.9, CLIENTS)):
        mine = [places[int(rng.random() < share)].pop() for _ in range(REVIEWS)]
        out[f"c{client}"] = tokens[mine], good[mine]
    return out


if __name__ == "__main__":
    main()
