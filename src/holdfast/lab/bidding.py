"""`python -m holdfast.lab.bidding`: what the next job costs with few and many waiting, and what an idle worker sends.

Everything is measured in one run on a private ensemble of three servers that sync what they acknowledge; times are told
as ratios to the shortest line, so that they mean something on another machine.
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
from holdfast.lab.counting_way import PING_BYTES, CountingWay
from holdfast.ports import Introduction, JobDraft, WorkSession
from holdfast.settings import SESSION_MS
from holdfast.topologies.zookeeper.backend.connection import connect
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.work_api import BidWork
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper

WAITING = (100, 1_000, 10_000)
ROUNDS = 5
TAKES = 15
IDLE_S = 10.0

_JOB = Template(type="measured")


class Measured:
    """Takes jobs one at a time, and keeps how long each one took."""

    def __init__(self, hosts: str, waiting: int) -> None:
        self._hosts = hosts
        self._root = f"/measured/{waiting}"
        self._waiting = waiting
        #: In seconds: the first job of a worker that has just come, and each one after it.
        self.first_s: list[float] = []
        self.next_s: list[float] = []

    async def fill(self) -> None:
        """Posts the jobs."""
        connection = await connect(self._hosts, self._root, session_ms=SESSION_MS)
        jobs, left = NodeJobs(connection), self._waiting + ROUNDS * (TAKES + 1)
        while left > 0:
            size = min(left, limits.BATCH_JOBS_MAX)
            await jobs.submit([_JOB], [JobDraft(payload=b"{}")] * size)
            left -= size
        await connection.close()

    async def round(self) -> None:
        """One worker comes, takes some jobs one after the other, and goes."""
        work = BidWork(self._hosts, self._root, session_ms=SESSION_MS)
        session = await work.open(Introduction("measured", frozenset({_JOB.type})))
        self.first_s.append(await _take(session, 1))
        self.next_s += [await _take(session, number) for number in range(2, TAKES + 2)]
        await session.close()


async def _take(session: WorkSession, number: int) -> float:
    """How long it is from room to a job; the job is ended, too, and that is not counted."""
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
    """How many bytes a worker sends while there is nothing to do; all of it goes through a port of ours."""
    way = CountingWay(hosts.partition(",")[0])
    work = BidWork(await way.open(), "/measured/idle", session_ms=SESSION_MS)
    session = await work.open(Introduction("idle", frozenset({_JOB.type})))
    await session.want(1)
    await asyncio.sleep(3.0)  # until it stands in line
    way.forget()
    await asyncio.sleep(IDLE_S)
    sent = way.sent_bytes
    await session.close()
    await way.close()
    return sent


async def measure(hosts: str) -> None:
    """Prints the figures."""
    lines = [Measured(hosts, waiting) for waiting in WAITING]
    for one in lines:
        await one.fill()
    for _ in range(ROUNDS):  # in turns, so that what else goes on meets all alike
        for one in lines:
            await one.round()
    first, later = [[statistics.median(getattr(one, name)) for one in lines] for name in ("first_s", "next_s")]
    _say("waiting jobs      first job of a new worker   the next job")
    for waiting, first_s, next_s in zip(WAITING, first, later, strict=True):
        _say(f"{waiting:>12,}      {first_s / first[0]:>10.2f}                  {next_s / later[0]:>10.2f}")
    _say(
        f"ratios of medians of {ROUNDS} and {ROUNDS * TAKES}; 1 is {1e3 * first[0]:.1f} ms and {1e3 * later[0]:.1f} ms"
    )
    sent = await idle(hosts)
    _say(f"an idle worker sent {sent} bytes in {IDLE_S:g} s: {sent / PING_BYTES:g} pings of {PING_BYTES} bytes")


def main() -> int:
    """Starts the ensemble, measures, and leaves nothing."""
    with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as folder:
        servers = PrivateZooKeeper(Path(folder) / "zookeeper")
        hosts = servers.start()
        try:
            asyncio.run(measure(hosts))
        finally:
            servers.stop()
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
