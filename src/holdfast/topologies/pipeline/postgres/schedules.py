"""`ScheduleStore` on PostgreSQL: schedules and the leadership. The rules are those of `core/ticks.py`.

Invariants:
- A tick is one transaction. Under the locks of the leadership and of its schedule it is inserted into `ticks`, creates
  its job, and advances the schedule. So it happens completely or not at all, and only once.
- All times come from the database's clock, together with the row that they are compared with.
"""

from typing import Any, TypeVar

import msgspec

from holdfast.core import ticks
from holdfast.core.commands import Refusal
from holdfast.core.model import NewJob, Schedule, ScheduleSpec
from holdfast.core.owner import mint
from holdfast.core.validation import check_name
from holdfast.errors import FailedPreconditionError, HoldfastError, UnavailableError
from holdfast.ledger.job_ids import RandomPool
from holdfast.ledger.views import schedule_view
from holdfast.ports import ScheduleView
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.backend.store import Leadership
from holdfast.topologies.pipeline.postgres.connections import Database, StoreConnection, Work
from holdfast.topologies.pipeline.postgres.inserts import InsertSubmission, ValidatedJob
from holdfast.topologies.pipeline.postgres.outcomes import cancel_one
from holdfast.topologies.pipeline.postgres.row_values import Row

_SQL = statements(__package__, "schedules")

#: How long the outcome of a tick is kept. Its schedule has advanced beyond it long before.
_KEEP_MS = 24 * 3_600_000
_PRUNE_EVERY = 50

#: The outcome for a tick that was processed before: only its schedule is advanced.
TAKEN = "taken"

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ScheduleSpec).decode


class _StoredSchedule(msgspec.Struct, frozen=True):
    """A schedule from its row, and the additional columns of the statement."""

    id: int
    schedule: Schedule
    more: Row

    @property
    def now_ms(self) -> int:
        return int(self.more[0])


class PostgresScheduleStore:
    """The store operations on schedules."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._random = RandomPool()

    # -- schedules

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """Allows one setter at a time, so that names and their number do not change between check and write."""

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
        """Returns the schedule as committed."""
        _check(name)

        async def ask(connection: StoreConnection) -> _StoredSchedule | None:
            return await _one(connection, "get", name)

        return schedule_view(_found(name, await self._database.ask(ask)).schedule)

    async def all(self) -> list[ScheduleView]:
        """Returns all schedules, by name."""

        async def ask(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "all")

        return [schedule_view(_kept(row).schedule) for row in await self._database.ask(ask)]

    async def delete(self, name: str) -> None:
        """Tries once: after a lost response it is unknown whether the schedule existed."""
        _check(name)

        async def work(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "delete", name=name)

        if not await self._database.ask(work, is_repeatable=False):
            raise _unknown(name)

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """Pauses or resumes a schedule; ticks during a pause are passed over."""
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
        """Generates the id first, so that a repeated transaction finds its own job."""
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

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """Computed by the database's clock; nothing is decided."""

        async def ask(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "now")

        ((now_ms,),) = await self._database.ask(ask)
        found = ticks.preview(spec, int(now_ms), after_ms, count)
        if isinstance(found, Refusal):
            raise found.error()
        return found

    # -- leadership and ticks

    async def lead(self, holder: str, lease_ms: int) -> Leadership | None:
        """Runs one statement, which does not wait for the current leader."""

        async def work(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "lead", holder=holder, lease_ms=lease_ms)

        rows = await self._database.ask(work)
        return Leadership(holder, rows[0][0]) if rows else None

    async def resign(self, leadership: Leadership) -> None:
        """Ends only this leadership; a later one of the same holder stays."""

        async def work(connection: StoreConnection) -> None:
            await connection.execute(_SQL["resign"], msgspec.structs.asdict(leadership))

        await self._database.ask(work)

    async def tick(self, leadership: Leadership) -> str:
        """Runs one transaction, and tries it once: the next call processes the tick that is due then."""

        async def work(connection: StoreConnection) -> str:
            ((is_leading, *due),) = await _rows(connection, "lock_due", **msgspec.structs.asdict(leadership))
            if not is_leading:
                message = f"{leadership.holder} is not the leader any more (epoch {leadership.epoch})"
                raise FailedPreconditionError(message, reason="NOT_LEADING")
            return "" if due[0] is None else await self._tick(connection, _kept(due), leadership.epoch)

        return await self._transact(work, is_repeatable=False)

    async def _tick(self, connection: StoreConnection, kept: _StoredSchedule, epoch: int) -> str:
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
        """Runs one transaction that sends its statements one by one.

        The server's idle timeout applies only between statements. Inside a batch the server would wait for a stalled
        process without a limit, and so would every transaction that needs the same locks.
        """

        async def within(connection: StoreConnection) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._database.ask(within, is_repeatable=is_repeatable)

    async def next_due_ms(self) -> int | None:
        """Reads the first entry of an index."""

        async def ask(connection: StoreConnection) -> list[Row]:
            return await _rows(connection, "next_due")

        rows = await self._database.ask(ask)
        return int(rows[0][0]) if rows else None


async def _begin(connection: StoreConnection) -> None:
    await connection.execute(_SQL["begin"])


async def _rows(connection: StoreConnection, statement: str, **arguments: Any) -> list[Row]:  # noqa: ANN401 - a statement's own
    cursor = await connection.execute(_SQL[statement], arguments, binary=True)
    return list(await cursor.fetchall())


async def _one(connection: StoreConnection, statement: str, name: str) -> _StoredSchedule | None:
    rows = await _rows(connection, statement, name=name)
    return _kept(rows[0]) if rows else None


async def _make(connection: StoreConnection, spec: ScheduleSpec, job: NewJob) -> None:
    """Inserts the job, or raises an error, which aborts the transaction."""
    intake = InsertSubmission([spec.template], {0: ValidatedJob(job.id, 0, job.payload, job.not_before_ms, job.extra)})
    await intake.make(connection)
    if not intake.is_settled:  # the queue was checked before, and drains only since then
        raise UnavailableError(f"the queue {spec.template.queue!r} has just begun to drain", reason="QUEUE_DRAINING")


def _kept(row: Row) -> _StoredSchedule:
    own_id, spec, created_ms, next_ms, last_tick_ms, last_job_id, fired, skipped, missed, is_paused, *more = row
    schedule = Schedule(
        _decode(spec), created_ms, next_ms, last_tick_ms, last_job_id, fired, skipped, missed, is_paused
    )
    return _StoredSchedule(own_id, schedule, more)


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


def _found(name: str, kept: _StoredSchedule | None) -> _StoredSchedule:
    if kept is None:
        raise _unknown(name)
    return kept


def _check(name: str) -> None:
    """Raises `NotFoundError` for a name that is not valid for a schedule."""
    if check_name("", name, "") is not None:
        raise _unknown(name)


def _unknown(name: str) -> HoldfastError:
    return ticks.unknown_schedule(name).error()
