"""Requests to ZooKeeper: the cost of the next job with few and many jobs waiting, and of an idle worker.

`python -m holdfast_lab.bench.zookeeper_requests`

Everything is measured in one run on a private ensemble of three servers that sync before they acknowledge. Times are
ratios to the shortest queue, so that they can be compared between machines.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE
from holdfast.core.model import Template
from holdfast.ports import Introduction, JobDraft, WorkSession
from holdfast.topologies.zookeeper.backend.connection import connect
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.work_api import BidWork
from holdfast.topologies.zookeeper.ensemble_url import SESSION_MS
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from holdfast_lab.measure.rounds import orders
from holdfast_lab.measure.tables import columns
from holdfast_lab.torture.faults.proxy import TcpProxy

WAITING = (100, 1_000, 10_000)
ROUNDS = 5
TAKES = 15
IDLE_S = 10.0
#: Length of a ping in ZooKeeper's protocol: its size, its number and its kind.
PING_BYTES = 12

_JOB = Template(type="measured")


class MeasuredQueue:
    """A queue of a given length, and the seconds until a worker got a job of it."""

    def __init__(self, hosts: str, waiting: int) -> None:
        self._hosts = hosts
        self._root = f"/measured/{waiting}"
        self._waiting = waiting
        #: Seconds until the first job of a new worker, and until each further one.
        self.first_s: list[float] = []
        self.next_s: list[float] = []

    async def fill(self) -> None:
        """Submit the jobs."""
        connection = await connect(self._hosts, self._root, session_ms=SESSION_MS)
        jobs, left = NodeJobs(connection), self._waiting + ROUNDS * (TAKES + 1)
        while left > 0:
            size = min(left, limits.BATCH_JOBS_MAX)
            await jobs.submit([_JOB], [JobDraft(payload=b"{}")] * size)
            left -= size
        await connection.close()

    async def round(self) -> None:
        """Connect a worker, take some jobs one after the other, and disconnect it."""
        work = BidWork(self._hosts, self._root, session_ms=SESSION_MS)
        session = await work.open(Introduction("measured", frozenset({_JOB.type})))
        self.first_s.append(await _take(session, 1))
        self.next_s += [await _take(session, number) for number in range(2, TAKES + 2)]
        await session.close()


async def _take(session: WorkSession, number: int) -> float:
    """Seconds from a free slot to a job; the report of the job is not counted."""
    began_s = time.perf_counter()
    await session.want(1)
    while not (leases := (await session.next()).leases):
        pass
    taken_s = time.perf_counter() - began_s
    await session.report(number, [ReportRow(leases[0].job_id, leases[0].token, DONE)])
    while (await session.next()).reported < number:
        pass
    return taken_s


async def idle(hosts: str) -> int:
    """Bytes that a worker without jobs sends; its connection goes through a proxy that counts them."""
    host, _, port = hosts.partition(",")[0].partition(":")
    proxy = await TcpProxy.open(host, int(port))
    work = BidWork(proxy.address, "/measured/idle", session_ms=SESSION_MS)
    session = await work.open(Introduction("idle", frozenset({_JOB.type})))
    await session.want(1)
    await asyncio.sleep(3.0)  # until the worker waits in the queue
    before = proxy.traffic.bytes_to_server
    await asyncio.sleep(IDLE_S)
    sent = proxy.traffic.bytes_to_server - before
    await session.close()
    await proxy.close()
    return sent


async def measure(hosts: str) -> None:
    """Print the figures."""
    queues = [MeasuredQueue(hosts, waiting) for waiting in WAITING]
    for one in queues:
        await one.fill()
    for _, order in orders(queues, ROUNDS):
        for one in order:
            await one.round()
    first, later = [[statistics.median(getattr(one, name)) for one in queues] for name in ("first_s", "next_s")]
    rows = [
        (f"{waiting:,}", f"{first_s / first[0]:.2f}", f"{next_s / later[0]:.2f}")
        for waiting, first_s, next_s in zip(WAITING, first, later, strict=True)
    ]
    print(columns(("waiting jobs", "first job of a new worker", "the next job"), rows))
    unit = f"1 is {1e3 * first[0]:.1f} ms and {1e3 * later[0]:.1f} ms"
    print(f"ratios of medians of {ROUNDS} and {ROUNDS * TAKES}; {unit}")
    sent = await idle(hosts)
    print(f"an idle worker sent {sent} bytes in {IDLE_S:g} s: {sent / PING_BYTES:g} pings of {PING_BYTES} bytes")


def main() -> int:
    """Start the ensemble, measure, and stop it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as folder:
        servers = PrivateZooKeeper(Path(folder) / "zookeeper")
        hosts = servers.start()
        try:
            asyncio.run(measure(hosts))
        finally:
            servers.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
