"""Design A's protocols over real owners, with each failure that the coordinator must survive."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import limits
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.errors import UnavailableError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from tests.integration.microservices_world import Fault, World, world

SUCCEEDED, FAILED_OUTCOME = public_pb.JOB_OUTCOME_SUCCEEDED, public_pb.JOB_OUTCOME_FAILED
STOPPED = public_pb.JOB_OUTCOME_CANCELED
GRACE_MS = 2_000
LEASE_MS = 4_000


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """Three owners and a coordinator."""
    async with world() as made:
        yield made


async def test_job_runs_once_and_ends_with_its_envelope(here: World) -> None:
    """A success takes exactly a dequeue, a move, a record read, an envelope and a move."""
    job_id = await here.submit()
    work = await here.take()
    assert (work.job_id, work.options.payload, work.attempt) == (job_id, b"payload", 1)
    assert await here.report(work, output_bytes=b"out", output_summary="fine", runtime_ms=7) == ""
    result = await here.result(job_id)
    assert (result.output_bytes, result.output_summary, result.runtime_ms) == (b"out", "fine", 7)
    await here.check_ended(job_id)
    expected = ["DequeueJob", "TransitionJobStatus", "GetJobRecord", "StoreResult", "TransitionJobStatus"]
    assert here.faults.calls == expected


async def test_envelope_stored_before_a_crash_and_a_requeue_stands(here: World) -> None:
    """After a crash between envelope and move the job runs again, and ends with the status of the first envelope."""
    job_id = await here.submit(max_losses=5)
    work = await here.take()
    here.faults.rule = lambda _number, method, _request: Fault.DEAD_AFTER if method == "StoreResult" else None
    assert await here.until_death(here.report(work, FAILED_OUTCOME, output_summary="first", is_final=True))
    await here.kill()
    await here.pass_time(2 * LEASE_MS)
    assert await here.state(job_id) == QUEUED
    again = await here.take("other")
    assert await here.report(again, output_bytes=b"second", worker="other") == ""
    assert await here.state(job_id) == FAILED
    assert (await here.result(job_id)).output_summary == "first"
    await here.check_ended(job_id)
    assert [line["current_status"] for line in here.logged("stored_result_stands")] == ["FAILED"]


async def test_repeated_report_finishes_a_half_done_end(here: World) -> None:
    """After a crash between envelope and move, the repeated report completes the job's end."""
    job_id = await here.submit()
    work = await here.take()
    here.faults.rule = lambda _number, method, _request: Fault.DEAD_AFTER if method == "StoreResult" else None
    assert await here.until_death(here.report(work, output_bytes=b"out"))
    await here.kill()
    assert await here.report(work, output_bytes=b"out") == ""
    assert await here.report(work, output_bytes=b"out") == ""
    assert await here.state(job_id) == DONE
    await here.check_ended(job_id)


async def test_retryable_failure_stores_no_envelope(here: World) -> None:
    """A failed attempt with attempts left returns to the queue with its due time and failure, and without a result."""
    job_id = await here.submit(max_attempts=2)
    work = await here.take()
    assert await here.report(work, FAILED_OUTCOME, failure_reason="no luck", retry_after_ms=5_000) == ""
    record = await here.record(job_id)
    assert (record.summary.status, record.failures, record.losses) == (public_pb.QUEUED, 1, 0)
    assert record.options.not_before_ms == here.clock.wall_ms() + 5_000
    assert not (await here.result(job_id)).found
    assert not (await here.fetch()).assigned
    await here.pass_time(5_000)
    again = await here.take()
    assert (again.job_id, again.attempt) == (job_id, 2)
    assert await here.report(again, FAILED_OUTCOME, failure_reason="again") == ""
    assert (await here.record(job_id)).failure_reason == "again"
    await here.check_ended(job_id)


async def test_stopped_worker_that_fetched_its_job_again_is_fenced(here: World) -> None:
    """A worker that was stopped, lost its job and fetched it again is refused with its old token."""
    job_id = await here.submit()
    old = await here.take()
    await here.pass_time(LEASE_MS + GRACE_MS)
    new = await here.take()
    assert new.job_id == job_id
    assert new.token > old.token
    assert await here.report(old, output_bytes=b"old") == "STALE_TOKEN"
    assert await here.state(job_id) == RUNNING
    assert not (await here.result(job_id)).found
    assert await here.report(new, output_bytes=b"new") == ""
    assert (await here.result(job_id)).output_bytes == b"new"
    refused = [(line["job_id"], line["token"], line["reason"]) for line in here.logged("report_refused")]
    assert refused == [(job_id, old.token, "STALE_TOKEN")]


async def test_old_run_is_fenced_by_a_coordinator_that_knows_nothing(here: World) -> None:
    """A coordinator that has just started refuses the report of an old run."""
    job_id = await here.submit()
    old = await here.take()
    await here.pass_time(LEASE_MS + GRACE_MS)
    new = await here.take()
    await here.kill()
    assert await here.report(old) == "STALE_TOKEN"
    assert await here.report(new, worker="thief") == "NOT_THE_HOLDER"
    assert await here.report(new) == ""
    await here.check_ended(job_id)


async def test_old_run_is_fenced_although_its_own_coordinator_knows_no_better(here: World) -> None:
    """A replaced coordinator accepts its worker's report, and the job service refuses it."""
    job_id = await here.submit(max_attempts=2)
    old = await here.take()
    replaced = here.replace()
    await here.pass_time(LEASE_MS + GRACE_MS)
    new = await here.take("other")
    current, here.coordinator = here.coordinator, replaced
    assert await here.report(old) == "STALE_TOKEN"
    record = await here.record(job_id)
    assert (record.summary.status, record.token, record.worker_id) == (public_pb.RUNNING, new.token, "other")
    here.coordinator = current
    assert await here.report(new, worker="other") == ""
    await here.check_ended(job_id)
    await replaced.stop()


async def test_lost_fetch_reply_returns_the_job_and_spends_nothing(here: World) -> None:
    """Heartbeats that do not name an assigned job return it after the grace, without a loss or failure."""
    job_id = await here.submit()
    lost = await here.take()
    await here.beat()
    assert await here.state(job_id) == RUNNING
    await here.pass_time(GRACE_MS)
    await here.beat()
    record = await here.record(job_id)
    assert (record.summary.status, record.failures, record.losses) == (public_pb.QUEUED, 0, 0)
    again = await here.take("other")
    assert (again.job_id, again.attempt) == (job_id, 1)
    assert await here.report(lost) == "STALE_TOKEN"
    assert await here.report(again, worker="other") == ""


@pytest.mark.parametrize("method", ["DequeueJob", "TransitionJobStatus", "GetJobRecord"])
async def test_fetch_that_its_worker_gave_up_is_finished_and_undone(here: World, method: str) -> None:
    """A worker that cancels its fetch in the middle holds no job, and the job returns to the queue at once."""
    job_id = await here.submit()
    reached, gate = asyncio.Event(), asyncio.Event()

    async def wait_there(called: str, _request: object) -> None:
        if called == method:
            reached.set()
            await gate.wait()

    here.faults.before = wait_there
    fetching = asyncio.create_task(here.fetch())
    await reached.wait()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    gate.set()
    await here.coordinator.settled()
    here.coordinator.tick()
    await here.coordinator.settled()
    assert (await here.state(job_id), job_id in here.line) == (QUEUED, True)
    assert (await here.record(job_id)).losses == 0


async def test_cancel_of_a_running_job_rides_on_the_heartbeat(here: World) -> None:
    """The holder of a job gets its cancel with the next heartbeat, stops it, and the job ends CANCELED."""
    job_id = await here.submit()
    work = await here.take()
    assert list((await here.beat(work)).cancel) == []
    assert (await here.jobs.cancel(job_id, "enough")).state == RUNNING
    assert list((await here.beat(work)).cancel) == [job_id]
    assert list((await here.bare_beat()).cancel) == [job_id]
    assert list((await here.bare_beat("bystander")).cancel) == []
    assert await here.report(work, STOPPED) == ""
    assert await here.state(job_id) == CANCELED
    assert (await here.result(job_id)).output_summary == "enough"
    await here.check_ended(job_id)


async def test_cancel_is_heard_after_a_restart(here: World) -> None:
    """A coordinator that starts after a cancel also sends it to the job's holder."""
    job_id = await here.submit()
    work = await here.take()
    await here.jobs.cancel(job_id, "enough")
    await here.kill()
    answer = await here.beat(work)
    assert (list(answer.cancel), list(answer.revoked)) == ([job_id], [])


async def test_canceled_job_that_is_dequeued_is_not_handed_out(here: World) -> None:
    """A cancel between the dequeue and the move ends the job, which never runs."""
    job_id = await here.submit()

    async def cancel_meanwhile(method: str, _request: object) -> None:
        if method == "TransitionJobStatus":
            here.faults.before = None
            await here.jobs.cancel(job_id, "in time")

    here.faults.before = cancel_meanwhile
    assert not (await here.fetch()).assigned
    assert await here.state(job_id) == CANCELED
    assert (await here.result(job_id)).output_summary == "in time"
    await here.check_ended(job_id)


async def test_lost_guard_leaves_an_ended_job_alone(here: World) -> None:
    """A job that was canceled after its dequeue is neither run nor enqueued, and the failed guard is logged."""
    job_id = await here.submit()

    async def end_meanwhile(method: str, _request: object) -> None:
        if method == "TransitionJobStatus":
            here.faults.before = None
            await here.queue.EnqueueJob(pb.EnqueueJobRequest(job_id=job_id))
            await here.jobs.cancel(job_id, "")

    here.faults.before = end_meanwhile
    assert not (await here.fetch()).assigned
    assert job_id not in here.line
    assert [(line["job_id"], line["current_status"]) for line in here.logged("guard_lost")] == [(job_id, "CANCELED")]


async def test_lost_guard_on_a_job_that_came_back_rescues_it(here: World) -> None:
    """A job that is QUEUED again after its move failed is enqueued once, and the rescue is logged."""
    job_id = await here.submit()
    token = 0

    async def run_meanwhile(method: str, _request: object) -> None:
        nonlocal token
        move = pb.TransitionJobStatusRequest(job_id=job_id)
        if method == "TransitionJobStatus":
            move.expected_from_status, move.to_status = public_pb.QUEUED, public_pb.RUNNING
            token = (await here.job.TransitionJobStatus(move)).token
        if method == "GetJobRecord" and token:
            here.faults.before = None
            move.expected_from_status, move.to_status = public_pb.RUNNING, public_pb.QUEUED
            await here.job.TransitionJobStatus(move)

    here.faults.before = run_meanwhile
    work = await here.fetch()
    assert (work.job_id, work.assigned) == (job_id, True)
    assert here.faults.calls.count("EnqueueJob") == 1
    assert [line["job_id"] for line in here.logged("rescued")] == [job_id]


async def test_deleted_job_that_is_dequeued_is_left_alone(here: World) -> None:
    """A fetch skips a dequeued job whose submit was undone, and continues with the next one."""
    gone, job_id = await here.submit(), await here.submit()
    request = pb.DeleteJobIfStatusRequest(job_id=gone, expected_status=public_pb.QUEUED)
    assert (await here.job.DeleteJobIfStatus(request)).deleted
    assert (await here.fetch()).job_id == job_id


async def test_silent_worker_loses_its_jobs_and_they_pay(here: World) -> None:
    """A worker without a heartbeat for the length of a lease loses its job, which counts a loss."""
    job_id = await here.submit(max_losses=1)
    await here.take()
    await here.pass_time(LEASE_MS + GRACE_MS)
    record = await here.record(job_id)
    assert (record.summary.status, record.losses) == (public_pb.QUEUED, 1)
    assert (await here.take("other")).attempt == 2
    await here.pass_time(LEASE_MS + GRACE_MS)
    assert (await here.record(job_id)).failure_reason == "WORKER_LOST"
    await here.check_ended(job_id)


async def test_report_and_loss_of_one_job_come_one_after_the_other(here: World) -> None:
    """A lease that expires while its report is being stored is not taken back."""
    job_id = await here.submit()
    work = await here.take()
    storing, gate = asyncio.Event(), asyncio.Event()

    async def hold(method: str, _request: object) -> None:
        if method == "StoreResult":
            storing.set()
            await gate.wait()

    here.faults.before = hold
    reporting = asyncio.create_task(here.report(work))
    await storing.wait()
    for _ in range(4 * LEASE_MS // 250):
        here.clock.advance(0.25)
        here.coordinator.tick()
        await here.state(job_id)
    gate.set()
    assert await reporting == ""
    assert await here.state(job_id) == DONE
    await here.check_ended(job_id)


async def test_end_whose_answer_was_lost_is_forgotten(here: World) -> None:
    """A coordinator that got no reply to a job's last move forgets its lease at the next round."""
    job_id = await here.submit()
    work = await here.take()
    await here.pass_time(250)
    here.faults.rule = lambda _number, method, _request: Fault.LOST_AFTER if method == "TransitionJobStatus" else None
    with pytest.raises(UnavailableError):
        await here.report(work)
    here.faults.reset()
    await here.pass_time(1_250)
    await here.bare_beat()
    assert (await here.state(job_id), len(here.coordinator.table)) == (DONE, 0)


async def test_nothing_is_revoked_that_cannot_be_looked_up(here: World) -> None:
    """A new coordinator that cannot read the records revokes no lease."""
    await here.submit()
    work = await here.take()
    await here.kill()
    here.faults.down("job")
    assert list((await here.beat(work)).revoked) == []
    here.faults.reset()
    assert list((await here.beat(work)).revoked) == []
    assert await here.report(work) == ""


async def test_failure_counts_although_the_queue_is_away(here: World) -> None:
    """The report of a failed attempt is accepted while the queue service is down, and the job is enqueued later."""
    job_id = await here.submit(max_attempts=2)
    work = await here.take()
    here.faults.down("queue")
    assert await here.report(work, FAILED_OUTCOME, retry_after_ms=1) == ""
    assert ((await here.record(job_id)).failures, job_id in here.line) == (1, False)
    await here.pass_time(750)
    assert job_id not in here.line
    here.faults.reset()
    await here.pass_time(750)
    assert job_id in here.line
    assert here.logged("anomaly") == []


async def test_worker_keeps_the_jobs_that_its_heartbeats_name(here: World) -> None:
    """A worker keeps a job that its heartbeats name for many lease lengths, also over a restart."""
    job_id = await here.submit()
    work = await here.take()
    await here.pass_time(3 * LEASE_MS, work)
    await here.kill()
    await here.pass_time(3 * LEASE_MS, work)
    assert await here.state(job_id) == RUNNING
    assert await here.report(work) == ""


async def test_pause_of_the_coordinator_expires_no_lease(here: World) -> None:
    """After a long pause of the coordinator, every lease has as much time left as before."""
    job_id = await here.submit()
    work = await here.take()
    here.clock.advance(3_600)
    here.coordinator.tick()
    await here.coordinator.settled()
    assert await here.state(job_id) == RUNNING
    assert await here.report(work) == ""


async def test_released_and_left_leases_go_back_at_once(here: World) -> None:
    """A job that a worker releases counts no loss, and one that it still runs when it leaves does."""
    handed_back, lost = await here.submit(), await here.submit()
    works = [await here.take(), await here.take()]
    await here.beat(works[1], released=(works[0],))
    record = await here.record(handed_back)
    assert (record.summary.status, record.losses) == (public_pb.QUEUED, 0)
    assert await here.report(works[0]) == "STALE_TOKEN"
    await here.beat(works[1], is_leaving=True)
    record = await here.record(lost)
    assert (record.summary.status, record.losses) == (public_pb.QUEUED, 1)


async def test_job_that_is_handed_back_for_ever_ends(here: World) -> None:
    """A job that is returned unrun counts a loss for each grant beyond the free ones, until it ends."""
    job_id = await here.submit(max_losses=1)
    grants = 0
    while await here.state(job_id) == QUEUED:
        await here.beat(released=(await here.take(),))
        grants += 1
    assert grants == limits.UNSPENT_GRANTS_MAX + 2
    assert (await here.record(job_id)).failure_reason == "WORKER_LOST"
    await here.check_ended(job_id)


async def test_arriving_worker_loses_jobs_that_it_does_not_name(here: World) -> None:
    """A worker that arrives at a new coordinator loses every job that it does not name, at once."""
    kept, lost = await here.submit(), await here.submit()
    works = [await here.take(), await here.take()]
    await here.kill()
    answer = await here.beat(works[0], is_arriving=True)
    assert (list(answer.revoked), answer.lease_ms) == ([], LEASE_MS)
    assert [await here.state(kept), await here.state(lost)] == [RUNNING, QUEUED]
    assert [(await here.record(job_id)).losses for job_id in (kept, lost)] == [0, 1]


async def test_job_whose_worker_comes_back_without_it_again_and_again_ends(here: World) -> None:
    """A job that kills its worker ends when its losses are used up, however fast the worker restarts."""
    job_id = await here.submit(max_losses=2)
    for _ in range(3):
        await here.take()
        await here.beat(is_arriving=True)
    assert (await here.record(job_id)).failure_reason == "WORKER_LOST"
    await here.check_ended(job_id)


async def test_heartbeat_response_revokes_leases_the_worker_no_longer_has(here: World) -> None:
    """A heartbeat response revokes leases that ended, went to another worker or never existed, and no held ones."""
    held, ended = await here.submit(), await here.submit()
    works = {work.job_id: work for work in (await here.take(), await here.take())}
    await here.report(works[ended])
    never = pb.FetchWorkResponse(job_id="nobody", token=99)
    for _ in range(2):
        answer = await here.beat(works[held], works[ended], never)
        assert {lease.job_id for lease in answer.revoked} == {ended, "nobody"}
        await here.kill()


async def test_queued_job_in_no_queue_is_swept(here: World) -> None:
    """The sweep enqueues a QUEUED job that is in no queue, and logs it as an anomaly with its id."""
    job_id, waiting = await here.submit(), await here.submit()
    await here.queue.RemoveJobIfPresent(pb.RemoveJobIfPresentRequest(job_id=job_id))
    assert (await here.take()).job_id == waiting
    await here.pass_time(GRACE_MS + 6_000)
    assert job_id in here.line
    assert [(line["job_id"], line["reason"]) for line in here.logged("anomaly")] == [(job_id, "QUEUED_IN_NO_QUEUE")]
    assert (await here.take()).job_id == job_id


async def test_empty_dequeue_makes_the_sweep_go_soon(here: World) -> None:
    """A queue that lost all jobs is rebuilt within one heartbeat of the first fetch that finds it empty."""
    ids = [await here.submit() for _ in range(30)]
    await here.pass_time(GRACE_MS + 250)
    for job_id in ids:
        await here.queue.RemoveJobIfPresent(pb.RemoveJobIfPresentRequest(job_id=job_id))
    assert not (await here.fetch()).assigned
    await here.pass_time(1_000)
    assert [(await here.take()).job_id for _ in ids] == ids
    assert {line["job_id"] for line in here.logged("anomaly")} == set(ids)


async def test_idle_system_with_delayed_jobs_does_not_sweep_in_a_circle(here: World) -> None:
    """With only delayed jobs, empty fetches cause at most one sweep per heartbeat, which enqueues nothing."""
    for _ in range(3):
        await here.submit(delay_ms=3_600_000)
    await here.pass_time(GRACE_MS)
    here.faults.reset()
    for _ in range(40):
        assert not (await here.fetch()).assigned
        await here.pass_time(250)
    assert here.faults.calls.count("EnqueueJob") == 0
    rounds_and_sweeps = here.faults.calls.count("ListJobRecords")
    assert 10 <= rounds_and_sweeps <= 22


async def test_sweep_of_waiting_jobs_is_no_anomaly(here: World) -> None:
    """The sweep leaves jobs that are in their queue unchanged while other jobs are fetched."""
    ids = [await here.submit() for _ in range(40)]
    await here.pass_time(GRACE_MS)
    for _ in ids[:20]:
        work = await here.take()
        here.coordinator.tick()
        await here.report(work)
        await here.pass_time(500)
    assert here.logged("anomaly") == []
    assert [(await here.take()).job_id for _ in ids[20:]] == ids[20:]


async def test_running_job_without_a_heartbeat_is_queued_again(here: World) -> None:
    """A RUNNING record whose worker sends no heartbeat is adopted, and is queued again after a lease length."""
    job_id = await here.submit()
    await here.queue.DequeueJob(pb.DequeueJobRequest(worker_id="ghost"))
    move = pb.TransitionJobStatusRequest(
        job_id=job_id,
        expected_from_status=public_pb.QUEUED,
        to_status=public_pb.RUNNING,
        worker_id="ghost",
    )
    await here.job.TransitionJobStatus(move)
    await here.pass_time(LEASE_MS - 1_000)
    assert await here.state(job_id) == RUNNING
    await here.pass_time(2_000)
    assert await here.state(job_id) == QUEUED
    assert [line["job_id"] for line in here.logged("lease_adopted")] == [job_id]
    assert (await here.take()).job_id == job_id


async def test_queued_job_that_should_stop_is_ended_by_the_sweep(here: World) -> None:
    """The sweep ends a job with a requested cancel that is in no queue."""
    job_id = await here.submit()
    await here.queue.RemoveJobIfPresent(pb.RemoveJobIfPresentRequest(job_id=job_id))
    assert (await here.jobs.cancel(job_id, "stop")).state == QUEUED
    await here.pass_time(GRACE_MS + 6_000)
    assert await here.state(job_id) == CANCELED
    assert (await here.result(job_id)).output_summary == "stop"
    await here.check_ended(job_id)


async def test_canceled_job_with_another_envelope_ends_as_that_says(here: World) -> None:
    """A job whose success was stored before a crash ends DONE, although a cancel came while it waited."""
    job_id = await here.submit()
    work = await here.take()
    here.faults.rule = lambda _number, method, _request: Fault.DEAD_AFTER if method == "StoreResult" else None
    assert await here.until_death(here.report(work, output_bytes=b"done"))
    await here.kill()
    await here.pass_time(2 * LEASE_MS)
    assert (await here.jobs.cancel(job_id, "too late")).state == QUEUED
    assert not (await here.fetch()).assigned
    assert await here.state(job_id) == DONE
    await here.check_ended(job_id)


@pytest.mark.parametrize("service", ["job", "queue", "result"])
async def test_outage_of_an_owner_loses_nothing(here: World, service: str) -> None:
    """While an owner is down, calls of workers are UNAVAILABLE, and every job ends when it is back."""
    running, waiting = await here.submit(max_losses=9), [await here.submit(max_losses=9) for _ in range(5)]
    work = await here.take()
    here.faults.down(service)
    for _ in range(10):
        for call in (lambda: here.report(work), here.fetch):
            try:
                await call()
            except UnavailableError:
                continue
        await here.pass_time(1_000, work)
    here.faults.reset()
    await here.pass_time(2_000, work)
    assert await here.report(work) == ""
    await here.pass_time(2 * LEASE_MS)
    for _ in waiting:
        await here.report(await here.take())
        await here.pass_time(1_000)
    await here.check_ended(running, *waiting)


async def test_outage_does_not_empty_the_queue(here: World) -> None:
    """While records cannot be moved, fetches stop taking jobs out of the queue."""
    ids = [await here.submit() for _ in range(5)]
    here.faults.down("job")
    for _ in range(20):
        with pytest.raises(UnavailableError):
            await here.fetch()
    assert sum(job_id in here.line for job_id in ids) >= 4
    here.faults.reset()
    assert [(await here.take()).job_id for _ in ids] == ids


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
@pytest.mark.parametrize("method", ["DequeueJob", "TransitionJobStatus", "GetJobRecord"])
async def test_lost_call_of_a_fetch_loses_no_job(here: World, method: str, fault: Fault) -> None:
    """If any call of a fetch fails, the job is granted later and counts no loss."""
    job_id = await here.submit(max_losses=0)
    is_lost = False

    def once(_number: int, called: str, _request: object) -> Fault | None:
        nonlocal is_lost
        if called != method or is_lost:
            return None
        is_lost = True
        return fault

    here.faults.rule = once
    with pytest.raises(UnavailableError):
        await here.fetch()
    await here.pass_time(GRACE_MS + 6_000)
    work = await here.take("other")
    assert (work.job_id, work.attempt) == (job_id, 1)
    assert await here.report(work, worker="other") == ""
    await here.check_ended(job_id)


async def test_oversized_output_fails_the_job_without_its_bytes(here: World) -> None:
    """An output above the limit makes the job FAILED without storing it."""
    job_id = await here.submit(max_attempts=5)
    work = await here.take()
    assert await here.report(work, output_bytes=b"x" * (here.terms.output_bytes_max + 1)) == ""
    assert (await here.record(job_id)).failure_reason == "OUTPUT_TOO_LARGE"
    assert (await here.result(job_id)).output_bytes == b""
    await here.check_ended(job_id)


async def test_output_over_the_limit_of_its_owner_alone_fails_the_job() -> None:
    """An output that only the result service finds too large makes the job FAILED."""
    async with world(output_bytes_max=10) as other:
        job_id = await other.submit()
        assert await other.report(await other.take(), output_bytes=b"x" * 11) == ""
        assert (await other.record(job_id)).failure_reason == "OUTPUT_TOO_LARGE"
        await other.check_ended(job_id)


async def test_worker_gets_only_jobs_of_its_routes(here: World) -> None:
    """A worker without routes gets no job, and a route matches the job's type."""
    job_id = await here.submit("mail")
    assert not (await here.fetch("w", "sms")).assigned
    assert not (await here.coordinator.fetch("w", pb.Wanted())).assigned
    assert (await here.fetch("w", "sms", "mail")).job_id == job_id
