"""Clients of topologies with more than one address."""

from collections.abc import Callable, Mapping
from itertools import chain, count
from typing import Any, TypeVar

import grpc

from holdfast.core.owner import owner_index
from holdfast.proto import taskqueue_internal_pb2 as internal
from holdfast.proto import taskqueue_internal_pb2_grpc as internal_rpc
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.grpc_client import TERMINAL, Wire
from tests.e2e.wait_until import DEADLINE_S, eventually

T = TypeVar("T")


class SplitWire(Wire):
    """A client of the gateway that makes the worker calls to the coordinator."""

    def __init__(self, gateway: str, coordinator: str) -> None:
        super().__init__(gateway)
        self._coordinator = Wire(coordinator)
        self._workers = internal_rpc.CoordinatorInternalServiceStub(self._coordinator.channel)

    def close(self) -> None:
        super().close()
        self._coordinator.close()


def unless_away(ask: Callable[[], T], otherwise: T) -> T:
    """Returns the response, or the other value while no server is available."""
    try:
        return ask()
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return otherwise


class RoutedWire(Wire):
    """A client that routes by owner, and a worker that fetches from all nodes in turn."""

    def __init__(self, nodes: list[str]) -> None:
        super().__init__(nodes[0])
        self._nodes = [Wire(node) for node in nodes]
        self._turn = count()

    def close(self) -> None:
        super().close()
        for node in self._nodes:
            node.close()

    def owner(self, key: str) -> Wire:
        """The node that owns the key."""
        return self._nodes[owner_index(key, len(self._nodes))]

    def submit(self, job_type: str = "sim", *, key: str = "", **spec: Any) -> public.SubmitJobResponse:  # noqa: ANN401
        """Submits to the owner of the key, or to the nodes in turn."""
        node = self.owner(key) if key else self._nodes[next(self._turn) % len(self._nodes)]
        return node.submit(job_type, key=key, **spec)

    def status(self, job_id: str, timeout_s: float = DEADLINE_S) -> public.GetJobStatusResponse:
        if len(self._nodes) == 1:
            return super().status(job_id, timeout_s)
        return self.owner(job_id).status(job_id, timeout_s)

    def wait_for(self, job_id: str, *states: int) -> public.GetJobStatusResponse:
        """Waits for one of the states, and tolerates a node that is down for a moment."""
        unknown, wanted = public.GetJobStatusResponse(), frozenset(states) or TERMINAL
        return eventually(lambda: unless_away(lambda: self.status(job_id), unknown), lambda job: job.status in wanted)

    def result(self, job_id: str) -> public.GetJobResultResponse:
        return self.owner(job_id).result(job_id) if len(self._nodes) > 1 else super().result(job_id)

    def cancel(self, job_id: str, reason: str = "") -> public.CancelJobResponse:
        return self.owner(job_id).cancel(job_id, reason) if len(self._nodes) > 1 else super().cancel(job_id, reason)

    def all_jobs(self, *states: int, sort: int = public.CREATED_AT_ASC) -> list[public.JobSummary]:
        """The jobs of all nodes, one node after the other."""
        if len(self._nodes) == 1:
            return super().all_jobs(*states, sort=sort)
        return [*chain.from_iterable(node.all_jobs(*states, sort=sort) for node in self._nodes)]

    def heartbeat(
        self, worker: str, running: Mapping[str, int] | None = None, capacity: int = 1
    ) -> internal.WorkerHeartbeatResponse:
        """Sends a heartbeat to every node with the jobs that the node owns."""
        merged = internal.WorkerHeartbeatResponse()
        for node in self._nodes:
            named = running
            if running is not None:
                named = {job_id: token for job_id, token in running.items() if self.owner(job_id) is node}
            answer = node.heartbeat(worker, named, capacity)
            cancel = [*merged.cancel, *answer.cancel]
            merged.CopyFrom(answer)
            del merged.cancel[:]
            merged.cancel.extend(cancel)
        return merged

    def fetch(self, worker: str) -> internal.FetchWorkResponse:
        for node in self._nodes:
            work = node.fetch(worker)
            if work.assigned:
                return work
        return work

    def report(
        self,
        worker: str,
        job_id: str,
        outcome: int = public.JOB_OUTCOME_SUCCEEDED,
        **fields: Any,  # noqa: ANN401 - the fields of the message
    ) -> bool:
        return self.owner(job_id).report(worker, job_id, outcome, **fields)
