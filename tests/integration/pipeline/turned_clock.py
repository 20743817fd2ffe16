"""A database whose clock a test moves, and schedules over it."""

from datetime import UTC, datetime

import psycopg

from holdfast.core.lifecycle import State
from holdfast.core.model import ScheduleSpec, Template
from holdfast.ports import JobView, ScheduleView
from holdfast.topologies.pipeline.postgres.database import PostgresStore

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000)

_TURNED = """
CREATE TABLE holdfast.turned_clock (ms bigint NOT NULL);
INSERT INTO holdfast.turned_clock VALUES (0);
CREATE OR REPLACE FUNCTION holdfast.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT ms FROM holdfast.turned_clock $$;
"""


class TurnedClock:
    """Replaces the database's clock; it stands still until the test moves it."""

    def __init__(self, url: str, at_ms: int = START) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(_TURNED.encode())
        self.now_ms = at_ms
        self.turn(0)

    def turn(self, ms: int) -> None:
        """Moves the clock forwards, or backwards."""
        self.now_ms += ms
        self._connection.execute("UPDATE holdfast.turned_clock SET ms = %s", [self.now_ms])

    def close(self) -> None:
        """Closes the connection; the clock keeps its time."""
        self._connection.close()


class Clockwork:
    """Schedules, a leader that fires them, and a clock that the test moves."""

    def __init__(self, store: PostgresStore, clock: TurnedClock) -> None:
        self.store, self.schedules, self.clock = store, store.schedules, clock

    async def set(self, **fields: object) -> ScheduleView:
        """Sets the schedule `s`."""
        return await self.schedules.set(ScheduleSpec("s", Template("work"), **fields))  # type: ignore[arg-type]

    async def fire(self) -> list[str]:
        """Fires all due ticks and returns their outcomes."""
        leadership = await self.schedules.lead("me", MINUTE)
        assert leadership is not None
        outcomes = []
        while outcome := await self.schedules.tick(leadership):
            outcomes.append(outcome)
        return outcomes

    async def advance(self, ms: int) -> list[str]:
        """Moves the clock in one step, fires all due ticks and returns their outcomes."""
        self.clock.turn(ms)
        return await self.fire()

    async def jobs(self) -> list[JobView]:
        """All jobs in their order of creation."""
        return (await self.store.rows.page(list(State), 0, 200, newest_first=False)).jobs


def told(job: JobView) -> str:
    """The tick in the headers of a job."""
    assert job.extra is not None
    return dict(job.extra.headers)["holdfast-scheduled-for"]
