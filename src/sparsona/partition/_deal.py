"""Helpers of all partitions: client names, checks of arguments, and even cuts."""

from collections.abc import Sequence

import numpy as np

from sparsona.data.dataset import Array, Indices, Samples
from sparsona.errors import InputError


def client_names(clients: int) -> tuple[str, ...]:
    """Return client names that sort in the order of their numbers.

    >>> client_names(3)
    ('c0', 'c1', 'c2')
    >>> client_names(11)[:2]
    ('c00', 'c01')
    """
    width = len(str(clients - 1))
    return tuple(f"c{i:0{width}d}" for i in range(clients))


def check_clients(samples: Samples, clients: int) -> None:
    """Refuse fewer than one client, or more clients than samples."""
    total = len(samples.labels)
    if clients < 1:
        raise InputError(f"{clients} clients asked for; ask for at least 1 (0 means all with partition groups)")
    if clients > total:
        raise InputError(f"{clients} clients asked for, but only {total} samples to deal out; ask for fewer")


def are_classes(labels: Array) -> bool:
    """True if the targets are classes: one whole number per sample."""
    return labels.dtype.kind in "biu" and labels.ndim == 1


def class_numbers(partition: str, samples: Samples) -> Indices:
    """Return the class of each sample, numbered 0, 1, ... over the occurring labels in their order."""
    if not are_classes(samples.labels):
        problem = f"partition {partition!r} needs class labels, but these targets are no classes"
        raise InputError(f"{problem}; use iid, quantity or groups")
    return np.unique(samples.labels, return_inverse=True)[1].astype(np.int64)


def ranks(sizes: Indices) -> Indices:
    """Return 0, 1, ... within each of consecutive stretches of these sizes.

    >>> ranks(np.array([2, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def shuffled_by_class(classes: Indices, rng: np.random.Generator) -> Indices:
    """Return all samples, class after class, in random order within a class."""
    return np.lexsort((rng.permutation(len(classes)), classes)).astype(np.int64)


def interleaved(classes: Indices, rng: np.random.Generator) -> Indices:
    """Return all samples in an order in which every stretch has the class proportions of the whole.

    For classes of one size that is 0, 1, 2, ..., 0, 1, 2, ...; which sample stands for its class is random.

    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> labels[interleaved(labels, np.random.default_rng(0))].tolist()
    [0, 1, 0, 0, 1, 0]
    """
    sizes = np.bincount(classes)
    place = (ranks(sizes) + 0.5) / np.repeat(sizes, sizes)
    return shuffled_by_class(classes, rng)[np.argsort(place, kind="stable")]


def even(total: int, parts: int) -> Indices:
    """Split `total` into `parts` numbers that differ by one at most, the greater ones first.

    >>> even(7, 3).tolist()
    [3, 2, 2]
    """
    return np.full(parts, total // parts, np.int64) + (np.arange(parts) < total % parts)


def cut(order: Indices, sizes: Indices) -> list[Indices]:
    """Cut `order` into consecutive pieces of these sizes, without the remainder."""
    ends = np.cumsum(sizes)
    return [order[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def by_owner(samples: Indices, owner: Indices, clients: int) -> list[Indices]:
    """Return the samples of client 0, client 1, ...; `owner` has each sample's client."""
    return cut(samples[np.argsort(owner, kind="stable")], np.bincount(owner, minlength=clients))


def named(parts: Sequence[Indices]) -> dict[str, Indices]:
    """Return the pieces under their clients' names, each sorted."""
    names = client_names(len(parts))
    return {name: np.sort(part).astype(np.int64) for name, part in zip(names, parts, strict=True)}
