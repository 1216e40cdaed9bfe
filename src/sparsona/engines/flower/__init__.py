"""The network engine: the server's loop over Flower's messages, and the owner's process on every node.

- `engine`: the engine that :class:`sparsona.federation.rounds.Rounds` drives on the organiser's machine;
- `serverapp`: the run there, from the first greeting to the summary;
- `node`: the owner's process, with torch, the data, the client's memory and the owner's rules;
- `started`: the scripts that Flower starts, which import none of this but the server's;
- `processes`, `keys`, `bundle`, `deploy`: SuperLink and SuperNodes as child processes, certificates, the submission.

Nothing here imports flwr before it is needed: ``pip install "sparsona[flower]"``.
"""

from __future__ import annotations

from sparsona.errors import InputError


def need_flwr() -> None:
    """Refuse to go on without flwr, and say how to get it."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise InputError('the network needs Flower: pip install "sparsona[flower]"') from None
