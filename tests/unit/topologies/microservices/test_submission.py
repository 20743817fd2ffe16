"""Submits over two owners, with failures at each step."""

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
from tests.unit.topologies.microservices.services_in_process import ServicesHere, services_here

TEMPLATE = Template("brew")
ONCE = JobDraft(payload=b"x", extra=Extra(request_id="once"))

Meanwhile = Callable[[pb.EnqueueJobRequest], Awaitable[None]]


class UnsureQueue(rpc.QueueInternalServiceServicer):
    """A queue service that runs a callback and then fails, so that the outcome is unknown."""

    def __init__(self, meanwhile: Meanwhile) -> None:
        self._meanwhile = meanwhile

    @answered
    async def EnqueueJob(  # noqa: N802 - a method of the contract
        self, request: pb.EnqueueJobRequest, context: Context
    ) -> pb.EnqueueJobResponse:
        """Runs the callback, then fails."""
        await self._meanwhile(request)
        raise UnavailableError("lost on the way")


class SlowQueue(rpc.QueueInternalServiceServicer):
    """The real queue service, which waits for the test."""

    def __init__(self, services: ServicesHere) -> None:
        self._queue = services.queue_service
        self.begun, self.go_on, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.job_id = ""

    async def EnqueueJob(  # noqa: N802 - a method of the contract
        self, request: pb.EnqueueJobRequest, context: Context
    ) -> pb.EnqueueJobResponse:
        """Enqueues once the test says so."""
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
    """Returns whether the job was in the queue, and removes it."""
    request = pb.RemoveJobIfPresentRequest(job_id=job_id)
    return (await services.owners.queue.remove(request)).removed


async def unsure(services: ServicesHere, meanwhile: Meanwhile) -> None:
    """Replaces the queue service by one whose enqueues have an unknown outcome."""
    await services.queue.stop()
    await services.queue.start(UnsureQueue(meanwhile))


async def test_submit_that_cannot_be_enqueued_leaves_nothing_behind(services: ServicesHere) -> None:
    """If the enqueue fails, the record and its request id are removed, and a later submit creates a new job."""
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


async def test_submit_is_refused_while_the_queue_service_is_down(services: ServicesHere) -> None:
    """While the queue service is down, each draft is refused with its own code."""
    await services.queue.stop()
    submitted = await services.jobs().submit([TEMPLATE], [ONCE, JobDraft(template=5)])
    assert submitted.job_ids == ["", ""]
    assert [submitted.refusals[index].code for index in (0, 1)] == [Code.UNAVAILABLE, Code.INVALID_ARGUMENT]


async def test_job_that_was_taken_before_it_could_be_undone_is_accepted(services: ServicesHere) -> None:
    """If the compensation finds the job RUNNING, the submit is accepted, because the enqueue must have worked."""

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
    """A job that another gateway has found is not deleted, and its submit fails as UNAVAILABLE with an anomaly."""
    other = services.jobs()
    found = list[str]()

    async def find(_: pb.EnqueueJobRequest) -> None:
        if not found:
            found.append("")  # the other gateway's enqueue calls this too
            found[0] = (await other.submit([TEMPLATE], [ONCE])).job_ids[0]

    await unsure(services, find)
    with capture_logs() as lines, pytest.raises(UnavailableError):
        await services.jobs().submit([TEMPLATE], [ONCE])
    assert (await other.get(found[0])).state == QUEUED
    assert [line["job_id"] for line in lines if line["event"] == "anomaly"] == found


async def test_compensation_that_fails_is_an_anomaly(services: ServicesHere) -> None:
    """If the compensation fails, an anomaly with the job's id is logged, and the submit is UNAVAILABLE."""
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
    """A repeated submit is UNAVAILABLE while the first one is in flight, and finds the job afterwards."""
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


async def test_repeated_submit_enqueues_a_job_that_a_lost_gateway_left(services: ServicesHere) -> None:
    """A repeated submit enqueues an existing job that is in no queue, with the job's own fields."""
    keyed = JobDraft(payload=b"first", extra=Extra(unique_key="one"))
    made = (await services.jobs().submit([Template("brew", priority=8)], [keyed])).job_ids[0]
    assert await is_waiting(services, made)  # which also removes it
    again = await services.jobs().submit([Template("brew", priority=1)], [JobDraft(extra=Extra(unique_key="one"))])
    assert (again.job_ids, again.existing) == ([made], frozenset({0}))
    assert await is_waiting(services, made)


async def test_submit_goes_on_when_its_client_is_gone(services: ServicesHere) -> None:
    """A submit whose client disconnects still enqueues the record that it created."""
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
    """If the job service is down, the rest of a batch is refused at once for the same reason."""
    await services.job.stop()
    submitted = await services.jobs().submit([TEMPLATE], [JobDraft()] * 500)
    assert {refusal.code for refusal in submitted.refusals.values()} == {Code.UNAVAILABLE}
    assert len(submitted.refusals) == 500
    await services.job.start()


async def test_order_within_a_batch_is_that_of_the_drafts(services: ServicesHere) -> None:
    """The jobs of a batch have growing order numbers, in the order of the drafts."""
    submitted = await services.jobs().submit([TEMPLATE], [JobDraft()] * 40)
    numbers = [services.records.state.jobs[job_id].number for job_id in submitted.job_ids]
    assert numbers == sorted(set(numbers))
