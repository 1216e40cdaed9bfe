"""The private parts of Flower that Sparsona uses, and why. `flwr.app`, `flwr.serverapp` and its commands are public.

A new minor version of Flower is supported once `make test-network` passes with it. `SUPPORTED` and the extra in
pyproject.toml are then changed together.
"""

from sparsona.errors import InputError

SUPPORTED = ("1.41", "1.42")

PRIVATE = {
    "flwr.common.constant": "the codes by which a task is reported as done or failed",
    "flwr.proto.fleet_pb2": "to answer the polls of idle nodes without a write to the database",
    "flwr.proto.heartbeat_pb2": "the same for their heartbeats",
    "flwr.proto.runtime_pb2": "the requests for a task and for the list of replies; the Grid waits for all of a reply",
    "flwr.supercore.constant": "the type of a task of a ClientApp",
    "flwr.supercore.heartbeat": "a task whose heartbeat stops is given up by the SuperNode",
    "flwr.supercore.interceptors": "the headers that a SuperNode wants of who asks for tasks",
    "flwr.supercore.retry": "requests to a SuperNode that restarts",
    "flwr.supercore.runtime": "the client of the API through which a SuperNode gives out tasks",
    "flwr.supercore.runtime.tracing": "a header of the same API",
    "flwr.supernode.runtime.run_clientapp": "to take a message and give its reply without a new process per message",
    "flwr.supernode.main": "the token that a SuperNode asks of those who want its tasks",
    "flwr.supernode.start_client_internal": "the pauses of a SuperNode, 3 s otherwise, and the start of the executor",
    "flwr.supernode.fleet_http_connection": "the interval in which a SuperNode says that it is alive",
    "flwr.superlink.runtime.run_serverapp": "the installed loop is run in the place of the code of a submitted app",
}
"""The modules that are not public, each with the reason."""


def need_flwr() -> None:
    """Raise `InputError` without a supported flwr, and say how to install it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        import flwr  # noqa: F401

        found = version("flwr")
    except (ImportError, PackageNotFoundError):
        raise InputError('the network needs Flower: pip install "sparsona[flower]"') from None
    if not found.startswith(tuple(f"{minor}." for minor in SUPPORTED)):
        raise InputError(f'flwr {found} is not supported ({", ".join(SUPPORTED)}): pip install "sparsona[flower]"')
