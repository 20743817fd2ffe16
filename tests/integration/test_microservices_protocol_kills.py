"""Every call of every protocol as the last one before the coordinator dies, and as one that gets lost.

Each story is run once for each of its calls. The coordinator dies after that call (or the call is lost, before or after
it took effect), another one replaces it, and the worker continues as usual: it names the jobs that it holds, repeats
unanswered reports, and fetches. In the end every accepted job has ended once, with an envelope of the same status, and
acknowledged outcomes stand.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from holdfast.core.lifecycle import CANCELED, DONE, FAILED, TERMINAL, State
from holdfast.errors import UnavailableError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from tests.integration.microservices_world import Fault, World, world

SUCCEEDED, FAILED_OUTCOME = public_pb.JOB_OUTCOME_SUCCEEDED, public_pb.JOB_OUTCOME_FAILED
LEASE_MS = 4_000
#: In the world's time.
PATIENCE_S = 120


class Hand:
    """A worker that behaves like a real one, over any number of coordinators."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.held: dict[str, pb.FetchWorkResponse] = {}
        #: The reported outcome of each job without a response, and whether it is final.
        self.unanswered: dict[str, tuple[public_pb.JobOutcome, bool]] = {}
        self.runs: list[str] = []

    async def fetch(self) -> pb.FetchWorkResponse:
        work = await self.here.fetch()
        if work.assigned:
            self.held[work.job_id] = work
            self.runs.append(work.job_id)
        return work

    async def report(self, job_id: str, outcome: public_pb.JobOutcome = SUCCEEDED, *, is_final: bool = False) -> None:
        """Reports an outcome; it stays in `unanswered` until the coordinator responds."""
        self.unanswered[job_id] = outcome, is_final
        output = f"{self.held[job_id].token}".encode()
        await self.here.report(self.held[job_id], outcome, is_final=is_final, output_bytes=output)
        del self.unanswered[job_id], self.held[job_id]

    async def beat(self) -> None:
        answer = await self.here.beat(*self.held.values())
        for lease in answer.revoked:
            self.unanswered.pop(lease.job_id, None)
            self.held.pop(lease.job_id, None)

    async def finish(self, *job_ids: str) -> None:
        """Continues until all these jobs have ended."""
        for _ in range(PATIENCE_S):
            for step in (self.beat, self._repeat, self.fetch, self._repeat):
                try:
                    await step()
                except UnavailableError:
                    continue
            await self.here.pass_time(1_000)
            if all([await self.here.state(job_id) in TERMINAL for job_id in job_ids]):
                return
        raise AssertionError([str(await self.here.state(job_id)) for job_id in job_ids])

    async def _repeat(self) -> None:
        for job_id in list(self.held):
            outcome, is_final = self.unanswered.get(job_id, (SUCCEEDED, False))
            await self.report(job_id, outcome, is_final=is_final)


async def success(_here: World, hand: Hand, job_id: str) -> None:
    """A job runs and succeeds."""
    await hand.fetch()
    await hand.report(job_id)


async def retry(here: World, hand: Hand, job_id: str) -> None:
    """A job fails and is retried later."""
    await hand.fetch()
    await hand.report(job_id, FAILED_OUTCOME)
    await here.pass_time(4_000)
    await hand.fetch()
    await hand.report(job_id)


async def failure(_here: World, hand: Hand, job_id: str) -> None:
    """A job fails finally."""
    await hand.fetch()
    await hand.report(job_id, FAILED_OUTCOME, is_final=True)


async def cancel_running(here: World, hand: Hand, job_id: str) -> None:
    """A running job is canceled, and its worker stops it."""
    await hand.fetch()
    await here.jobs.cancel(job_id, "enough")
    await hand.beat()
    await hand.report(job_id, public_pb.JOB_OUTCOME_CANCELED)


async def cancel_between(here: World, hand: Hand, job_id: str) -> None:
    """A job is canceled after it was dequeued."""

    async def cancel(method: str, _request: object) -> None:
        if method == "TransitionJobStatus":
            here.faults.before = None
            await here.jobs.cancel(job_id, "in time")

    here.faults.before = cancel
    await hand.fetch()


async def cancel_nowhere(here: World, _hand: Hand, job_id: str) -> None:
    """A job in no queue is canceled, and the sweep ends it."""
    await here.queue.RemoveJobIfPresent(pb.RemoveJobIfPresentRequest(job_id=job_id))
    await here.jobs.cancel(job_id, "nowhere")
    await here.pass_time(9_000)


async def loss(here: World, hand: Hand, job_id: str) -> None:
    """A worker goes silent, returns, and its old token is refused."""
    await hand.fetch()
    await here.pass_time(LEASE_MS + 1_000)
    await hand.report(job_id)


async def last_loss(here: World, _hand: Hand, _job_id: str) -> None:
    """A job loses every worker."""
    for worker in ("first", "second", "third", "fourth"):
        await here.fetch(worker)
        await here.pass_time(LEASE_MS + 1_000)


async def lost_reply(here: World, hand: Hand, _job_id: str) -> None:
    """The response to a fetch does not arrive."""
    await here.fetch()
    for _ in range(4):
        await here.pass_time(1_000)
        await hand.beat()


async def release(here: World, hand: Hand, job_id: str) -> None:
    """A worker releases its job and leaves."""
    work = await hand.fetch()
    del hand.held[job_id]
    await here.beat(released=(work,))
    await here.beat(is_leaving=True)


async def sweep(here: World, hand: Hand, job_id: str) -> None:
    """The queue loses its waiting jobs."""
    await here.queue.RemoveJobIfPresent(pb.RemoveJobIfPresentRequest(job_id=job_id))
    await hand.fetch()
    await here.pass_time(9_000)
    await hand.fetch()
    await hand.report(job_id)


Story = Callable[[World, Hand, str], Awaitable[None]]


@dataclass(frozen=True)
class Tale:
    """A story, the least number of its changing calls, and its permitted ends."""

    story: Story
    calls: int
    ends: frozenset[State] = frozenset({DONE})
    has_losses: bool = False


TALES = {
    "success": Tale(success, 4),
    "retry": Tale(retry, 9),
    "failure": Tale(failure, 4, frozenset({DONE, FAILED})),
    "cancel running": Tale(cancel_running, 4, frozenset({DONE, CANCELED})),
    "cancel between": Tale(cancel_between, 4, frozenset({DONE, CANCELED})),
    "cancel nowhere": Tale(cancel_nowhere, 4, frozenset({CANCELED})),
    "loss": Tale(loss, 6, has_losses=True),
    "last loss": Tale(last_loss, 18, frozenset({DONE, FAILED}), has_losses=True),
    "lost reply": Tale(lost_reply, 4),
    "release": Tale(release, 4),
    "sweep": Tale(sweep, 6),
}


async def played(here: World, tale: Tale, number: int, fault: Fault) -> bool:
    """Runs a story with a fault at one call, completes it, and returns whether the fault occurred."""
    changing = 0

    def rule(_called: int, method: str, _request: object) -> Fault | None:
        nonlocal changing
        changing += method != "ListJobRecords"
        return fault if changing == number and method != "ListJobRecords" else None

    hand = Hand(here)
    job_id = await here.submit(max_attempts=3)
    await here.pass_time(2_500)
    await here.kill()
    here.faults.rule = rule
    with contextlib.suppress(UnavailableError, KeyError):  # the worker may not get the reply that the story expects
        await here.until_death(tale.story(here, hand, job_id))
    if fault is Fault.DEAD_AFTER:
        await here.kill()
    here.faults.rule = lambda _number, _method, _request: None
    here.faults.before = None
    await hand.finish(job_id)
    await here.check_ended(job_id)
    await check(here, hand, tale, job_id)
    return changing >= number


async def check(here: World, hand: Hand, tale: Tale, job_id: str) -> None:
    """Checks that the end is permitted, that nothing was counted twice, and that no lease is left."""
    state, record = await here.state(job_id), await here.record(job_id)
    assert state in tale.ends
    assert tale.has_losses or record.losses == 0
    assert record.failures <= 1
    if record.summary.cancel_requested and job_id not in hand.runs:
        assert state == CANCELED
    await here.pass_time(LEASE_MS + 1_000)
    assert not (await here.fetch()).assigned
    assert len(here.coordinator.table) == 0
    assert await here.state(job_id) == state


@pytest.mark.parametrize("fault", [Fault.DEAD_AFTER, Fault.LOST_AFTER, Fault.LOST_BEFORE], ids=lambda fault: fault.name)
@pytest.mark.parametrize("name", TALES)
async def test_story_ends_well_whichever_call_goes_wrong(name: str, fault: Fault) -> None:
    """Whichever call of a story fails, no accepted job is lost, and each ends once with a matching result."""
    tale = TALES[name]
    async with world() as here:
        number = 1
        while await asyncio.wait_for(played(here, tale, number, fault), 60):
            number += 1
        assert number > tale.calls
