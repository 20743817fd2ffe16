"""Submitting over two owners, with each of its steps as the last one that works."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from holdfast.core.lifecycle import QUEUED, RUNNING
from holdfast.core.model import Extra, Template
from holdfast.errors import Code, NotFoundError, UnavailableError
from holdfast.ports import JobDraft
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.grpc.status import Context, answered
from tests.unit.backends.microservices_here import ServicesHere, services_here

TEMPLATE = Template("brew")
ONCE = JobDraft(payload=b"x", extra=Extra(request_id="once"))

Meanwhile = Callable[[pb.EnqueueJobRequest], Awaitable[None]]


class UnsureQueue(rpc.QueueInternalServiceServicer):
    """Does something else first, and then does not say whether it has enqueued."""

    def __init__(self, meanwhile: Meanwhile) -> None:
        self._meanwhile = meanwhile

    @answered
    async def EnqueueJob(  # noqa: N802 - a method of the contract
        self, request: pb.EnqueueJobRequest, context: Context
    ) -> pb.EnqueueJobResponse:
        """Takes effect somewhere, perhaps."""
        await self._meanwhile(request)
        raise UnavailableError("lost on the way")


class SlowQueue(rpc.QueueInternalServiceServicer):
    """The real queue, which waits until it is told to go on."""

    def __init__(self, services: ServicesHere) -> None:
        self._queue = services.queue_service
        self.begun, self.go_on, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.job_id = ""

    async def EnqueueJob(  # noqa: N802 - a method of the contract
        self, request: pb.EnqueueJobRequest, context: Context
    ) -> pb.EnqueueJobResponse:
        """Enqueues in the end."""
        self.job_id = request.job_id
        self.begun.set()
        await self.go_on.wait()
        answer = await self._queue.EnqueueJob(request, context)
        self.ended.set()
        return answer


@pytest.fixture
async def services() -> AsyncIterator[ServicesHere]:
    async with services_here() as services:
        yield services


async def is_waiting(services: ServicesHere, job_id: str) -> bool:
    """Whether it was in the queue; it is not any more."""
    request = pb.RemoveJobIfPresentRequest(job_id=job_id)
    return (await services.owners.queue.remove(request)).removed


async def unsure(services: ServicesHere, meanwhile: Meanwhile) -> None:
    """From now on nobody hears whether an enqueue has worked."""
    await services.queue.stop()
    await services.queue.start(UnsureQueue(meanwhile))


async def test_submit_that_cannot_be_enqueued_leaves_nothing_behind(services: ServicesHere) -> None:
    """The record goes again, and its request id with it, so that a later submit makes a new job."""
    jobs, seen = services.jobs(), list[str]()

    async def note(request: pb.EnqueueJobRequest) -> None:
        seen.append(request.job_id)

    await unsure(services, note)
    with pytest.raises(UnavailableError):
        await jobs.submit([TEMPLATE], [ONCE])
    with pytest.raises(NotFoundError):
        await jobs.get(seen[0])
    await services.queue.stop()
    await services.queue.start()
    submitted = await jobs.submit([TEMPLATE], [ONCE])
    assert (submitted.existing, submitted.refusals) == (frozenset(), {})
    assert submitted.job_ids[0] not in seen
    assert await is_waiting(services, submitted.job_ids[0])


async def test_submit_is_refused_while_nobody_is_at_the_queue(services: ServicesHere) -> None:
    """A queue that is not there is told from a job that is wrong, item by item."""
    await services.queue.stop()
    submitted = await services.jobs().submit([TEMPLATE], [ONCE, JobDraft(template=5)])
    assert submitted.job_ids == ["", ""]
    assert [submitted.refusals[index].code for index in (0, 1)] == [Code.UNAVAILABLE, Code.INVALID_ARGUMENT]


async def test_job_that_was_taken_before_it_could_be_undone_is_accepted(services: ServicesHere) -> None:
    """A deletion that finds the job RUNNING proves that the enqueue had worked."""

    async def take(request: pb.EnqueueJobRequest) -> None:
        move = pb.TransitionJobStatusRequest(
            job_id=request.job_id,
            expected_from_status=public_pb.QUEUED,
            to_status=public_pb.RUNNING,
            worker_id="w",
        )
        await services.owners.job.move(move)

    await unsure(services, take)
    submitted = await services.jobs().submit([TEMPLATE], [ONCE])
    assert submitted.refusals == {}
    assert (await services.jobs().get(submitted.job_ids[0])).state == RUNNING


async def test_job_that_another_gateway_has_found_is_not_undone(services: ServicesHere) -> None:
    """Somebody may have been told that it exists: its maker is told that nothing is known, and the job stays."""
    other = services.jobs()
    found = list[str]()

    async def find(_: pb.EnqueueJobRequest) -> None:
        if not found:
            found.append("")  # its own enqueue comes by here, too
            found[0] = (await other.submit([TEMPLATE], [ONCE])).job_ids[0]

    await unsure(services, find)
    with capture_logs() as lines, pytest.raises(UnavailableError):
        await services.jobs().submit([TEMPLATE], [ONCE])
    assert (await other.get(found[0])).state == QUEUED
    assert [line["job_id"] for line in lines if line["event"] == "anomaly"] == found


async def test_compensation_that_fails_is_an_anomaly(services: ServicesHere) -> None:
    """If the record cannot be taken away either, a line names the job, and the client is told that nothing is known."""
    seen = list[str]()

    async def end_the_job_service(request: pb.EnqueueJobRequest) -> None:
        seen.append(request.job_id)
        await services.job.stop()

    await unsure(services, end_the_job_service)
    with capture_logs() as lines, pytest.raises(UnavailableError):
        await services.jobs().submit([TEMPLATE], [ONCE])
    anomalies = [line for line in lines if line["event"] == "anomaly"]
    assert [(line["what"], line["job_id"]) for line in anomalies] == [("compensation_failed", seen[0])]
    await services.job.start()


async def test_repeated_submit_is_not_answered_while_the_first_is_under_way(services: ServicesHere) -> None:
    """Its outcome is not known yet; once it is, the repetition finds the job."""
    jobs, slow = services.jobs(), SlowQueue(services)
    await services.queue.stop()
    await services.queue.start(slow)
    first = asyncio.create_task(jobs.submit([TEMPLATE], [ONCE]))
    await slow.begun.wait()
    with pytest.raises(UnavailableError) as caught:
        await jobs.submit([TEMPLATE], [ONCE])
    assert caught.value.reason == "SUBMIT_IN_FLIGHT"
    slow.go_on.set()
    made = await first
    again = await jobs.submit([TEMPLATE], [ONCE])
    assert (again.job_ids, again.existing) == (made.job_ids, frozenset({0}))


async def test_repeated_submit_completes_what_a_lost_gateway_had_begun(services: ServicesHere) -> None:
    """A job that exists and waits nowhere is put where it waits, at its own place and not as the repetition says."""
    keyed = JobDraft(payload=b"first", extra=Extra(unique_key="one"))
    made = (await services.jobs().submit([Template("brew", priority=8)], [keyed])).job_ids[0]
    assert await is_waiting(services, made)  # and does so no longer
    again = await services.jobs().submit([Template("brew", priority=1)], [JobDraft(extra=Extra(unique_key="one"))])
    assert (again.job_ids, again.existing) == ([made], frozenset({0}))
    assert await is_waiting(services, made)


async def test_submit_goes_on_when_its_client_is_gone(services: ServicesHere) -> None:
    """Nobody hears of it, but a record that was made is also enqueued."""
    slow = SlowQueue(services)
    await services.queue.stop()
    await services.queue.start(slow)
    client = asyncio.create_task(services.jobs().submit([TEMPLATE], [ONCE]))
    await slow.begun.wait()
    client.cancel()
    await asyncio.wait([client])
    slow.go_on.set()
    await slow.ended.wait()
    await services.queue.stop()
    await services.queue.start()
    assert await is_waiting(services, slow.job_id)


async def test_owner_that_is_away_is_asked_once_for_a_whole_batch(services: ServicesHere) -> None:
    """After the first draft that cannot be made, the others are refused for the same reason, at once."""
    await services.job.stop()
    submitted = await services.jobs().submit([TEMPLATE], [JobDraft()] * 500)
    assert {refusal.code for refusal in submitted.refusals.values()} == {Code.UNAVAILABLE}
    assert len(submitted.refusals) == 500
    await services.job.start()


async def test_order_within_a_batch_is_that_of_the_drafts(services: ServicesHere) -> None:
    """Records are made one after the other, so that each has a larger order number than the one before."""
    submitted = await services.jobs().submit([TEMPLATE], [JobDraft()] * 40)
    numbers = [services.records.book.jobs[job_id].number for job_id in submitted.job_ids]
    assert numbers == sorted(set(numbers))
