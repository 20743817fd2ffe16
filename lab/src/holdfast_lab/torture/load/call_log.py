"""Records of a client's calls and their responses, and counters over all clients."""

import asyncio
import collections
from collections.abc import Awaitable, Coroutine, Sequence
from typing import TypeVar

import msgspec

from holdfast_lab.history.files import Writer, now_us
from holdfast_lab.history.records import TERMINAL, Answered, Asked, JobSnapshot, JobSpec, Lost, Refused
from holdfast_lab.torture.load.interfaces import (
    DEADLINE_S,
    JobOrder,
    LostError,
    Page,
    RefusedError,
    StrangeError,
    SubmitReply,
)

T = TypeVar("T")
_STRANGE_MAX = 50


class CallTally(msgspec.Struct):
    """Counters over all clients."""

    #: Jobs that were acknowledged, and jobs that a client saw ended.
    acknowledged: int = 0
    ended: int = 0
    lost: int = 0
    refused: int = 0
    #: The time of the last one of each, in monotonic microseconds.
    acknowledged_us: int = 0
    ended_us: int = 0
    #: Answered calls by name.
    answered: collections.Counter[str] = msgspec.field(default_factory=collections.Counter)
    strange: list[str] = msgspec.field(default_factory=list)


class CallLog:
    """The records of one client; `call` is a name as in `Run.calls`."""

    def __init__(self, client: str, via: str, writer: Writer, tally: CallTally) -> None:
        self._client = client
        self._via = via
        self._writer = writer
        self._tally = tally
        self._count = 0

    async def submit(self, orders: Sequence[JobOrder], asked: Awaitable[SubmitReply]) -> SubmitReply | None:
        """Returns the response to a submit; None if all of it was refused; `LostError` if the outcome is unknown."""
        op = self._ask("submit", asked, [order.wanted for order in orders])
        told = await self._outcome("submit", op, asked)
        if told is not None:
            self._writer.write(Answered(now_us(), op, told.ids, told.refusals, told.existing))
            fresh = sum(map(bool, told.ids)) - len(told.existing)
            if fresh:
                self._tally.acknowledged += fresh
                self._tally.acknowledged_us = now_us()
        return told

    async def look(
        self, call: str, job_id: str, asked: Awaitable[JobSnapshot], wait_s: float = 0.0
    ) -> JobSnapshot | None:
        """Returns a job as shown; None if the call was refused; state 0 if there is no result yet."""
        op = self._ask(call, asked, job_id=job_id, deadline_s=DEADLINE_S + wait_s)
        seen = await self._outcome(call, op, asked)
        if seen is not None:
            self._writer.write(Answered(now_us(), op, seen=[seen] if seen.state else []))
        return seen

    async def page(self, asked: Awaitable[Page]) -> Page | None:
        """Returns a page of a list; None if the call was refused."""
        op = self._ask("list", asked)
        page = await self._outcome("list", op, asked)
        if page is not None:
            self._writer.write(Answered(now_us(), op, seen=page.seen))
        return page

    async def retry(self, job_id: str, asked: Awaitable[str]) -> str | None:
        """Returns the id of the new job; None if the retry was refused."""
        op = self._ask("retry", asked, job_id=job_id)
        new_id = await self._outcome("retry", op, asked)
        if new_id is not None:
            self._writer.write(Answered(now_us(), op, [new_id]))
        return new_id

    async def do(self, call: str, asked: Awaitable[object], deadline_s: float = DEADLINE_S) -> bool:
        """Makes a call without data in its response; False if it was refused.

        A `deadline_s` of 0 means none: the call may consist of several requests.
        """
        op = self._ask(call, asked, deadline_s=deadline_s)
        is_done = await self._outcome(call, op, _done(asked)) is not None
        if is_done:
            self._writer.write(Answered(now_us(), op))
        return is_done

    def ended(self, seen: JobSnapshot) -> bool:
        """Whether a job has ended; counts it if so. Called only until it returns True."""
        if seen.state not in TERMINAL:
            return False
        self._tally.ended += 1
        self._tally.ended_us = now_us()
        return True

    def _ask(
        self,
        call: str,
        asked: Awaitable[object],
        wanted: Sequence[JobSpec] = (),
        job_id: str = "",
        deadline_s: float = DEADLINE_S,
    ) -> str:
        """Records the call before it is sent; if that fails, the call is not sent."""
        self._count += 1
        op = f"{self._client}/{self._count}"
        deadline_ms = round(deadline_s * 1_000)
        try:
            self._writer.write(Asked(now_us(), op, self._client, call, self._via, list(wanted), job_id, deadline_ms))
        except OSError:
            if isinstance(asked, Coroutine):
                asked.close()
            raise
        return op

    async def _outcome(self, call: str, op: str, asked: Awaitable[T]) -> T | None:
        try:
            answer = await _read(asked)
        except RefusedError as error:
            self._writer.write(Refused(now_us(), op, error.code, error.reason))
            self._tally.refused += 1
            return None
        except LostError as error:
            self._writer.write(Lost(now_us(), op, error.code, error.has_hint))
            self._tally.lost += 1
            if isinstance(error, StrangeError) and len(self._tally.strange) < _STRANGE_MAX:
                self._tally.strange.append(f"{self._via} {call} ({op}): {error}")
            raise
        except asyncio.CancelledError:
            self._writer.write(Lost(now_us(), op, "CANCELLED"))
            raise
        self._tally.answered[call] += 1
        return answer


async def _read(asked: Awaitable[T]) -> T:
    """Returns the response; one that cannot be decoded is not in the contract."""
    try:
        return await asked
    except (LookupError, TypeError, ValueError) as error:
        raise StrangeError("UNREADABLE", repr(error)) from error


async def _done(asked: Awaitable[object]) -> bool:
    await asked
    return True
