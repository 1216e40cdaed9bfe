"""A state or a model as a tree: dataclasses, tuples, lists and mappings around arrays and numbers."""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

SCALARS = frozenset({type(None), bool, int, float, str})
"""Numbers and texts. A state may hold a hundred thousand of them, one for each client."""


def leaves(tree: Any, whole: type | tuple[type, ...] = ()) -> Iterator[Any]:
    """Return the leaves of a tree, in its order. A value of a type in `whole` is one leaf.

    >>> list(leaves({"a": (1, 2.5), "b": [None]}))
    [1, 2.5, None]
    """
    if type(tree) in SCALARS or isinstance(tree, whole):
        yield tree
    elif is_dataclass(tree) and not isinstance(tree, type):
        for field in fields(tree):
            yield from leaves(getattr(tree, field.name), whole)
    elif isinstance(tree, tuple | list | Mapping):
        for item in tree.values() if isinstance(tree, Mapping) else tree:
            if type(item) in SCALARS:  # without a generator of its own
                yield item
            else:
                yield from leaves(item, whole)
    else:
        yield tree


def replaced(tree: Any, new: Callable[[Any], Any], whole: type | tuple[type, ...] = ()) -> Any:
    """Return the tree with `new(leaf)` for each leaf except numbers and texts; unchanged parts are not copied.

    >>> replaced({"a": (b"x", 2)}, bytes.decode)
    {'a': ('x', 2)}
    """
    if type(tree) in SCALARS:
        return tree
    if isinstance(tree, whole):
        return new(tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        held = {field.name: getattr(tree, field.name) for field in fields(tree)}
        moved = {name: found for name, old in held.items() if (found := replaced(old, new, whole)) is not old}
        return replace(tree, **moved) if moved else tree
    if isinstance(tree, tuple | list):
        items = [replaced(item, new, whole) for item in tree]
        return tree if all(map(operator.is_, items, tree)) else type(tree)(items)
    if isinstance(tree, Mapping):
        values = [replaced(value, new, whole) for value in tree.values()]
        return tree if all(map(operator.is_, values, tree.values())) else dict(zip(tree, values, strict=True))
    return new(tree)
