"""Tiny models of several clients trained as one: their vectors stacked, a step of all of them one batched product.

A small net spends its time not on arithmetic but on being told what to do, step by step and client by client. Here the
clients of a group take their turns in lockstep: each runs until it asks for a training, then all that ask are trained
together. Sums are taken in another order than by :class:`~sparsona.training.runner.ModelRunner`, so results differ in
the last bits; they follow from who is with whom, which is the same in every engine, for any number of workers, and
after a crash. Chance is each client's own, as in a training alone.
"""

from sparsona.training.batched.group import Group
from sparsona.training.batched.stack import Chain, Mapped, Stack, stack_of

__all__ = ["Chain", "Group", "Mapped", "Stack", "stack_of"]
