"""Parallel runs on a Ray cluster, each on one core of a node.

A node that sees the folder of the runs works in it. Another node receives a copy of the run's directory and sends it
back when the run has ended. If a node is lost, another one continues its run from the folder.
"""

import io
import secrets
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sparsona.engines.child import ENVIRONMENT
from sparsona.engines.ray import Membership, need_ray, room, without_room
from sparsona.engines.turns import MAX_DEATHS, Failure, caught
from sparsona.errors import InputError, SparsonaError, one_line
from sparsona.federation.resources import Resources
from sparsona.many import Loader, RunEnded, RunPlace, RunPlan, advance, ended
from sparsona.runs.records import RoundReport

LOOK = 1.0  # seconds between two reads of the runs' reports


class Mailbox:
    """The queue through which runs report their rounds to the process that started them. It is an actor of Ray."""

    def __init__(self) -> None:
        self._reports: list[tuple[str, RoundReport]] = []

    def put(self, name: str, report: RoundReport) -> None:
        """Add a round's report."""
        self._reports.append((name, report))

    def take(self) -> list[tuple[str, RoundReport]]:
        """Remove and return all reports."""
        taken, self._reports = self._reports, []
        return taken


@dataclass(frozen=True)
class FolderNotShared:
    """The node does not see the folder and needs a copy of the directory."""


def make(
    name: str, plan: RunPlan, mark: Path | None, directory: bytes | None, mailbox: Any
) -> bytes | FolderNotShared | Failure | None:
    """Execute a run on a node; without `mark`, a file in the folder of the runs, return the run's directory."""

    def tell(report: RoundReport) -> None:
        mailbox.put.remote(name, report)

    def sent() -> bytes:
        with tempfile.TemporaryDirectory(prefix="sparsona-") as scratch:
            folder = Path(scratch) / "run"
            if directory is not None:
                unpack(directory, folder)
            advance(replace(plan, folder=folder), Loader(), tell)
            return packed(folder)

    if mark is None:
        return caught(sent)
    return caught(partial(advance, plan, Loader(), tell)) if mark.exists() else FolderNotShared()


def packed(folder: Path) -> bytes:
    """Return a run's directory as one archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.add(folder, arcname=".")
    return out.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Write the files of an archive by :func:`packed`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")


class OnCluster(RunPlace):
    """Executes as many runs at a time as the cluster has room for; `at_work` has each one's name and plan."""

    def __init__(self, resources: Resources, folder: Path) -> None:
        super().__init__()
        self._ray = need_ray()
        self._resources = resources
        self._membership = Membership(resources)
        self._mark = folder.absolute() / f".ray-{secrets.token_hex(8)}"
        folder.mkdir(parents=True, exist_ok=True)
        self._mark.touch()
        gpus = resources.cluster.gpus_per_worker
        self._device = {"device": "cuda"} if gpus else {}
        self._task = self._ray.remote(make).options(
            num_cpus=1, num_gpus=gpus, max_retries=MAX_DEATHS, scheduling_strategy="SPREAD",
            runtime_env={"env_vars": ENVIRONMENT},
        )  # fmt: skip
        try:
            if not room(resources):
                raise InputError(without_room(resources.cluster))
            self._mailbox = self._ray.remote(Mailbox).options(num_cpus=0).remote()
        except BaseException:
            self.close()
            raise

    @property
    def free(self) -> bool:
        return len(self.at_work) < max(1, room(self._resources))

    def start(self, name: str, plan: RunPlan) -> None:
        settings = {**plan.settings, **self._device, "engine": "inprocess"}
        self._submit(name, replace(plan, settings=settings, folder=plan.folder.absolute()), self._mark)

    def _submit(self, name: str, plan: RunPlan, mark: Path | None) -> None:
        directory = packed(plan.folder) if mark is None and plan.folder.exists() else None
        self.at_work[self._task.remote(name, plan, mark, directory, self._mailbox)] = name, plan

    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        done, _ = self._ray.wait(list(self.at_work), timeout=LOOK)
        for name, report in self._ray.get(self._mailbox.take.remote()):
            on_round(name, report)
        return [one for ref in done for one in self._received(ref)]

    def _received(self, ref: Any) -> list[RunEnded]:
        name, plan = self.at_work.pop(ref)
        try:
            answer: bytes | FolderNotShared | Failure | None = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError as error:
            problem = one_line(error)[:300]
            return [RunEnded(name, SparsonaError(f"its node was lost {MAX_DEATHS + 1} times ({problem})"))]
        if isinstance(answer, FolderNotShared):
            self._submit(name, plan, None)
            return []
        if isinstance(answer, bytes):
            unpack(answer, plan.folder)
        return [ended(name, answer if isinstance(answer, Failure) else None)]

    def close(self) -> None:
        for ref in self.at_work:
            self._ray.cancel(ref, force=True)
        self.at_work.clear()
        self._mark.unlink(missing_ok=True)
        self._membership.leave()
