"""Batching of submits: submits that arrive while others are in flight share one request.

Invariants: every draft that is sent has an id, so that a request can be retried without creating a job twice; a caller
gets the answer about its own jobs only; a refusal of one submit does not affect the others.
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

#: At most this many requests are in flight: more would only make each of them smaller. If at least `_WORTH_DRAFTS`
#: drafts wait, up to `_UNDER_WAY_MAX` requests are sent.
_UNDER_WAY = 2
_UNDER_WAY_MAX = 4
_WORTH_DRAFTS = 250


class _Submission:
    """The submit of one caller."""

    __slots__ = ("answer", "drafts", "fresh", "size", "templates")

    def __init__(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> None:
        self.templates = templates
        #: The ids that were created here.
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
        """Whether it can share a request: all its drafts refer to existing templates."""
        return all(0 <= draft.template < len(self.templates) for draft in self.drafts)

    def settle(self, submitted: Submitted, start: int = 0) -> None:
        """Takes its part of an answer. An existing job with an id from here was created by an earlier try of it."""
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
        """Whether the existing job of a draft was created by the draft itself."""
        return ids[at] in self.fresh and ids[at] == self.drafts[at].id

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class SubmitBatcher:
    """Sends submits in batches. Close it after the last submit."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[_Submission] = deque()
        self._drafts = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_going = False
        self._is_closed = False

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits these drafts and returns their answer."""
        submission = _Submission(templates, drafts)
        self._waiting.append(submission)
        self._drafts += len(submission.drafts)
        if not self._is_going:
            # Not immediately, so that submits of the same iteration of the event loop share a request.
            self._is_going = True
            asyncio.get_running_loop().call_soon(self._go_on)
        try:
            return await submission.answer
        except asyncio.CancelledError:
            if submission in self._waiting:  # canceled before it was sent
                self._waiting.remove(submission)
                self._drafts -= len(submission.drafts)
            raise

    async def close(self) -> None:
        """Fails all unanswered submits, and sends nothing more."""
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
        """Takes the waiting submits, in order, that fit into one request."""
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
        except Exception as error:  # noqa: BLE001 - every error is passed to the callers
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
                else:  # caused by one of them: send each alone
                    await self._carry_alone(one)
        else:
            start = 0
            for one in joined:
                one.settle(submitted, start)
                start += len(one.drafts)


def _stopping() -> UnavailableError:
    return UnavailableError("this process is stopping; try again", reason="STOPPING")


def _at(draft: JobDraft, place: int) -> JobDraft:
    return draft if draft.template == place else msgspec.structs.replace(draft, template=place)
