"""Cron leaders in processes of their own, killed and stopped at random instants.

The torture kills the processes of a whole pipeline, one of which leads. Here every process competes for the leadership
and does nothing else, so that each kill and each stop hits a leader between two ticks.
"""

import contextlib
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.core.model import ScheduleSpec, Template
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.e2e.campaign import kills_each, seed
from tests.e2e.wait_until import eventually, pause

SECOND = 1_000
KILLS, STOPS = kills_each(3), 2

#: Competes for the leadership until it is killed.
LEADER = """
import asyncio, sys
from holdfast.topologies.pipeline.backend.cron_leader import CronLeader
from holdfast.topologies.pipeline.postgres.database import open_store

async def main():
    async with await open_store(sys.argv[1], name=sys.argv[2]) as store:
        CronLeader(store.schedules, sys.argv[2], interval_s=0.05, lease_ms=400).start()
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


class Leaders:
    """Processes that compete to fire the same schedules."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._count = 0
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._looking = psycopg.connect(url, autocommit=True)

    def start(self) -> None:
        """Starts one more process."""
        self._count += 1
        name = f"leader{self._count}"
        command = [sys.executable, "-c", LEADER, self._url, name]
        self.running[name] = subprocess.Popen(command, stdin=subprocess.PIPE)

    def fired(self) -> list[int]:
        """The ticks that have fired."""
        rows = self._looking.execute("SELECT tick_ms FROM holdfast.ticks WHERE outcome = 'fired' ORDER BY tick_ms")
        return [row[0] for row in rows]

    def leader(self) -> str:
        """Waits until a running process leads and returns its name."""
        statement = "SELECT holder FROM holdfast.leaders WHERE lease_until_ms > holdfast.now_ms()"
        holders = eventually(lambda: [str(row[0]) for row in self._looking.execute(statement)], self._are_living)
        return holders[0]

    def _are_living(self, holders: list[str]) -> bool:
        return bool(holders) and self.running.keys() >= set(holders)

    def successor(self, stopped: str) -> str:
        """Waits until another process leads and returns its name."""
        return eventually(self.leader, lambda name: name != stopped)

    def fires_on(self, count: int) -> None:
        """Waits for more than `count` ticks."""
        eventually(self.fired, lambda ticks: len(ticks) > count)

    def kill(self, name: str) -> None:
        """Kills a process."""
        process = self.running.pop(name)
        process.kill()
        process.communicate()

    def connections(self) -> int:
        """The number of their open connections; a commit that was sent may take effect after its sender has died."""
        statement = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'leader%'"
        return len(self._looking.execute(statement).fetchall())

    def close(self) -> None:
        """Kills all processes and waits for the end of their transactions."""
        if self._looking.closed:
            return
        for name in list(self.running):
            with contextlib.suppress(ProcessLookupError):
                self.running[name].send_signal(signal.SIGCONT)
            self.kill(name)
        eventually(self.connections, lambda count: count == 0)
        self._looking.close()


@pytest.fixture
def leaders(store: PostgresStore, database: str) -> Iterator[Leaders]:
    """No processes yet, over a migrated database."""
    assert store.schedules
    leaders = Leaders(database)
    yield leaders
    leaders.close()


async def test_killed_and_stopped_leaders_lose_and_double_no_tick(store: PostgresStore, leaders: Leaders) -> None:
    """While leaders are killed and stopped, each second of the schedule gets exactly one job."""
    draw = random.Random(seed(6))
    deeds = ["kill"] * KILLS + ["stop"] * STOPS
    draw.shuffle(deeds)
    await store.schedules.set(ScheduleSpec("s", Template("work"), every_ms=SECOND))
    for _ in range(2):
        leaders.start()
    for deed in deeds:
        count = len(leaders.fired())
        name = leaders.leader()
        pause(draw.uniform(0, 0.3))  # a random instant
        if deed == "stop":
            leaders.running[name].send_signal(signal.SIGSTOP)
            leaders.successor(name)
            leaders.running[name].send_signal(signal.SIGCONT)
        else:
            leaders.kill(name)
            leaders.start()
        leaders.fires_on(count)
    view = await store.schedules.get("s")
    ticks = leaders.fired()
    leaders.close()
    assert ticks == [ticks[0] + number * SECOND for number in range(len(ticks))]
    assert (view.skipped, view.missed) == (0, 0)
    view = await store.schedules.get("s")
    jobs = await store.rows.page((), 0, 200, newest_first=False)
    assert (
        len(jobs.jobs)
        == view.fired
        == len({dict(job.extra.headers)["holdfast-scheduled-for"] for job in jobs.jobs if job.extra})
    )
