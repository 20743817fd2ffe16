"""The frozen contract served by each topology, as real processes with or without a real worker.

The tests start every process directly instead of with `holdfast up`, which is tested elsewhere: that is faster, and the
tests can pause, stop and replace a worker.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.wires import RoutedWire, SplitWire, unless_away
from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.grpc_client import TERMINAL, Wire
from tests.e2e.wait_until import eventually

#: The lease of a worker that must keep its jobs: longer than any pause of the machine.
LEASE_MS = 120_000
_ROOT = str(Path(__file__).resolve().parents[2])
_APP = ("--app", "tests.contract.worker_app:app")
_WORKER_ID = "contract-worker"


T = TypeVar("T")


class Topology(Enum):
    """The topologies of Holdfast."""

    EMBEDDED = "embedded"
    MICROSERVICES = "microservices"
    MONOLITH = "monolith"
    PIPELINE = "pipeline"
    ZOOKEEPER = "zookeeper"


#: The topologies that serve `CoordinatorInternalService`: FetchWork, WorkerHeartbeat and ReportWorkOutcome.
WITH_WORKER_CALLS = (Topology.EMBEDDED, Topology.MICROSERVICES, Topology.MONOLITH)


class Engines(Protocol):
    """The databases and ensembles that topologies need; a test is skipped where one is missing."""

    def database(self) -> str:
        """The URL of an empty PostgreSQL database."""

    def ensemble(self) -> str:
        """The address of a ZooKeeper with a root of its own."""


class Restartable:
    """A process that jobs may kill, and that the test then starts again."""

    def __init__(self, start: Callable[[], Program]) -> None:
        self._start = start
        self.programs = [start()]

    @property
    def program(self) -> Program:
        """The newest process."""
        return self.programs[-1]

    def mend(self) -> None:
        """Starts another process if this one has ended."""
        if not self.program.is_running():
            self.programs.append(self._start())


@dataclass
class Served:
    """A running topology and a client of it."""

    wire: Wire
    programs: list[Program]
    start_worker: Callable[[int], Program]
    restartable: list[Restartable] = field(default_factory=list)

    @property
    def log(self) -> str:
        """The log of all its processes."""
        return "".join(program.log for program in self._all())

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """The log lines of one event, or of all events, ordered by time."""
        lines = chain.from_iterable(program.lines(event) for program in self._all())
        return sorted(lines, key=lambda line: int(line["ts_ms"]))

    def _all(self) -> list[Program]:
        return [*self.programs, *chain.from_iterable(each.programs for each in self.restartable)]

    def add_worker(self, slots: int) -> None:
        """Starts a real worker and waits until it is ready."""
        worker = Restartable(lambda: self.start_worker(slots))
        worker.program.ready()
        self.restartable.append(worker)

    @contextlib.contextmanager
    def paused_worker(self) -> Iterator[None]:
        """Stops the worker's process for the duration of the block: it keeps its jobs and receives no messages."""
        (worker,) = self.restartable
        worker.program.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            worker.program.signal(signal.SIGCONT)

    def new(self, key: str, **spec: Any) -> str:  # noqa: ANN401 - the fields of `Wire.submit`
        """Submits a job and returns its id; repeats the submit while a process that a job has killed restarts."""
        return eventually(lambda: self._mended(lambda: self.wire.new(key=key, **spec), ""))

    def wait_for(self, job_id: str) -> public.GetJobStatusResponse:
        """Waits for the terminal status of a job; restarts processes that jobs have killed meanwhile."""
        unknown = public.GetJobStatusResponse()
        return eventually(
            lambda: self._mended(lambda: self.wire.status(job_id), unknown), lambda job: job.status in TERMINAL
        )

    def _mended(self, ask: Callable[[], T], otherwise: T) -> T:
        for each in self.restartable:
            each.mend()
        return unless_away(ask, otherwise)


class Serving:
    """Starts one topology for the tests of one module."""

    def __init__(self, fleet: Fleet, topology: Topology, engines: Engines) -> None:
        self._fleet = fleet
        self.topology = topology
        self._engines = engines
        self._count = 0

    def __call__(
        self, *, lease_ms: int = 0, heartbeat_ms: int = 0, slots: int = 0, queues: str = "", nodes: int = 2
    ) -> Served:
        """Starts a new topology; if `slots` is not 0, with a worker of that many slots for these queues."""
        self._count += 1
        plan = _Plan(f"{self.topology.value}-{self._count}", lease_ms, heartbeat_ms, queues, nodes)
        served = _STARTS[self.topology](self, plan)
        self._fleet.keep(served.wire)
        if slots:
            served.add_worker(slots)
        return served

    def with_slots_in_its_nodes(self, *, slots: int, nodes: int, lease_ms: int = 0) -> Served:
        """Starts a new topology; the nodes of a monolith run the jobs themselves, as they do by default."""
        if self.topology is not Topology.MONOLITH:
            return self(slots=slots, lease_ms=lease_ms)
        self._count += 1
        plan = _Plan(f"monolith-{self._count}", lease_ms, 0, "", nodes)
        ports = [stable_port() for _ in range(nodes)]
        kept = [
            Restartable(lambda index=index, port=port: self._node(plan, index, port, slots))  # type: ignore[misc]
            for index, port in enumerate(ports)
        ]
        wire = self._fleet.keep(RoutedWire([each.program.ready()["grpc"] for each in kept]))
        return Served(wire, [], _no_worker, kept)

    def _embedded(self, plan: "_Plan") -> Served:
        server = self._fleet.start("server", "--data", plan.data, "--port", "0", *plan.timing())
        address = server.ready()["grpc"]
        return Served(Wire(address), [server], lambda slots: self._worker(plan, address, slots))

    def _monolith(self, plan: "_Plan") -> Served:
        programs = [self._node(plan, index, 0, 0) for index in range(plan.nodes)]
        addresses = [program.ready()["grpc"] for program in programs]
        return Served(RoutedWire(addresses), programs, lambda slots: self._worker(plan, ",".join(addresses), slots))

    def _node(self, plan: "_Plan", index: int, port: int, slots: int) -> Program:
        return self._fleet.start(
            *("node", "--index", str(index), "--nodes", str(plan.nodes), "--port", str(port), "--slots", str(slots)),
            *("--data", f"{plan.data}/node-{index}", *plan.timing(), *_APP),
            PYTHONPATH=_ROOT,
        )

    def _worker(self, plan: "_Plan", address: str, slots: int) -> Program:
        command = ("worker", "--connect", address, *_APP, *plan.worker(slots), "--worker-id", _WORKER_ID)
        return self._fleet.start(*command, PYTHONPATH=_ROOT)

    def _microservices(self, plan: "_Plan") -> Served:
        start = self._fleet.start
        owners = {
            role: start("service", role, "--data", plan.data, **{f"{role.upper()}_PORT": "0"})
            for role in ("job", "queue", "result")
        }
        peers = {f"{role.upper()}_SERVICE_ADDR": program.ready()["grpc"] for role, program in owners.items()}
        heartbeat_ms = plan.heartbeat_ms or plan.lease_ms // 3
        timing = {
            **({"WORKER_TIMEOUT_MS": str(plan.lease_ms)} if plan.lease_ms else {}),
            **({"HEARTBEAT_INTERVAL_MS": str(heartbeat_ms)} if heartbeat_ms else {}),
        }
        coordinator = start("service", "coordinator", COORDINATOR_PORT="0", **peers, **timing)
        gateway = start("service", "gateway", GATEWAY_PORT="0", **peers)
        address = coordinator.ready()["grpc"]

        def worker(slots: int) -> Program:
            told = {"COORDINATOR_ADDR": address, "WORKER_ID": _WORKER_ID, "PYTHONPATH": _ROOT}
            heartbeat = {name: value for name, value in timing.items() if name == "HEARTBEAT_INTERVAL_MS"}
            return start("service", "worker", *_APP, *plan.worker(slots), **told, **heartbeat)

        programs = [*owners.values(), coordinator, gateway]
        return Served(SplitWire(gateway.ready()["grpc"], address), programs, worker)

    def _pipeline(self, plan: "_Plan") -> Served:
        database = {"HOLDFAST_DATABASE": self._engines.database()}
        ports = {name: str(stable_port()) for name in ("scheduler", "queue", "exchange", "coordinator", "watcher")}
        options = {
            "scheduler": (),
            "queue": (),
            "exchange": ("--normal", ports["queue"]),
            "coordinator": ("--normal", ports["queue"]),
            "watcher": ("--exchanges", ports["exchange"]),
        }
        programs = [
            self._fleet.start("pipeline", role, "--port", ports[role], *more, **database)
            for role, more in options.items()
        ]
        for program in programs:
            program.ready()
        addresses = ("--schedulers", ports["scheduler"], "--port", "0", "--grpc-port", "0", "--no-http")
        gateway = self._fleet.start("pipeline", "gateway", *addresses)

        def worker(slots: int) -> Program:
            lease = ("--lease-ms", str(plan.lease_ms)) if plan.lease_ms else ()
            place = ("--coordinator", ports["coordinator"], "--port", "0", *lease)
            command = ("pipeline", "worker", *place, *_APP, *plan.worker(slots), "--worker-id", _WORKER_ID)
            return self._fleet.start(*command, PYTHONPATH=_ROOT, **database)

        return Served(Wire(gateway.ready()["grpc"]), [*programs, gateway], worker)

    def _zookeeper(self, plan: "_Plan") -> Served:
        place = ("--ensemble", self._engines.ensemble())
        gateway = self._fleet.start("zookeeper", "gateway", *place, "--port", "0", "--no-http")

        def worker(slots: int) -> Program:
            lease = ("--lease-ms", str(plan.lease_ms)) if plan.lease_ms else ()
            command = ("zookeeper", "worker", *place, *lease, *_APP, *plan.worker(slots), "--worker-id", _WORKER_ID)
            return self._fleet.start(*command, PYTHONPATH=_ROOT)

        return Served(Wire(gateway.ready()["grpc"]), [gateway], worker)


_STARTS: dict[Topology, Callable[[Serving, "_Plan"], Served]] = {
    Topology.EMBEDDED: Serving._embedded,
    Topology.MICROSERVICES: Serving._microservices,
    Topology.MONOLITH: Serving._monolith,
    Topology.PIPELINE: Serving._pipeline,
    Topology.ZOOKEEPER: Serving._zookeeper,
}


def _no_worker(_: int) -> Program:
    raise AssertionError("expected a topology without slots in its nodes; start it with `serve()`")


@dataclass(frozen=True)
class _Plan:
    """The start options of one topology."""

    data: str
    lease_ms: int
    heartbeat_ms: int
    queues: str
    nodes: int

    def timing(self) -> tuple[str, ...]:
        """Options of processes that keep leases in a ledger."""
        return (
            *(("--lease-ms", str(self.lease_ms)) if self.lease_ms else ()),
            *(("--heartbeat-ms", str(self.heartbeat_ms)) if self.heartbeat_ms else ()),
        )

    def worker(self, slots: int) -> tuple[str, ...]:
        """Options of every worker."""
        return ("-c", str(slots), *(("--queues", self.queues) if self.queues else ()))
