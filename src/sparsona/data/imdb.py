"""IMDB: 50,000 film reviews, half of them good (Maas et al., 2011), as sequences of word numbers.

A review is lower-cased and cut into words; the 9,998 commonest words of the official training part have the
numbers 2..9999 in order of frequency, 1 is any other word, 0 fills up. Of a long review the last 256 words
are kept, as Keras does: the verdict stands at the end.
"""

import re
import tarfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sparsona.data._store import File, Store, cached, source
from sparsona.data.dataset import Array, Dataset

ARCHIVE, LABELLED = "aclImdb_v1.tar.gz", "aclImdb_labelled.tar.gz"
VOCABULARY, LENGTH, PAD, UNKNOWN = 10_000, 256, 0, 1
RECIPE = f"imdb 1: {VOCABULARY} words, {LENGTH} long"
"""Raise the number when the tokens of a review change: it is part of the cache's key."""

_PARTS = ("train/neg", "train/pos", "test/neg", "test/pos")
_MEMBER = re.compile(r"(?:\./)?aclImdb/(train/neg|train/pos|test/neg|test/pos)/([^/]+\.txt)")
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def words(text: str) -> list[str]:
    """A review's words.

    >>> words("It isn't <br /><br />THAT bad: 7/10!")
    ['it', "isn't", 'that', 'bad', '7', '10']
    """
    return _WORD.findall(text.lower().replace("<br />", " "))


@source(
    about="50,000 film reviews, 256 words of a vocabulary of 10,000, 2 classes",
    licence="none stated; cite Maas et al. (2011)",
    homepage="https://ai.stanford.edu/~amaas/data/sentiment/",
    files=(
        File(
            ARCHIVE,
            ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
            md5="7c2ac02c03563afcf9b574c7e56c153a",
            size=84125825,
            also=(LABELLED,),
        ),
    ),
)
def load(store: Store) -> Dataset:
    """IMDB, from the publisher's files."""
    path = store.need(ARCHIVE, LABELLED)
    arrays = cached(store, [path], RECIPE, lambda: _tokenise(store, path))
    return Dataset(
        name="imdb",
        inputs=arrays["tokens"].astype(np.int32),
        targets=arrays["labels"].astype(np.int64),
        classes=2,
        official_test=int(arrays["test"]),
        class_names=("negative", "positive"),
        model="text-embedding",
        vocabulary=VOCABULARY,
    )


def _tokenise(store: Store, path: Path) -> Mapping[str, Array]:
    """One pass over the archive: words get provisional numbers as they come, final ones at the end."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    found: dict[str, list[tuple[str, Array]]] = {part: [] for part in _PARTS}
    with store.reading(path), tarfile.open(path, "r|*") as archive:
        for member in archive:
            match = _MEMBER.fullmatch(member.name)
            content = archive.extractfile(member) if match and member.isfile() else None
            if match is None or content is None:
                continue
            text = content.read().decode("utf-8", errors="replace")
            review = np.fromiter(map(numbers.__getitem__, words(text)), np.int32)
            found[match[1]].append((match[2], review))
    for part, reviews in found.items():
        if not reviews:
            raise store.damaged(path, f"no reviews in aclImdb/{part}")
        reviews.sort(key=lambda named: named[0])
    reviews_in_order = [review for part in _PARTS for _, review in found[part]]
    training = len(found["train/neg"]) + len(found["train/pos"])
    final = _ranks(list(numbers), np.concatenate(reviews_in_order[:training]))
    tokens = np.full((len(reviews_in_order), LENGTH), PAD, np.uint16)
    for row, review in zip(tokens, reviews_in_order, strict=True):
        tail = final[review[-LENGTH:]]
        row[: len(tail)] = tail
    labels = np.repeat(np.array([0, 1, 0, 1], np.uint8), [len(found[part]) for part in _PARTS])
    return {"tokens": tokens, "labels": labels, "test": np.array(len(tokens) - training)}


def _ranks(known: list[str], training: Array) -> Array:
    """The final number of each provisional one; words that are equally common are in alphabetical order."""
    counts = np.bincount(training, minlength=len(known))
    order = np.lexsort((np.array(known), -counts))
    order = order[counts[order] > 0][: VOCABULARY - 2]
    final = np.full(len(known), UNKNOWN, np.uint16)
    final[order] = np.arange(2, 2 + len(order))
    return final
