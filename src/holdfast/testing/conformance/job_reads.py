"""Reads of jobs: states, results, waits for the end, and watches."""

import asyncio

import pytest

from holdfast.core.capabilities import Capability
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import Note
from holdfast.errors import NotFoundError
from holdfast.ports import JobDraft
from holdfast.testing.conformance.harness import needs
from holdfast.testing.conformance.workplace import PATIENCE_S, Workplace, accepted, eventually, soon

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


class TestReading:
    """Reads, waits and watches."""

    @pytest.mark.parametrize("call", ["get", "result", "payload", "explain", "settled", "retry"])
    async def test_unknown_job_is_not_found(self, place: Workplace, call: str) -> None:
        """Every read of an unknown job is not found."""
        with pytest.raises(NotFoundError):
            await getattr(place.jobs, call)(UNKNOWN_ID)

    async def test_unknown_job_can_be_neither_watched_nor_canceled(self, place: Workplace) -> None:
        """A watch or a cancel of an unknown job is not found."""
        with pytest.raises(NotFoundError):
            await soon(place.jobs.watch(UNKNOWN_ID))
        with pytest.raises(NotFoundError):
            await place.jobs.cancel(UNKNOWN_ID, "")

    async def test_job_that_has_not_ended_has_no_result(self, place: Workplace) -> None:
        """The result of a job that has not ended has its state, and nothing else."""
        job_id = await place.submit()
        result = await place.jobs.result(job_id)
        assert (result.state, result.output, result.summary) == (QUEUED, b"", "")

    async def test_result_equals_the_report_of_the_worker(self, place: Workplace) -> None:
        """A result has the output, summary and runtime that the worker reported."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.report(ReportRow(job_id, lease.token, DONE, b"\x00out", "all good", runtime_ms=12))
        result = await place.jobs.result(job_id)
        assert (result.state, result.output, result.summary, result.runtime_ms) == (DONE, b"\x00out", "all good", 12)

    async def test_failure_without_a_summary_shows_its_reason_there(self, place: Workplace) -> None:
        """The summary of a failed job is that of the worker, or the failure reason if the worker gave none."""
        hand = await place.worker()
        for summary, shown in (("", "NO_LUCK"), ("it rained", "it rained")):
            job_id = await place.submit()
            (lease,) = await hand.take()
            await hand.report(ReportRow(job_id, lease.token, FAILED, b"", summary, "NO_LUCK"))
            view, settled = await place.jobs.settled(job_id)
            result = await place.jobs.result(job_id)
            assert (view.failure_reason, result.state, result.summary) == ("NO_LUCK", FAILED, shown)
            assert settled == result

    async def test_lease_carries_payload_type_queue_attempt_and_timeout(self, place: Workplace) -> None:
        """Payload, type, queue, attempt and timeout reach the worker."""
        job_id = await place.submit(b"in", timeout_ms=5_000)
        (lease,) = await (await place.worker()).take()
        assert (lease.job_id, lease.payload, lease.type, lease.queue) == (job_id, b"in", place.type, place.queue)
        assert (lease.attempt, lease.timeout_ms) == (1, 5_000)

    async def test_running_job_names_its_holder(self, place: Workplace) -> None:
        """A running job has the id of its worker, the token and the start time."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        job = await place.jobs.get(job_id)
        assert (job.state, job.worker, job.token, job.attempts) == (RUNNING, hand.worker_id, lease.token, 1)
        assert job.started_ms >= job.created_ms

    async def test_ended_job_names_no_holder(self, place: Workplace) -> None:
        """An ended job has no worker, and has the time of its end."""
        job_id = await place.run(await place.worker())
        job = await place.jobs.get(job_id)
        assert (job.state, job.worker) == (DONE, "")
        assert job.finished_ms >= job.started_ms

    async def test_settled_waits_for_the_end(self, place: Workplace) -> None:
        """`settled` returns when the job ends, with the job and its result."""
        job_id = await place.submit()
        waiting = asyncio.create_task(place.jobs.settled(job_id))
        hand = await place.worker()
        (lease,) = await hand.take()
        assert not waiting.done()
        await hand.done(lease, b"out")
        job, result = await asyncio.wait_for(waiting, PATIENCE_S)
        assert (job.id, job.state, result.state, result.output) == (job_id, DONE, DONE, b"out")

    async def test_settled_answers_at_once_about_a_job_that_has_ended(self, place: Workplace) -> None:
        """`settled` returns at once for an ended job."""
        job_id = await place.run(await place.worker(), output=b"out")
        job, result = await place.jobs.settled(job_id)
        assert (job.state, result.output) == (DONE, b"out")

    async def test_settled_tells_a_failure(self, place: Workplace) -> None:
        """`settled` returns the reason of a failed job."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.failed(lease, "BROKEN")
        job, result = await place.jobs.settled(job_id)
        assert (job.state, job.failure_reason, result.state) == (FAILED, "BROKEN", FAILED)

    async def test_end_of_a_job_answers_all_waiting_callers(self, place: Workplace) -> None:
        """The end of a job answers all waiting callers."""
        job_id = await place.submit()
        waiting = [asyncio.create_task(place.jobs.settled(job_id)) for _ in range(10)]
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.done(lease)
        ends = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
        assert [job.state for job, _ in ends] == [DONE] * 10

    async def test_waiting_can_be_given_up_and_begun_again(self, place: Workplace) -> None:
        """A caller that stops waiting affects neither the job nor other callers, and may wait again."""
        job_id = await place.submit()
        patient = asyncio.create_task(place.jobs.settled(job_id))
        impatient = asyncio.create_task(place.jobs.settled(job_id))
        hand = await place.worker()
        (lease,) = await hand.take()
        impatient.cancel()
        await asyncio.wait([impatient])
        again = asyncio.create_task(place.jobs.settled(job_id))
        await hand.done(lease)
        ends = await asyncio.wait_for(asyncio.gather(patient, again), PATIENCE_S)
        assert [job.state for job, _ in ends] == [DONE, DONE]

    async def test_watch_tells_each_state_until_the_end(self, place: Workplace) -> None:
        """A watch yields the job as queued, running and ended, and then ends."""
        job_id = await place.submit()
        watch = place.jobs.watch(job_id)
        assert (await soon(watch)).state == QUEUED
        hand = await place.worker()
        (lease,) = await hand.take()
        assert (await soon(watch)).state == RUNNING
        await hand.done(lease)
        assert [job.state async for job in watch] == [DONE]

    async def test_watch_of_an_ended_job_tells_it_once(self, place: Workplace) -> None:
        """A watch of an ended job yields it once."""
        job_id = await place.run(await place.worker())
        assert [job.state async for job in place.jobs.watch(job_id)] == [DONE]

    @needs(Capability.WORKERS)
    async def test_explanation_names_a_missing_worker_or_the_running_one(self, place: Workplace) -> None:
        """The explanation of a job that no worker can run says so, and that of a running job names its worker."""
        job_id = await place.submit()
        before = await place.jobs.explain(job_id)
        assert (before.state, before.reason in {"NO_WORKER", "TYPE_UNKNOWN"}) == (QUEUED, True)
        hand = await place.worker()
        await hand.take()
        running = await place.jobs.explain(job_id)
        assert (running.state, running.reason) == (RUNNING, "RUNNING")
        assert hand.worker_id in running.sentence

    async def test_explanation_of_a_job_that_is_not_due_says_when_it_is(self, place: Workplace) -> None:
        """The explanation of a job that is due later says so, and that of an ended job says that it has ended."""
        job_id = accepted(await place.submit_draft(JobDraft(delay_ms=3_600_000)))[0]
        assert (await place.jobs.explain(job_id)).reason == "DELAYED"
        await place.jobs.cancel(job_id, "not needed")
        ended = await place.jobs.explain(job_id)
        assert (ended.state, ended.reason) == (CANCELED, "ENDED")

    @needs(Capability.NOTES)
    async def test_progress_is_seen_while_the_job_runs(self, place: Workplace) -> None:
        """A job has the progress of its attempt while it runs, and no longer after the attempt."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.session.note([Note(job_id, lease.token, 250, "a quarter")])
        job = await eventually(lambda: place.jobs.get(job_id), lambda job: job.progress)
        assert job.progress is not None
        assert (job.progress.permille, job.progress.message) == (250, "a quarter")
        await hand.done(lease)
        assert (await place.jobs.get(job_id)).progress is None

    @needs(Capability.NOTES)
    async def test_watch_tells_progress(self, place: Workplace) -> None:
        """A watch yields the job when its progress changes."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        watch = place.jobs.watch(job_id)
        assert (await soon(watch)).progress is None
        await hand.session.note([Note(job_id, lease.token, 500, "half")])
        progress = (await soon(watch)).progress
        assert progress is not None
        assert (progress.permille, progress.message) == (500, "half")
