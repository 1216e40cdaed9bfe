"""The engine on a Ray cluster: the workers are actors, one per core, on all nodes.

Results are bit for bit those of `inprocess`, for any number of nodes with the same instruction set. Samples are in the
object store of each node once, and the workers of a node map them. The server owns the clients' states. A state travels
to a worker with each turn and back with its outcome. So a lost node takes no state along, and its turns are run again
elsewhere.
"""

import logging
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from sparsona.engines import ENGINES
from sparsona.engines.child import ENVIRONMENT
from sparsona.engines.ray.actor import Ready, RemoteRequest, RemoteWorker, loaded_sources
from sparsona.engines.shipping import setup_arrays
from sparsona.engines.turns import MAX_DEATHS, Failure, JobGroup, Pace, Response, TurnQueue, WorkerEngine
from sparsona.errors import InputError, SparsonaError, one_line
from sparsona.federation.resources import Cluster, Resources
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.version import __version__

STORE_BYTES = 512 * 2**20  # memory for objects beside the data, in bytes, in a cluster that is started here


def need_ray() -> Any:
    """Return the package; raise `InputError` that says how to install it."""
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'sparsona[ray]'") from None
    return ray


class Membership:
    """This process as a member of a cluster, until it leaves. A process that was a member before stays one."""

    def __init__(self, resources: Resources, data_bytes: int = 0) -> None:
        self._joined = not need_ray().is_initialized()
        if self._joined:
            _join(resources, data_bytes)

    def leave(self) -> None:
        """Leave the cluster, if this membership has joined it."""
        if self._joined:
            need_ray().shutdown()
            self._joined = False


def _join(resources: Resources, data_bytes: int) -> None:
    ray = need_ray()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    address = resources.cluster.address or os.environ.get("RAY_ADDRESS", "")
    if not address:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        workers = resources.workers or None
        ray.init(num_cpus=workers, include_dashboard=False, object_store_memory=STORE_BYTES + 2 * data_bytes, **quiet)
        return
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        problem = one_line(error)[:200]
        raise InputError(f"there is no Ray cluster at {address!r} ({problem}): check --ray-address") from None


def room(resources: Resources) -> int:
    """Return the largest number of workers: one per core, or as many as share the GPUs; 0 if there is no room."""
    return room_in(need_ray().cluster_resources(), resources)


def room_in(total: dict[str, float], resources: Resources) -> int:
    """
    >>> room_in({"CPU": 8.0}, Resources()), room_in({"CPU": 8.0}, Resources(workers=3))
    (8, 3)
    >>> room_in({"CPU": 8.0, "GPU": 1.0}, Resources(cluster=Cluster(gpus_per_worker=0.25)))
    4
    """
    most = math.floor(total.get("CPU", 0.0))
    gpus = resources.cluster.gpus_per_worker
    if gpus:
        most = min(most, math.floor(total.get("GPU", 0.0) / gpus + 1e-9))
    return min(most, resources.workers or most)


def without_room(cluster: Cluster) -> str:
    """Return the error text for a cluster that has no room for a worker."""
    wanted = f" and {cluster.gpus_per_worker:g} GPU" if cluster.gpus_per_worker else ""
    return f"the Ray cluster has no node with a core{wanted} for a worker: add nodes, or choose --engine pool"


log = logging.getLogger(__name__)
LOOK = 5.0  # seconds between two looks at the cluster during a run: nodes may have come or gone
PATIENCE = 60.0  # seconds without any worker after which the user is warned
WORTHWHILE, MOST = 0.02, 64  # seconds of work per request to a worker, and the largest number of turns per request
LARGE, KEPT = 100_000, 8
"""Smallest piece in bytes that is put into the object store, and the number of such pieces that are remembered for
further clients."""


class Remote:
    """The server's handle of one worker: its unanswered requests, oldest first."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.starting: Any = actor.ready.remote()
        self.groups: dict[Any, JobGroup] = {}
        self.host = "a node"

    @property
    def awaited(self) -> list[Any]:
        """Return the references to the worker's pending answers."""
        return list(self.groups) if self.starting is None else [self.starting]


class RayEngine(WorkerEngine):
    """Runs turns on the workers of a cluster."""

    def __init__(self, setup: Setup, resources: Resources | None = None) -> None:
        self._ray = need_ray()
        self._resources = resources or Resources()
        gpus = self._resources.cluster.gpus_per_worker
        if setup.device != "cpu" and not gpus:
            raise InputError("on Ray, say how much of a GPU a worker has: --gpus-per-worker 1, or 0.25 for a quarter")
        super().__init__(setup, Pace(WORTHWHILE, MOST))
        self.workers: list[Remote] = []
        self._pieces: dict[int, tuple[bytes, Any]] = {}
        self._sent_references: dict[bytes, Any] = {}
        self._failures = 0
        arrays = setup_arrays(setup)
        self._membership = Membership(self._resources, sum(array.nbytes for array in arrays))
        try:
            self._shared = [self._ray.put(part) for part in (loaded_sources(arrays[-1].tobytes()), *arrays)]
            self._actors = self._ray.remote(RemoteWorker).options(
                num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD", runtime_env={"env_vars": ENVIRONMENT}
            )
            self._device = "cuda" if gpus else setup.device
            if not room(self._resources):
                raise InputError(without_room(self._resources.cluster))
            self._fit_cluster()
        except BaseException:
            self.close()
            raise

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Run the turns on the cluster; outcomes are yielded in the order of completion."""
        self._stop([worker for worker in self.workers if worker.groups])
        try:
            yield from self._run(TurnQueue(jobs, self.pace))
        finally:
            self._stop([worker for worker in self.workers if worker.groups])
            self._pieces.clear()
            self._sent_references.clear()

    def _run(self, queue: TurnQueue) -> Iterator[Outcome]:
        outcomes: list[Outcome] = []
        looked = last_ready = time.monotonic()
        self._fit_cluster()
        while True:
            for worker in sorted(self.workers, key=lambda worker: len(worker.groups)):
                while worker.starting is None and len(worker.groups) < self.pace.depth and queue:
                    self._submit(worker, queue.take())
            yield from outcomes
            if not (queue or any(worker.groups for worker in self.workers)):
                return
            awaited = {ref: worker for worker in self.workers for ref in worker.awaited}
            answered = self._ray.wait(list(awaited), timeout=LOOK)[0] if awaited else []
            outcomes = [o for ref in answered for o in self._receive(ref, awaited[ref], queue)]
            now = time.monotonic()
            if any(worker.starting is None for worker in self.workers):
                last_ready = now
            elif now - last_ready > PATIENCE:
                log.warning("no worker has started for a minute: others may have taken all cores of the cluster")
                last_ready = now
            if now - looked > LOOK or not self.workers:
                looked = now
                self._fit_cluster()

    def _fit_cluster(self) -> None:
        """Start or stop workers until they fill the cluster, but no more than one per client."""
        wanted = min(max(1, room(self._resources)), max(1, len(self.setup.federation.splits)))
        starting = [worker for worker in self.workers if worker.starting is not None]
        self._stop(starting[: max(0, len(self.workers) - wanted)])
        while len(self.workers) < wanted:
            self.workers.append(Remote(self._actors.remote(self._device, *self._shared)))

    def _stop(self, workers: Iterable[Remote]) -> None:
        for worker in workers:
            self.workers.remove(worker)
            self._ray.kill(worker.actor)

    def _submit(self, worker: Remote, group: JobGroup) -> None:
        sent: list[Any] = []
        downs = tuple(tuple(self._stored(piece, sent) for piece in job.down) for job in group.jobs)
        for name in group.references:
            if name not in self._sent_references:
                self._sent_references[name] = self._ray.put(dict(self.references.held(name).parts))
            sent.append(self._sent_references[name])
        bare = tuple(replace(job, down=()) for job in group.jobs)
        request = RemoteRequest(bare, downs, self.memories(group), group.references)
        worker.groups[worker.actor.work.remote(request, *sent)] = group

    def _stored(self, piece: bytes, sent: list[Any]) -> bytes | int:
        """Return a small piece of a downlink, or the number of a large piece's argument, which is stored in Ray.

        Clients that get the same downlink share the piece, and so the object.
        """
        if len(piece) < LARGE:
            return piece
        if id(piece) not in self._pieces:
            while len(self._pieces) >= KEPT:
                del self._pieces[next(iter(self._pieces))]
            self._pieces[id(piece)] = piece, self._ray.put(piece)
        sent.append(self._pieces[id(piece)][1])
        return len(sent) - 1

    def _receive(self, ref: Any, worker: Remote, queue: TurnQueue) -> Iterator[Outcome]:
        if worker not in self.workers:  # it was found dead by an earlier answer
            return
        try:
            message = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError as error:
            self._lost(worker, error, queue)
            return
        group = worker.groups.pop(ref, None)
        if isinstance(message, Failure):
            message.raise_again()
        elif isinstance(message, Ready):
            worker.starting, worker.host, self._failures = None, message.host, 0
            _compare(message)
        elif isinstance(message, Response) and group is not None:
            yield from self.accept(group, message)

    def _lost(self, worker: Remote, error: Exception, queue: TurnQueue) -> None:
        """Replace a lost worker, or the worker of a lost node, and run its turns again."""
        how = one_line(error)[:300]
        self.workers.remove(worker)
        self._ray.kill(worker.actor)
        if worker.starting is not None:
            self._failures += 1
            if self._failures >= MAX_DEATHS:
                raise SparsonaError(f"workers die as they start ({how}): choose --engine pool to see what happens")
        queue.repeat_lost(worker.groups.values(), f"a worker on {worker.host}", how)
        self._fit_cluster()

    def close(self) -> None:
        """End the workers, and leave the cluster if this engine has joined it."""
        self._stop(list(self.workers))
        self._membership.leave()
        super().close()


def _compare(ready: Ready) -> None:
    """Refuse a node with another version; warn of a node whose sums may differ."""
    if ready.version != __version__:
        raise InputError(f"{ready.host} has sparsona {ready.version}, this machine {__version__}: install the same")
    own = torch.backends.cpu.get_cpu_capability()
    if ready.instructions != own:
        log.warning(
            "%s computes with %s and this machine with %s: results may differ in their last bits; "
            "ATEN_CPU_CAPABILITY=default on all nodes makes them alike",
            ready.host, ready.instructions, own,
        )  # fmt: skip


@ENGINES.add
def engine(setup: Setup, resources: Resources) -> RayEngine:
    """Workers on the nodes of a Ray cluster, one per core; needs sparsona[ray]."""
    return RayEngine(setup, resources)
