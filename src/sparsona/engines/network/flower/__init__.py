"""Flower as a carrier: SuperLink and SuperNodes as child processes, the submission, and the scripts Flower starts."""

from __future__ import annotations

from sparsona.errors import InputError


def need_flwr() -> None:
    """Refuse to go on without flwr, and say how to get it."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise InputError('the network needs Flower: pip install "sparsona[flower]"') from None
