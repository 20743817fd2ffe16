"""`Plans` over PostgreSQL: schedules, and who fires them. The rules are those of `core/ticks.py`.

Invariants:
- A tick is one transaction: under the locks of the leadership and of its schedule it is entered in `ticks`, makes its
  job, and moves the schedule on. So it happens whole or not at all, and nobody can do it again.
- Every instant is the database's: it comes with the row that it is compared with.
"""

from typing import Any, TypeVar

import msgspec

from holdfast.core import ticks
from holdfast.core.model import NewJob, Schedule, ScheduleSpec
from holdfast.core.owner import mint
from holdfast.core.validation import check_name
from holdfast.errors import FailedPreconditionError, HoldfastError, UnavailableError
from holdfast.ledger.job_ids import RandomPool
from holdfast.ledger.views import schedule_view
from holdfast.ports import ScheduleView
from holdfast.topologies.pipeline.backend.store import Leadership
from holdfast.topologies.pipeline.postgres.connections import Database, StoreConnection, Work
from holdfast.topologies.pipeline.postgres.inserts import InsertIntake, New
from holdfast.topologies.pipeline.postgres.outcomes import cancel_one
from holdfast.topologies.pipeline.postgres.row_values import Row
from holdfast.topologies.pipeline.postgres.statements import statements

_SQL = statements("plans")

#: How long it is kept what became of a tick. Long before, its schedule is past it.
_KEEP_MS = 24 * 3_600_000
_PRUNE_EVERY = 50

#: A tick that somebody has done before: its schedule moves on, and that is all.
TAKEN = "taken"

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ScheduleSpec).decode


class _Kept(msgspec.Struct, frozen=True):
    """A schedule as its row says, and what came along with it."""

    id: int
    schedule: Schedule
    more: Row

    @property
    def now_ms(self) -> int:
        return int(self.more[0])


class PostgresPlans:
    """What schedulers ask of schedules."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._random = RandomPool()

    # -- schedules

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """One setter at a time, so that names and their number hold while they are looked at."""

        async def work(connection: StoreConnection) -> None:
            await _begin(connection)
            await connection.execute(_SQL["one_setter"])
            kept = await _one(connection, "lock", spec.name) if check_name("", spec.name, "") is None else None
            known = kept.schedule if kept else None
            if ticks.is_planned(known, spec):
                return
            ((count, now_ms),) = await _rows(connection, "count")
            refusal = ticks.check_plan(spec, now_ms, is_new=known is None, count=count)
            if refusal is not None:
                raise refusal.error()
            next_ms = ticks.planned(known, spec, now_ms)
            await connection.execute(_SQL["set"], _columns(spec, now_ms, next_ms))

        await self._transact(work)
        return await self.get(spec.name)

    async def get(self, name: str) -> ScheduleView:
        """As committed."""
        _check(name)

        async def ask(connection: StoreConnection) -> _Kept | None:
            return await _one(connection, "get", name)

        return schedule_view(_found(name, await self._database.ask(ask)).schedule)

    async def all(self) -> list[ScheduleView]:
        """By name."""

        async def ask(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "all")

        return [schedule_view(_kept(row).schedule) for row in await self._database.ask(ask)]

    async def delete(self, name: str) -> None:
        """Once: after a lost answer it is unknown whether it was there."""
        _check(name)

        async def work(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "delete", name=name)

        if not await self._database.ask(work, is_repeatable=False):
            raise _unknown(name)

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """What falls into a pause is passed over."""
        _check(name)

        async def work(connection: StoreConnection) -> None:
            await _begin(connection)
            kept = _found(name, await _one(connection, "lock", name))
            schedule = kept.schedule
            if schedule.is_paused != is_paused:
                next_ms = schedule.next_ms if is_paused else ticks.resumed(schedule, kept.now_ms)
                await connection.execute(_SQL["pause"], {"name": name, "is_paused": is_paused, "next_ms": next_ms})

        await self._transact(work)
        return await self.get(name)

    async def trigger(self, name: str) -> str:
        """The id is made first: a repeated transaction finds its own job."""
        _check(name)
        (job_id,) = mint(self._random, 1)

        async def work(connection: StoreConnection) -> None:
            await _begin(connection)
            kept = _found(name, await _one(connection, "lock", name))
            spec = kept.schedule.spec
            if kept.schedule.last_job_id == job_id:
                return
            if await _rows(connection, "is_draining", queue=spec.template.queue):
                raise ticks.draining_queue(spec.template.queue).error()
            await _make(connection, spec, ticks.job_of_trigger(spec, kept.now_ms, job_id))
            await connection.execute(_SQL["triggered"], {"id": kept.id, "job_id": job_id})

        await self._transact(work)
        return job_id

    async def now_ms(self) -> int:
        """The database's clock."""

        async def ask(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "now")

        ((now_ms,),) = await self._database.ask(ask)
        return int(now_ms)

    # -- who fires them

    async def lead(self, holder: str, lease_ms: int) -> Leadership | None:
        """One statement; it does not wait for whoever leads."""

        async def work(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "lead", holder=holder, lease_ms=lease_ms)

        rows = await self._database.ask(work)
        return Leadership(holder, rows[0][0]) if rows else None

    async def resign(self, leadership: Leadership) -> None:
        """Only this leadership: a later one of the same holder stays."""

        async def work(connection: StoreConnection) -> None:
            await connection.execute(_SQL["resign"], msgspec.structs.asdict(leadership))

        await self._database.ask(work)

    async def tick(self, leadership: Leadership) -> str:
        """One transaction, tried once: whoever asks again finds what is due then."""

        async def work(connection: StoreConnection) -> str:
            ((is_leading, *due),) = await _rows(connection, "lock_due", **msgspec.structs.asdict(leadership))
            if not is_leading:
                message = f"{leadership.holder} does not lead any more (epoch {leadership.epoch})"
                raise FailedPreconditionError(message, reason="NOT_LEADING")
            return "" if due[0] is None else await self._tick(connection, _kept(due), leadership.epoch)

        return await self._transact(work, is_repeatable=False)

    async def _tick(self, connection: StoreConnection, kept: _Kept, epoch: int) -> str:
        schedule, (now_ms, is_draining, is_busy) = kept.schedule, kept.more
        spec, due = schedule.spec, ticks.due_tick(schedule, now_ms)
        job: NewJob | None = None
        if due.is_missed:
            outcome = ticks.MISSED
        elif ticks.is_skipped(spec, is_busy=is_busy, is_draining=is_draining):
            outcome = ticks.SKIPPED
        else:
            outcome, (job_id,) = ticks.FIRED, mint(self._random, 1)
            job = ticks.job_of_tick(spec, due.tick_ms, job_id)
        facts = {"id": kept.id, "epoch": epoch, "now": now_ms, "outcome": outcome, "job_id": job.id if job else None}
        plan = {"tick_ms": due.tick_ms, "next_ms": due.next_ms, "missed": due.missed}
        ((is_entered,),) = await _rows(connection, "tick", **facts, **plan)
        if not is_entered:
            return TAKEN
        if job is not None:
            if ticks.is_canceling(spec, is_busy=is_busy):
                await cancel_one(connection, schedule.last_job_id, ticks.cancel_reason(spec.name))
            await _make(connection, spec, job)
        if (schedule.fired + schedule.skipped) % _PRUNE_EVERY == 0:
            await connection.execute(_SQL["prune"], {"before": now_ms - _KEEP_MS})
        return outcome

    async def _transact(self, work: Work[T], *, is_repeatable: bool = True) -> T:
        """One transaction whose statements go one by one: only between statements does the server's patience run out.

        In the middle of a batch it waits for ever for a process that stands still, and so would everybody else.
        """

        async def within(connection: StoreConnection) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._database.ask(within, is_repeatable=is_repeatable)

    async def next_due_ms(self) -> int | None:
        """From the index."""

        async def ask(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "next_due")

        rows = await self._database.ask(ask)
        return int(rows[0][0]) if rows else None


async def _begin(connection: StoreConnection) -> None:
    await connection.execute(_SQL["begin"])


async def _rows(connection: StoreConnection, statement: str, **arguments: Any) -> list[Row]:  # noqa: ANN401 - a statement's own
    cursor = await connection.execute(_SQL[statement], arguments, binary=True)
    return list(await cursor.fetchall())


async def _one(connection: StoreConnection, statement: str, name: str) -> _Kept | None:
    rows = await _rows(connection, statement, name=name)
    return _kept(rows[0]) if rows else None


async def _make(connection: StoreConnection, spec: ScheduleSpec, job: NewJob) -> None:
    """Makes the job, or ends the transaction."""
    intake = InsertIntake([spec.template], {0: New(job.id, 0, job.payload, job.not_before_ms, job.extra)})
    await intake.make(connection)
    if not intake.is_settled:  # since it was looked at
        raise UnavailableError(f"the queue {spec.template.queue!r} has just begun to drain", reason="QUEUE_DRAINING")


def _kept(row: Row) -> _Kept:
    own_id, spec, created_ms, next_ms, last_tick_ms, last_job_id, fired, skipped, missed, is_paused, *more = row
    schedule = Schedule(
        _decode(spec), created_ms, next_ms, last_tick_ms, last_job_id, fired, skipped, missed, is_paused
    )
    return _Kept(own_id, schedule, more)


def _columns(spec: ScheduleSpec, now_ms: int, next_ms: int) -> dict[str, Any]:
    return {
        "name": spec.name,
        "spec": _encode(spec),
        "type": spec.template.type,
        "queue": spec.template.queue,
        "cron": spec.cron,
        "timezone": spec.timezone,
        "every_ms": spec.every_ms,
        "at_ms": spec.at_ms,
        "now": now_ms,
        "next_ms": next_ms,
    }


def _found(name: str, kept: _Kept | None) -> _Kept:
    if kept is None:
        raise _unknown(name)
    return kept


def _check(name: str) -> None:
    """No schedule has a name that none may have."""
    if check_name("", name, "") is not None:
        raise _unknown(name)


def _unknown(name: str) -> HoldfastError:
    return ticks.unknown_schedule(name).error()
