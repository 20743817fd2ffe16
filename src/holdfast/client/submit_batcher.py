"""Submissions that travel together: one request carries what has come while others were on their way.

Invariants: every draft that is sent has an id, so that a request may be repeated without making a job twice; whoever
submitted hears of its own jobs alone, as if it had been alone; what one submission is refused for costs no other.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from holdfast import limits
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.core.owner import mint
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ports import JobDraft

Send = Callable[[Sequence[Template], Sequence[JobDraft]], Awaitable[Submitted]]

#: More requests than the first number at a time would make each of them smaller, and nothing quicker; unless so many
#: drafts wait that another one is worth it. There are never more than the second number.
_UNDER_WAY = 2
_UNDER_WAY_MAX = 4
_WORTH_DRAFTS = 250


class _Submission:
    """What one caller wants accepted."""

    __slots__ = ("answer", "drafts", "fresh", "size", "templates")

    def __init__(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> None:
        self.templates = templates
        #: The ids that were made here.
        self.fresh: set[str] = set()
        self.drafts = drafts if all(draft.id for draft in drafts) else self._with_ids(drafts)
        self.size = sum(len(draft.payload) for draft in drafts)
        self.answer: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()

    def _with_ids(self, drafts: Sequence[JobDraft]) -> list[JobDraft]:
        ids = iter(mint(os.urandom, sum(not draft.id for draft in drafts)))
        return [draft if draft.id else self._with_id(draft, next(ids)) for draft in drafts]

    def _with_id(self, draft: JobDraft, job_id: str) -> JobDraft:
        self.fresh.add(job_id)
        return msgspec.structs.replace(draft, id=job_id)

    @property
    def is_plain(self) -> bool:
        """Whether it can travel with others: its drafts name templates that are there."""
        return all(0 <= draft.template < len(self.templates) for draft in self.drafts)

    def settle(self, submitted: Submitted, start: int = 0) -> None:
        """Its part of an answer. A job under an id that was made here was never there before: it was sent twice."""
        if self.answer.done():
            return
        count = len(self.drafts)
        ids = submitted.job_ids[start : start + count]
        self.answer.set_result(
            Submitted(
                ids,
                submitted.at_ms,
                {at - start: why for at, why in submitted.refusals.items() if start <= at < start + count},
                frozenset(
                    at - start
                    for at in submitted.existing
                    if start <= at < start + count and not self._is_own(at - start, ids)
                ),
            )
        )

    def _is_own(self, at: int, ids: Sequence[str]) -> bool:
        """Whether a draft found nobody's job but its own."""
        return ids[at] in self.fresh and ids[at] == self.drafts[at].id

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Joiner:
    """Sends submissions; `close` when nobody submits any more."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[_Submission] = deque()
        self._drafts = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_going = False
        self._is_closed = False

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """The answer to these drafts."""
        submission = _Submission(templates, drafts)
        self._waiting.append(submission)
        self._drafts += len(submission.drafts)
        if not self._is_going:
            # Not at once: what comes in the same turn of the loop travels together.
            self._is_going = True
            asyncio.get_running_loop().call_soon(self._go_on)
        try:
            return await submission.answer
        except asyncio.CancelledError:
            if submission in self._waiting:  # nobody wants it any more, and it was not sent
                self._waiting.remove(submission)
                self._drafts -= len(submission.drafts)
            raise

    async def close(self) -> None:
        """What is under way is given up as unanswered, and nothing else is sent."""
        self._is_closed = True
        for task in tuple(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._give_up()

    def _give_up(self) -> None:
        while self._waiting:
            self._waiting.popleft().fail(_stopping())

    def _go_on(self) -> None:
        self._is_going = False
        if self._is_closed:
            self._give_up()
        while self._waiting and len(self._under_way) < (
            _UNDER_WAY_MAX if self._drafts >= _WORTH_DRAFTS else _UNDER_WAY
        ):
            task = asyncio.create_task(self._carry(self._together()))
            self._under_way.add(task)
            task.add_done_callback(self._arrived)

    def _arrived(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._go_on()

    def _together(self) -> list[_Submission]:
        """What waits, in its order, as far as it fits into one request."""
        joined = [self._waiting.popleft()]
        count, size, is_plain = len(joined[0].drafts), joined[0].size, joined[0].is_plain
        while is_plain and self._waiting:
            following = self._waiting[0]
            count, size = count + len(following.drafts), size + following.size
            if count > limits.BATCH_JOBS_MAX or size > limits.BATCH_BYTES_MAX or not following.is_plain:
                break
            joined.append(self._waiting.popleft())
        self._drafts -= sum([len(one.drafts) for one in joined])
        return joined

    async def _carry(self, joined: list[_Submission]) -> None:
        try:
            if len(joined) == 1:
                await self._carry_alone(joined[0])
            else:
                await self._carry_together(joined)
        except asyncio.CancelledError:
            for submission in joined:
                submission.fail(_stopping())
            raise
        except Exception as error:  # noqa: BLE001 - whoever waits hears of it, whatever it is
            for submission in joined:
                submission.fail(error)

    async def _carry_alone(self, submission: _Submission) -> None:
        try:
            submission.settle(await self._send(submission.templates, submission.drafts))
        except HoldfastError as error:
            submission.fail(error)

    async def _carry_together(self, joined: list[_Submission]) -> None:
        templates: dict[Template, int] = {}
        drafts: list[JobDraft] = []
        for one in joined:
            places = [templates.setdefault(template, len(templates)) for template in one.templates]
            drafts += [_at(draft, places[draft.template]) for draft in one.drafts]
        try:
            submitted = await self._send(list(templates), drafts)
        except HoldfastError as error:
            for one in joined:
                if error.retryable:
                    one.fail(error)
                else:  # of one of them, and the others are not to blame
                    await self._carry_alone(one)
        else:
            start = 0
            for one in joined:
                one.settle(submitted, start)
                start += len(one.drafts)


def _stopping() -> UnavailableError:
    return UnavailableError("this process stops; try again", reason="STOPPING")


def _at(draft: JobDraft, place: int) -> JobDraft:
    return draft if draft.template == place else msgspec.structs.replace(draft, template=place)
