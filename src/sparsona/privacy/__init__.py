"""Differential privacy of a client's training rows: the mechanism, its accountant, and the owner's ledger.

One mechanism answers every question about training rows that may leave a client: a *query*. It takes each row with
probability `rate`, clips its gradient to the norm `clip`, adds up, and adds normal noise of deviation `noise * clip`.
:class:`sparsona.training.local.Local` asks nothing else with a budget, so all that a client sends is post-processing.
"""
