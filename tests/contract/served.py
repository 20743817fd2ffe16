"""The frozen contract served by each topology; without workers unless a test asks for one, for the tests are those."""

from collections.abc import Callable, Mapping
from enum import Enum
from itertools import chain, count
from typing import Any, TypeVar

import grpc

from holdfast.core.owner import owner_index
from holdfast.proto import taskqueue_internal_pb2 as internal
from holdfast.proto import taskqueue_internal_pb2_grpc as internal_rpc
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.fleet import Fleet, Program
from tests.e2e.waiting import DEADLINE_S, eventually
from tests.e2e.wire import TERMINAL, Wire

T = TypeVar("T")


class Topology(Enum):
    """Who serves."""

    EMBEDDED = "embedded"
    MICROSERVICES = "microservices"
    MONOLITH = "monolith"


class SplitWire(Wire):
    """A client of the gateway, and a worker of the coordinator."""

    def __init__(self, gateway: str, coordinator: str) -> None:
        super().__init__(gateway)
        self._coordinator = Wire(coordinator)
        self._workers = internal_rpc.CoordinatorInternalServiceStub(self._coordinator.channel)

    def close(self) -> None:
        super().close()
        self._coordinator.close()


def _unless_away(ask: Callable[[], T], otherwise: T) -> T:
    """The answer; the other value if nobody is there."""
    try:
        return ask()
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return otherwise


def _has_id(response: public.SubmitJobResponse) -> bool:
    return bool(response.job_id)


class RoutedWire(Wire):
    """A client that finds the owner, and a worker that asks all nodes in turn."""

    def __init__(self, nodes: list[str]) -> None:
        super().__init__(nodes[0])
        self._nodes = [Wire(node) for node in nodes]
        self._turn = count()

    def close(self) -> None:
        super().close()
        for node in self._nodes:
            node.close()

    def owner(self, key: str) -> Wire:
        """The node that has what this key names."""
        return self._nodes[owner_index(key, len(self._nodes))]

    def submit(self, job_type: str = "sim", *, key: str = "", **spec: Any) -> public.SubmitJobResponse:  # noqa: ANN401
        """What has a key is repeated while its node is away for a moment, as clients do."""
        if not key:
            return self._nodes[next(self._turn) % len(self._nodes)].submit(job_type, **spec)
        node = self.owner(key)
        nothing = public.SubmitJobResponse()
        return eventually(lambda: _unless_away(lambda: node.submit(job_type, key=key, **spec), nothing), _has_id)

    def status(self, job_id: str, timeout_s: float = DEADLINE_S) -> public.GetJobStatusResponse:
        if len(self._nodes) == 1:
            return super().status(job_id, timeout_s)
        return self.owner(job_id).status(job_id, timeout_s)

    def wait_for(self, job_id: str, *states: int) -> public.GetJobStatusResponse:
        """A node whose slot was killed by its job is away for a moment, and comes back with the job."""
        unknown, wanted = public.GetJobStatusResponse(), frozenset(states) or TERMINAL
        return eventually(lambda: _unless_away(lambda: self.status(job_id), unknown), lambda job: job.status in wanted)

    def result(self, job_id: str) -> public.GetJobResultResponse:
        return self.owner(job_id).result(job_id) if len(self._nodes) > 1 else super().result(job_id)

    def cancel(self, job_id: str, reason: str = "") -> public.CancelJobResponse:
        return self.owner(job_id).cancel(job_id, reason) if len(self._nodes) > 1 else super().cancel(job_id, reason)

    def all_jobs(self, *states: int, sort: int = public.CREATED_AT_ASC) -> list[public.JobSummary]:
        """Those of all nodes, one after the other."""
        if len(self._nodes) == 1:
            return super().all_jobs(*states, sort=sort)
        return [*chain.from_iterable(node.all_jobs(*states, sort=sort) for node in self._nodes)]

    def heartbeat(
        self, worker: str, running: Mapping[str, int] | None = None, capacity: int = 1
    ) -> internal.WorkerHeartbeatResponse:
        """To all nodes, to each about the jobs that it owns."""
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


class Served:
    """One topology that serves, and a client of it."""

    def __init__(self, wire: Wire, programs: list[Program]) -> None:
        self.wire = wire
        self.programs = programs

    @property
    def log(self) -> str:
        """All that its processes have logged."""
        return "".join(program.log for program in self.programs)

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """The lines of one event, or of all, in the order of their times."""
        lines = chain.from_iterable(program.lines(event) for program in self.programs)
        return sorted(lines, key=lambda line: int(line["ts_ms"]))


class Serving:
    """Starts one kind of topology for the tests of one module."""

    def __init__(self, fleet: Fleet, topology: Topology) -> None:
        self._fleet = fleet
        self.topology = topology
        self._count = 0

    def __call__(self, *, lease_ms: int = 0, heartbeat_ms: int = 0, slots: int = 0, nodes: int = 2) -> Served:
        """A fresh one that is ready; with a worker of so many slots, if any."""
        self._count += 1
        data = f"{self.topology.name.lower()}-{self._count}"
        if self.topology is Topology.MICROSERVICES:
            return self._services(data, lease_ms, heartbeat_ms, slots)
        timing = (
            *(("--lease-ms", str(lease_ms)) if lease_ms else ()),
            *(("--heartbeat-ms", str(heartbeat_ms)) if heartbeat_ms else ()),
        )
        if self.topology is Topology.MONOLITH:
            return self._nodes(data, timing, slots, nodes)
        if slots:
            program, wire = self._fleet.up("--slots", str(slots), *timing, data=data)
        else:
            program, wire = self._fleet.server(*timing, data=data)
        return Served(wire, [program])

    def _nodes(self, data: str, timing: tuple[str, ...], slots: int, nodes: int) -> Served:
        if slots:  # jobs run inside the nodes, and may end them: somebody has to start them again
            size = ("--nodes", str(nodes), "--slots", str(slots), "--port", "0")
            program = self._fleet.start("up", "--topology", "monolith", *size, "--data", data, *timing)
            return self._served(RoutedWire(program.ready()["nodes"]), [program])
        programs = [
            self._fleet.start(
                *("node", "--index", str(index), "--nodes", str(nodes), "--port", "0"),
                *("--slots", str(slots), "--data", f"{data}/node-{index}", *timing),
            )
            for index in range(nodes)
        ]
        return self._served(RoutedWire([program.ready()["grpc"] for program in programs]), programs)

    def _services(self, data: str, lease_ms: int, heartbeat_ms: int, slots: int) -> Served:
        if slots:  # jobs may end the worker: somebody has to start it again
            timing = (
                *(("--worker-timeout-ms", str(lease_ms)) if lease_ms else ()),
                *(("--heartbeat-ms", str(heartbeat_ms or lease_ms // 3)) if heartbeat_ms or lease_ms else ()),
            )
            size = ("--slots", str(slots), "--port", "0")
            program = self._fleet.start("up", "--topology", "microservices", *size, "--data", data, *timing)
            return self._served(Wire(program.ready()["grpc"]), [program])
        return self._bare_services(data, lease_ms, heartbeat_ms)

    def _bare_services(self, data: str, lease_ms: int, heartbeat_ms: int) -> Served:
        start = self._fleet.start
        owners = {
            role: start("service", role, "--data", f"{data}", **{f"{role.upper()}_PORT": "0"})
            for role in ("job", "queue", "result")
        }
        peers = {f"{role.upper()}_SERVICE_ADDR": program.ready()["grpc"] for role, program in owners.items()}
        timing = {
            **({"WORKER_TIMEOUT_MS": str(lease_ms)} if lease_ms else {}),
            **({"HEARTBEAT_INTERVAL_MS": str(heartbeat_ms or lease_ms // 3)} if heartbeat_ms or lease_ms else {}),
        }
        coordinator = start("service", "coordinator", COORDINATOR_PORT="0", **peers, **timing)
        gateway = start("service", "gateway", GATEWAY_PORT="0", **peers)
        programs = [*owners.values(), coordinator, gateway]
        return self._served(SplitWire(gateway.ready()["grpc"], coordinator.ready()["grpc"]), programs)

    def _served(self, wire: Wire, programs: list[Program]) -> Served:
        self._fleet.keep(wire)
        return Served(wire, programs)
