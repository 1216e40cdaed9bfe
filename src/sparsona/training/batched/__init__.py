"""The batched trainer: tiny models of several clients as rows of one tensor, so that a step of all is a few products.

A small net spends most of its time on calls, step by step and client by client, not on arithmetic. Here the clients of
a group run in lockstep: each runs until it asks for a training, then all that ask are trained together. Sums are taken
in another order than by :class:`~sparsona.training.runner.ModelRunner`, so results differ in the last bits. They depend
on the group, which is the same in every engine, for any number of workers, and after a crash. Each client draws its
own random numbers, the same as in a training alone.
"""

from sparsona.training.batched.group import Group
from sparsona.training.batched.stack import LinearStack, Stack, VmapStack, stack_of

__all__ = ["Group", "LinearStack", "Stack", "VmapStack", "stack_of"]
