"""A worker's session over unary calls during outages, and the product's worker on such a session."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import FIXED, BackoffRule, Template
from holdfast.errors import HoldfastError, InvalidArgumentError, UnavailableError
from holdfast.ports import Assignment, Directive, Introduction, JobDraft
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.server.grpc.status import Context, answered
from holdfast.topologies.microservices.backend.worker_session import UnarySession
from holdfast.topologies.microservices.services.coordinator_service import WorkTerms
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import AttemptFailedError, Handler, Mode
from holdfast.worker.held_leases import UnacknowledgedReports
from holdfast.worker.runtime import Worker
from tests.unit.topologies.microservices.services_in_process import ServicesHere, services_here

TEMPLATE = Template("brew")
BREWER = Introduction("w", frozenset({"brew"}), slots=4)
#: Only a broken test waits this long.
PATIENCE_S = 30.0


@pytest.fixture
async def services() -> AsyncIterator[ServicesHere]:
    async with services_here() as services:
        yield services


async def submit(services: ServicesHere, template: Template = TEMPLATE, payload: bytes = b"") -> str:
    return (await services.jobs().submit([template], [JobDraft(payload=payload)])).job_ids[0]


async def until(session: UnarySession, is_right: Callable[[Directive], object]) -> Directive:
    """Returns the first directive that satisfies the condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_right(directive := await session.next()):
            pass
    return directive


async def take(session: UnarySession) -> Assignment:
    await session.want(1)
    return (await until(session, lambda directive: directive.leases)).leases[0]


# -- the session


async def test_report_is_repeated_until_the_coordinator_is_back(services: ServicesHere) -> None:
    """A report that fails while the coordinator is down is sent again by the same session, and then acknowledged."""
    job_id = await submit(services)
    session = await services.work().open(BREWER)
    lease = await take(session)
    await services.coordinator.stop()
    await session.report(1, [ReportRow(job_id, lease.token, DONE, b"late")])
    await session.extend()  # gets no reply, which does not end the session
    await services.coordinator.start()
    await until(session, lambda directive: directive.reported == 1)
    assert (await services.jobs().result(job_id)).output == b"late"
    await session.close()


async def test_outage_of_an_owner_is_logged_once(services: ServicesHere, caplog: pytest.LogCaptureFixture) -> None:
    """If reports fail while heartbeats succeed, the worker logs the outage once, and its end once."""
    caplog.set_level("INFO", "holdfast")
    job_id = await submit(services)
    session = await services.work().open(BREWER)
    lease = await take(session)
    await services.result.stop()
    await session.report(1, [ReportRow(job_id, lease.token, DONE)])
    async with asyncio.timeout(PATIENCE_S):
        while "coordinator_silent" not in caplog.text:
            await session.extend()
    for _ in range(10):
        await session.extend()
    assert "coordinator_answers" not in caplog.text
    await services.result.start()
    await until(session, lambda directive: directive.reported == 1)
    assert [caplog.text.count(event) for event in ("coordinator_silent", "coordinator_answers")] == [1, 1]
    await session.close()


async def test_worker_gives_up_its_leases_without_contact_to_the_coordinator() -> None:
    """A worker without contact to the coordinator for the length of a lease gives up its jobs."""
    async with services_here(WorkTerms(heartbeat_ms=50, worker_timeout_ms=300)) as services:
        await submit(services)
        session = await services.work().open(BREWER)
        lease = await take(session)
        await services.coordinator.stop()
        directive = await until(session, lambda directive: directive.revoked)
        assert directive.revoked == [lease.token]
        await services.coordinator.start()
        await session.close()


async def test_session_goes_on_fetching_when_the_coordinator_is_back(services: ServicesHere) -> None:
    """A session keeps requesting the wanted leases after the coordinator is back."""
    session = await services.work().open(BREWER)
    await services.coordinator.stop()
    await session.want(1)
    job_id = await submit(services)
    await services.coordinator.start()
    directive = await until(session, lambda directive: directive.leases)
    assert directive.leases[0].job_id == job_id
    await session.close()


async def test_session_without_a_coordinator_is_retryable_unavailable(services: ServicesHere) -> None:
    """Opening a session while the coordinator is down raises the retryable UNAVAILABLE."""
    await services.coordinator.stop()
    with pytest.raises(UnavailableError):
        await services.work().open(BREWER)
    await services.coordinator.start()


class WrongCoordinator(rpc.CoordinatorInternalServiceServicer):
    """A coordinator that accepts every worker and then refuses to grant work."""

    def __init__(self, error: HoldfastError) -> None:
        self._error = error

    async def WorkerHeartbeat(  # noqa: N802 - a method of the contract
        self, request: pb.WorkerHeartbeatRequest, context: Context
    ) -> pb.WorkerHeartbeatResponse:
        """Accepts the worker."""
        return pb.WorkerHeartbeatResponse(accepted=True, next_heartbeat_in_ms=1_000, lease_ms=4_000)

    @answered
    async def FetchWork(  # noqa: N802 - a method of the contract
        self, request: pb.FetchWorkRequest, context: Context
    ) -> pb.FetchWorkResponse:
        """Raises the error."""
        raise self._error


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (InvalidArgumentError("no such type"), InvalidArgumentError),
        (HoldfastError("a bug"), UnavailableError),
    ],
)
async def test_refusal_ends_the_session(
    services: ServicesHere, error: HoldfastError, ending: type[HoldfastError]
) -> None:
    """A session ends with the error if no new session could fix it, and else with the retryable UNAVAILABLE."""
    await services.coordinator.stop()
    await services.coordinator.start(WrongCoordinator(error))
    session = await services.work().open(BREWER)
    await session.want(1)
    with pytest.raises(ending):
        await until(session, lambda directive: directive.leases)
    with pytest.raises(ending):
        await session.want(1)
    await session.close()


async def test_failed_session_does_not_say_goodbye(services: ServicesHere) -> None:
    """A failed session does not release its leases, so that the next session of the worker can continue them."""
    job_id = await submit(services)
    session = await services.work().open(BREWER)
    lease = await take(session)
    await services.coordinator.stop()
    await services.coordinator.start(WrongCoordinator(InvalidArgumentError("no")))
    await session.want(1)
    with pytest.raises(InvalidArgumentError):
        await until(session, lambda directive: directive.leases)
    await services.coordinator.stop()
    await services.coordinator.start()
    await session.close()
    again = await services.work().open(Introduction("w", frozenset({"brew"}), held={lease.token: job_id}))
    assert (await again.next()).revoked == []
    assert (await services.jobs().get(job_id)).state == RUNNING
    await again.close()


async def test_lease_that_was_never_delivered_is_handed_back_unspent(services: ServicesHere) -> None:
    """A lease that a closing session never delivered is returned without a loss."""
    session = await services.work().open(BREWER)
    await session.next()
    job_id = await submit(services)
    await session.want(1)
    async with asyncio.timeout(PATIENCE_S):
        async for view in services.jobs().watch(job_id):
            if view.state == RUNNING:
                break
    await session.close()
    job = await services.jobs().get(job_id)
    assert (job.state, job.losses) == (QUEUED, 0)


async def test_lease_that_ran_out_unheard_leaves_its_room() -> None:
    """If a lease expires before the session delivers it, the wanted slot stays open for the next one."""
    async with services_here(WorkTerms(heartbeat_ms=50, worker_timeout_ms=300)) as services:
        session = await services.work().open(BREWER)
        await session.next()
        job_id = await submit(services, Template("brew", max_losses=100))
        await session.want(1)
        async with asyncio.timeout(PATIENCE_S):
            while not (await services.jobs().get(job_id)).losses:  # noqa: ASYNC110 - the job can only be polled
                await asyncio.sleep(0.01)
        lease = (await until(session, lambda directive: directive.leases)).leases[0]
        assert (lease.job_id, lease.attempt > 1) == (job_id, True)
        await session.close()


def test_reports_are_acknowledged_in_their_order() -> None:
    """A report is acknowledged once all reports before it are answered."""
    reports = UnacknowledgedReports()
    reports.begin(1, 2)
    reports.begin(2, 1)
    assert reports.answered(2) == 0
    assert reports.answered(1) == 0
    assert reports.answered(1) == 2


# -- the product's worker


def shout(assignment: Assignment) -> bytes:
    """An ordinary function, which runs in a thread."""
    return assignment.payload.upper()


def fail_once(assignment: Assignment) -> bytes:
    """Fails at its first attempt."""
    if assignment.attempt == 1:
        raise AttemptFailedError("not yet")
    return b"second"


@asynccontextmanager
async def working(services: ServicesHere, **handlers: Handler) -> AsyncIterator[Worker]:
    """Runs a worker for a block, and drains it afterwards."""
    worker = Worker(services.work(), handlers, WorkerConfig("real", 4))
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(worker.attached.wait(), PATIENCE_S)
    yield worker
    worker.stop()
    await asyncio.wait_for(running, PATIENCE_S)


async def test_worker_runs_ordinary_functions(services: ServicesHere) -> None:
    """The product's worker runs jobs over the microservices."""
    async with working(services, brew=Handler(shout, Mode.THREAD)):
        jobs = services.jobs()
        drafts = [JobDraft(payload=f"cup {number}".encode()) for number in range(30)]
        submitted = await jobs.submit([TEMPLATE], drafts)
        ends = await asyncio.gather(*(jobs.settled(job_id) for job_id in submitted.job_ids))
    assert [result.output for _, result in ends] == [f"CUP {number}".encode() for number in range(30)]
    assert {job.state for job, _ in ends} == {DONE}


async def test_worker_tries_again_and_fails_as_its_functions_do(services: ServicesHere) -> None:
    """A failed attempt is retried while attempts are left, and else ends the job."""
    twice = Template("brew", max_attempts=2, backoff=BackoffRule(FIXED, 0, 0))
    async with working(services, brew=Handler(fail_once, Mode.THREAD)):
        jobs = services.jobs()
        again, once = await submit(services, twice), await submit(services)
        (job, result), (failed, _) = await jobs.settled(again), await jobs.settled(once)
    assert (job.state, job.attempts, result.output) == (DONE, 2, b"second")
    assert (failed.state, failed.failure_reason) == (FAILED, "not yet")


async def test_cancel_of_a_running_job_reaches_its_function(services: ServicesHere) -> None:
    """The reply to a heartbeat carries the cancel, the worker cancels the coroutine, and the job ends CANCELED."""
    began = asyncio.Event()

    async def for_ever(_: Assignment) -> bytes:
        began.set()
        await asyncio.Event().wait()
        return b""

    async with working(services, brew=Handler(for_ever)):
        job_id = await submit(services)
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        assert (await services.jobs().cancel(job_id, "enough")).state == RUNNING
        job, result = await asyncio.wait_for(services.jobs().settled(job_id), PATIENCE_S)
    assert (job.state, result.summary) == (CANCELED, "enough")


async def test_worker_outlives_an_outage_of_the_coordinator(services: ServicesHere) -> None:
    """The worker reports outcomes of an outage once the coordinator is back, and continues."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: Assignment) -> bytes:
        began.set()
        await go_on.wait()
        return b"kept"

    async with working(services, brew=Handler(wait)):
        first = await submit(services)
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        await services.coordinator.stop()
        go_on.set()
        second = await submit(services)
        await services.coordinator.start()
        ends = [await asyncio.wait_for(services.jobs().settled(job_id), PATIENCE_S) for job_id in (first, second)]
    assert [(job.attempts, result.output) for job, result in ends] == [(1, b"kept"), (1, b"kept")]
