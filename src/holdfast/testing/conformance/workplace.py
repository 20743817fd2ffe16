"""The environment of a test: one backend, unique names, and workers driven by hand."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from holdfast.core.capabilities import Capability
from holdfast.core.commands import ReportRow, Submitted
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, State
from holdfast.core.model import Extra, Template
from holdfast.core.workers import beat_ms
from holdfast.errors import HoldfastError
from holdfast.ports import (
    AdminApi,
    Assignment,
    Directive,
    FeedApi,
    Introduction,
    JobApi,
    JobDraft,
    JobView,
    ScheduleApi,
)
from holdfast.ports import WorkSession as Session
from holdfast.testing.conformance.harness import Harness

#: Time limit of every wait, so that a failing test does not hang.
PATIENCE_S = 60.0
_PAUSE_S = 0.01

T = TypeVar("T")


class Hand:
    """One worker, driven by hand. It keeps the changes that it has received until the test reads them."""

    def __init__(self, worker_id: str, session: Session) -> None:
        self.worker_id = worker_id
        self.session = session
        self.welcome = Directive()
        self.cancels: list[int] = []
        self.revoked: list[int] = []
        self.is_drained = False
        self.is_drain_asked = False
        self.is_stopping = False
        self._leases: list[Assignment] = []
        self._reported = 0
        self._report_id = 0

    async def until(self, is_heard: Callable[[], bool]) -> None:
        """Receives directives until the condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_heard():
                self._hear(await self.session.next())

    async def until_beating(self, is_heard: Callable[[], bool]) -> None:
        """Like `until`, but with heartbeats: a worker without an event stream receives cancels in their answers."""
        beating = asyncio.create_task(self._beat())
        try:
            await self.until(is_heard)
        finally:
            beating.cancel()
            await asyncio.wait([beating])

    async def _beat(self) -> None:
        while True:
            await self.session.extend()
            await asyncio.sleep(beat_ms(self.welcome.heartbeat_ms, self.welcome.lease_ms) / 1_000)

    def _hear(self, directive: Directive) -> None:
        if directive.lease_ms:
            self.welcome = directive
        self._leases += directive.leases
        self.cancels += directive.cancels
        self.revoked += directive.revoked
        self.is_drained |= directive.is_drained
        self.is_drain_asked |= directive.is_drain_asked
        self.is_stopping |= directive.is_stopping
        self._reported = max(self._reported, directive.reported)

    async def take(self, count: int = 1) -> list[Assignment]:
        """Requests `count` leases and waits for them."""
        await self.session.want(count)
        return await self.leases(count)

    async def take_in_turn(self, count: int) -> list[Assignment]:
        """Requests `count` leases one after another, and returns them in the order in which they were granted."""
        return [lease for _ in range(count) for lease in await self.take()]

    async def leases(self, count: int = 1) -> list[Assignment]:
        """Waits for `count` leases that were requested before."""
        await self.until(lambda: len(self._leases) >= count)
        found, self._leases = self._leases[:count], self._leases[count:]
        return found

    async def rest(self) -> list[Assignment]:
        """Drains the session, and returns the leases that were granted before; no more can follow."""
        await self.session.drain()
        await self.until(lambda: self.is_drained)
        found, self._leases = self._leases, []
        return found

    async def report(self, *rows: ReportRow) -> None:
        """Reports outcomes, and waits until they are durable."""
        self._report_id += 1
        wanted = self._report_id
        await self.session.report(wanted, rows)
        await self.until(lambda: self._reported >= wanted)

    async def done(self, lease: Assignment, output: bytes = b"") -> None:
        """Reports that the job is done."""
        await self.report(ReportRow(lease.job_id, lease.token, DONE, output))

    async def failed(self, lease: Assignment, reason: str = "it broke", *, is_retryable: bool = True) -> None:
        """Reports that the attempt failed."""
        row = ReportRow(lease.job_id, lease.token, FAILED, failure_reason=reason, is_retryable=is_retryable)
        await self.report(row)

    async def canceled(self, lease: Assignment) -> None:
        """Reports that the attempt was stopped."""
        await self.report(ReportRow(lease.job_id, lease.token, CANCELED))


class Workplace:
    """One backend, as one test sees it."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        own = uuid.uuid4().hex[:12]
        #: Names that no other test uses.
        self.queue = f"queue-{own}"
        self.type = f"type-{own}"
        self._hands: list[Hand] = []

    @property
    def jobs(self) -> JobApi:
        return self.harness.jobs

    @property
    def admin(self) -> AdminApi:
        return self.harness.admin

    @property
    def feed(self) -> FeedApi:
        return self.harness.feed

    @property
    def schedules(self) -> ScheduleApi:
        return self.harness.schedules

    def name(self, what: str) -> str:
        """A name that only this test uses."""
        return f"{what}-{self.type}"

    def template(self, **fields: object) -> Template:
        """A template with the type and queue of this test."""
        return msgspec.structs.replace(Template(self.type, self.queue), **fields)

    async def submit(self, payload: bytes = b"", *, extra: Extra | None = None, **fields: object) -> str:
        """Submits a job, and returns its id."""
        draft = JobDraft(payload=payload, extra=extra)
        return accepted(await self.jobs.submit([self.template(**fields)], [draft]))[0]

    async def submit_draft(self, draft: JobDraft, **fields: object) -> Submitted:
        """Submits one draft, and returns the answer."""
        return await self.jobs.submit([self.template(**fields)], [draft])

    async def submit_many(self, count: int, **fields: object) -> list[str]:
        """Submits jobs in one batch, and returns their ids in order."""
        drafts = [JobDraft(payload=str(number).encode()) for number in range(count)]
        return accepted(await self.jobs.submit([self.template(**fields)], drafts))

    async def worker(
        self,
        name: str = "w",
        *,
        types: Sequence[str] = (),
        queues: Sequence[str] = (),
        slots: int = 1,
        held: dict[int, str] | None = None,
    ) -> Hand:
        """Opens the session of a worker, by default for the type of this test, and waits for the first directive."""
        worker_id = self.name(name)
        introduction = Introduction(
            worker_id, frozenset(types or (self.type,)), frozenset(queues), slots, held if held is not None else {}
        )
        hand = Hand(worker_id, await self.harness.work.open(introduction))
        self._hands.append(hand)
        await hand.until(lambda: hand.welcome.lease_ms > 0)
        return hand

    async def run(self, hand: Hand, payload: bytes = b"", output: bytes = b"") -> str:
        """Submits a job that this worker does, and returns its id."""
        job_id = await self.submit(payload)
        (lease,) = await hand.take()
        await hand.done(lease, output)
        return job_id

    async def reached(self, job_id: str, state: State) -> JobView:
        """Waits until the job is in this state, and returns it."""
        async with asyncio.timeout(PATIENCE_S):
            async for job in self.jobs.watch(job_id):
                if job.state == state:
                    return job
        raise AssertionError(f"the job ended without being {state.name}")

    async def gone(self, hand: Hand) -> None:
        """Closes a session, and waits until the backend no longer lists its worker, which may take longer."""
        await hand.session.close()
        if Capability.ADMINISTRATION in self.harness.declared.present:
            await eventually(self.admin.workers, lambda views: all(view.worker_id != hand.worker_id for view in views))

    async def leave(self) -> None:
        """Closes every session that the test has opened."""
        for hand in self._hands:
            with contextlib.suppress(HoldfastError):
                await hand.session.close()


def accepted(submitted: Submitted) -> list[str]:
    """Returns the ids of a submission, and asserts that nothing was refused."""
    assert submitted.refusals == {}
    return submitted.job_ids


async def eventually(read: Callable[[], Awaitable[T]], is_right: Callable[[T], object]) -> T:
    """Reads until the value is right: for values that a backend updates later than its last answer."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_right(value := await read()):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(_PAUSE_S)
    return value


async def soon(waiting: AsyncIterator[T]) -> T:
    """Returns the next item of an endless iterator, with a time limit."""
    async with asyncio.timeout(PATIENCE_S):
        return await anext(waiting)
