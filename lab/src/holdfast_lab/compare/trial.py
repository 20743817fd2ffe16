"""One workload on one topology, once, with client processes, a meter, and a fault if the workload has one."""

import asyncio
import contextlib
import os
import signal
import time

import msgspec

from holdfast_lab.compare.client_process import CONNECT_S, READY
from holdfast_lab.compare.load_client import GRACE_S, ClientTask
from holdfast_lab.compare.records import Packed, Records
from holdfast_lab.compare.topologies import RunningTopology
from holdfast_lab.compare.workloads import Workload
from holdfast_lab.measure.process_tree import Meter, Usage, cpu_of, cpu_of_machine
from holdfast_lab.measure.processes import module, spawned

#: All clients begin this long after the start time was sent to them.
_AHEAD_S = 0.05
_LOOK_S = 0.5
_NS = 1_000_000_000


class ProcessKill(msgspec.Struct, frozen=True):
    """The killed process, and when on the monotonic clock."""

    role: str
    pid: int
    at: int


class Costs(msgspec.Struct, frozen=True):
    """CPU seconds during the window: of the topology by role, of the clients, and of other programs."""

    usage: dict[str, Usage]
    clients_s: float = 0.0
    others_s: float = 0.0


class TrialMeasurement(msgspec.Struct, frozen=True):
    """The records and costs of one trial."""

    records: Records
    #: The measured window, on the monotonic clock.
    begin: int
    end: int
    costs: Costs
    fault: ProcessKill | None = None


class TrialError(Exception):
    """A trial failed; the message says why."""


async def run_trial(started: RunningTopology, workload: Workload, *, seed: int, clients: int) -> TrialMeasurement:
    """Put a load on a running topology."""
    count = clients if workload.is_open else min(clients, workload.concurrency)
    tasks = [
        ClientTask(targets=started.targets, workload=workload, seed=seed, index=index, clients=count)
        for index in range(count)
    ]
    async with contextlib.AsyncExitStack() as stack:
        running = [await stack.enter_async_context(_client(task)) for task in tasks]
        await asyncio.gather(*(_connected(client) for client in running))
        start = time.monotonic_ns() + int(_AHEAD_S * _NS)
        begin = start + int(workload.warm_up_s * _NS)
        end = begin + int(workload.duration_s * _NS)
        for client in running:
            assert client.stdin is not None
            client.stdin.write(f"{start}\n".encode())
        watching = asyncio.create_task(_watch(started, workload, [client.pid for client in running], begin, end))
        try:
            parts = await asyncio.gather(*(_records(client, workload) for client in running))
            costs, fault = await watching
        finally:
            watching.cancel()
    return TrialMeasurement(Records.merged(parts), begin, end, costs, fault)


@contextlib.asynccontextmanager
async def _client(task: ClientTask):  # type: ignore[no-untyped-def]  # noqa: ANN202
    process = await spawned(module("holdfast_lab.compare.client_process"), stdin=asyncio.subprocess.PIPE)
    try:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(task) + b"\n")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _connected(client: asyncio.subprocess.Process) -> None:
    assert client.stdout is not None
    try:
        async with asyncio.timeout(2 * CONNECT_S):
            line = await client.stdout.readline()
    except TimeoutError:
        line = b""
    if line != READY:
        raise TrialError("a client could not connect")


async def _records(client: asyncio.subprocess.Process, workload: Workload) -> Packed:
    assert client.stdout is not None
    try:
        async with asyncio.timeout(workload.warm_up_s + workload.duration_s + 2 * GRACE_S):
            data = await client.stdout.read()
    except TimeoutError:
        raise TrialError("a client did not end") from None
    if not data:
        raise TrialError("a client ended without its records")
    return msgspec.msgpack.decode(data, type=Packed)


async def _watch(
    started: RunningTopology, workload: Workload, clients: list[int], begin: int, end: int
) -> tuple[Costs, ProcessKill | None]:
    """Read the meters during the window; kill a process half-way if the workload has a fault."""
    meter = Meter(started.pid, started.topology.role)
    await _until(begin)
    meter.begin()
    clients_s, machine_s = cpu_of(clients), cpu_of_machine()
    fault = None
    middle = (begin + end) // 2
    while (now := time.monotonic_ns()) < end:
        if workload.has_fault and fault is None and now >= middle:
            fault = _strike(meter, started.topology.victim)
        aim = min(end, now + int(_LOOK_S * _NS), *([middle] if workload.has_fault and fault is None else []))
        await _until(aim)
        meter.look()
    if workload.has_fault and (fault is None or fault.at >= end):
        raise TrialError("the machine was so busy that the load was over before the kill")
    clients_s, machine_s = cpu_of(clients) - clients_s, cpu_of_machine() - machine_s
    usage = meter.usage()
    others_s = machine_s - clients_s - sum(one.cpu_s for one in usage.values())
    return Costs(usage, clients_s, max(0.0, others_s)), fault


def _strike(meter: Meter, role: str) -> ProcessKill:
    """Kill the newest process of this role."""
    pids = meter.pids(role)
    if not pids:
        raise TrialError(f"there is no process of the role {role} to be killed")
    pid = max(pids)
    os.kill(pid, signal.SIGKILL)
    return ProcessKill(role, pid, time.monotonic_ns())


async def _until(moment: int) -> None:
    if (left := moment - time.monotonic_ns()) > 0:
        await asyncio.sleep(left / _NS)
