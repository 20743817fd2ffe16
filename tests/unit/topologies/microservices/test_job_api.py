"""Cancel, result and wait over several owners that may disagree for a while."""

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING, State
from holdfast.core.model import Template
from holdfast.errors import UnavailableError
from holdfast.ports import JobDraft, JobView
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.topologies.microservices.backend.job_api import ServiceJobs, why
from tests.unit.topologies.microservices.services_in_process import ServicesHere, services_here

TEMPLATE = Template("brew")


@pytest.fixture
async def services() -> AsyncIterator[ServicesHere]:
    async with services_here() as services:
        yield services


async def submit(services: ServicesHere) -> str:
    return (await services.jobs().submit([TEMPLATE], [JobDraft()])).job_ids[0]


async def move(services: ServicesHere, job_id: str, source: public_pb.JobStatus, target: public_pb.JobStatus) -> None:
    request = pb.TransitionJobStatusRequest(
        job_id=job_id, expected_from_status=source, to_status=target, worker_id="w" if target == 2 else ""
    )
    moved = await services.owners.job.move(request)
    assert moved.applied


async def test_end_without_its_envelope_is_an_anomaly_and_no_result(services: ServicesHere) -> None:
    """The result of an ended job without an envelope is UNAVAILABLE, and an anomaly with the job's id is logged."""
    job_id = await submit(services)
    await move(services, job_id, public_pb.QUEUED, public_pb.CANCELED)
    with capture_logs() as lines, pytest.raises(UnavailableError) as caught:
        await services.jobs().result(job_id)
    assert caught.value.reason == "RESULT_MISSING"
    assert [line["job_id"] for line in lines if line["event"] == "anomaly"] == [job_id]


async def test_envelope_without_its_end_is_no_result(services: ServicesHere) -> None:
    """A job that has not ended has no result, even if an envelope is stored for it."""
    job_id = await submit(services)
    envelope = pb.StoreResultRequest(job_id=job_id, terminal_status=public_pb.DONE, output_bytes=b"early")
    await services.owners.result.store(envelope)
    result = await services.jobs().result(job_id)
    assert (result.state, result.output) == (QUEUED, b"")


async def test_cancel_of_a_job_whose_end_is_stored_lets_that_end_stand(services: ServicesHere) -> None:
    """A canceled job that already has an envelope is enqueued again and ends as the envelope says, without a run."""
    job_id = await submit(services)
    envelope = pb.StoreResultRequest(job_id=job_id, terminal_status=public_pb.DONE, output_bytes=b"kept")
    await services.owners.result.store(envelope)
    reply = await services.jobs().cancel(job_id, "too late")
    assert (reply.state, reply.was_terminal) == (QUEUED, False)
    waits = pb.DequeueJobRequest(worker_id="w")
    assert (await services.owners.queue.dequeue(waits)).job_id == job_id
    place = pb.EnqueueJobRequest(job_id=job_id, route="brew")
    await services.owners.queue.enqueue(place)
    fetch = pb.FetchWorkRequest(worker_id="w", wanted=pb.Wanted(routes=["brew"]))
    async with services.channel_to_coordinator() as stub:
        assert not (await stub.FetchWork(fetch)).assigned
    job, result = await services.jobs().settled(job_id)
    assert (job.state, result.state, result.output) == (DONE, DONE, b"kept")


async def test_cancel_that_loses_its_guard_asks_the_job_to_stop(services: ServicesHere) -> None:
    """If the job runs by the time its cancel is applied, the cancel is only requested, and the reply says RUNNING."""
    job_id = await submit(services)
    await move(services, job_id, public_pb.QUEUED, public_pb.RUNNING)
    reply = await services.jobs().cancel(job_id, "stop")
    assert (reply.state, reply.was_terminal) == (RUNNING, False)
    assert (await services.jobs().get(job_id)).cancel_requested


async def test_watch_looks_less_and_less_often_until_something_changes(services: ServicesHere) -> None:
    """A watch polls at intervals from 20 ms up to 200 ms, starts over after a change, and ends with the job."""
    waits: list[float] = []
    job_id = await submit(services)

    async def sleep(delay_ms: float) -> None:
        waits.append(delay_ms)
        if len(waits) == 8:
            await move(services, job_id, public_pb.QUEUED, public_pb.RUNNING)
        if len(waits) == 10:
            await move(services, job_id, public_pb.RUNNING, public_pb.FAILED)

    jobs = ServiceJobs(services.owners, sleep=sleep)
    assert [view.state async for view in jobs.watch(job_id)] == [QUEUED, RUNNING, FAILED]
    assert waits == [20, 30, 45, 67.5, 101.25, 151.875, 200, 200, 20, 30]


async def test_owner_that_is_away_makes_reads_unavailable(services: ServicesHere) -> None:
    """If an owner is down, the error of a read names the service."""
    job_id = await submit(services)
    await services.job.stop()
    with pytest.raises(UnavailableError) as caught:
        await services.jobs().get(job_id)
    assert (caught.value.reason, "job service" in caught.value.message) == ("SERVICE_UNAVAILABLE", True)
    await services.job.start()


@pytest.mark.parametrize(
    ("state", "fields", "reason", "words"),
    [
        (QUEUED, {"not_before_ms": 0}, "WAITING_IN_QUEUE", "'default'"),
        (QUEUED, {"not_before_ms": 3_000}, "DELAYED", "2.0 s (as submitted)"),
        (QUEUED, {"not_before_ms": 3_000, "failures": 2}, "DELAYED", "after 2 failed attempts"),
        (RUNNING, {"worker": "w-1", "attempts": 1}, "RUNNING", "leased by w-1, attempt 1"),
        (FAILED, {"attempts": 1, "failure_reason": "BROKEN"}, "ENDED", "FAILED after 1 attempt: BROKEN"),
        (CANCELED, {"attempts": 0}, "ENDED", "CANCELED after 0 attempts"),
    ],
)
def test_explanation_is_as_good_as_the_record(state: State, fields: dict[str, object], reason: str, words: str) -> None:
    """The explanation has a reason for each state, and a sentence with the data of the record."""
    known: dict[str, object] = {"not_before_ms": 0, "failure_reason": "", "attempts": 0, **fields}
    view = JobView(
        id="j", template=TEMPLATE, state=state, created_ms=1, started_ms=0, finished_ms=0, cancel_requested=False,
        extra=None, **known,  # type: ignore[arg-type]  # fields by name
    )  # fmt: skip
    told, sentence = why(view, 1_000)
    assert told == reason
    assert words in sentence
