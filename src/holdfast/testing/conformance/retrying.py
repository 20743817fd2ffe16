"""Tries: failures and losses, each with a budget of its own, and new jobs like old ones."""

import msgspec
import pytest

from holdfast.core.commands import ReportRow
from holdfast.core.failure import Failure
from holdfast.core.history import Entry
from holdfast.core.lifecycle import DONE, FAILED, QUEUED, RUNNING, name
from holdfast.core.model import FIXED, QUADRATIC, BackoffRule, Extra
from holdfast.errors import DeadlineExceededError, FailedPreconditionError, UnimplementedError
from holdfast.server.attempts import attempts_of
from holdfast.testing.conformance.workplace import Hand, Workplace

AT_ONCE = BackoffRule(FIXED, 0, 0)
#: So much may lie between the clocks of two processes of one backend: one that never goes back follows no correction.
CLOCKS_MS = 1_000


async def lose(place: Workplace, name: str) -> None:
    """A worker takes a job and is gone."""
    hand = await place.worker(name)
    await hand.take()
    await hand.session.close()


async def fail(hand: Hand, reason: str = "it broke") -> None:
    """A worker takes a job and fails."""
    (lease,) = await hand.take()
    await hand.failed(lease, reason)


class TestRetrying:
    """What becomes of jobs whose attempts end badly."""

    async def test_failed_attempt_is_followed_by_another(self, place: Workplace) -> None:
        """While attempts are left, a job that failed is granted again, as the next attempt."""
        job_id = await place.submit(max_attempts=2, backoff=AT_ONCE)
        hand = await place.worker()
        await fail(hand)
        (lease,) = await hand.take()
        assert (lease.job_id, lease.attempt) == (job_id, 2)
        await hand.done(lease, b"second")
        job, result = await place.jobs.settled(job_id)
        assert (job.state, job.failures, result.output) == (DONE, 1, b"second")

    async def test_failure_that_is_told_again_leaves_the_next_attempt_alone(self, place: Workplace) -> None:
        """A worker repeats what it was not answered; by then the job may run again, and that is another attempt."""
        job_id = await place.submit(max_attempts=2, backoff=AT_ONCE)
        hand = await place.worker()
        (first,) = await hand.take()
        await hand.failed(first)
        (second,) = await hand.take()
        await hand.failed(first)
        await hand.done(second, b"second")
        job, result = await place.jobs.settled(job_id)
        assert (job.state, job.failures, result.output) == (DONE, 1, b"second")

    async def test_failure_of_the_last_attempt_is_known_without_a_history(self, place: Workplace) -> None:
        """Number, times, reason and traceback of the last attempt are with the job; that others are missing is said."""

        async def no_history(_: str) -> list[Entry]:
            raise UnimplementedError("no history here")

        job_id = await place.submit(max_attempts=2, backoff=AT_ONCE)
        hand = await place.worker()
        await fail(hand, "FIRST")
        (lease,) = await hand.take()
        output = msgspec.json.encode(Failure("ValueError", "bad", "Traceback of bad"))
        await hand.report(ReportRow(job_id, lease.token, FAILED, output, failure_reason="ValueError: bad"))
        found = await attempts_of(place.jobs, no_history, await place.jobs.get(job_id))
        (last,) = found.attempts
        assert (last.number, last.outcome, last.reason) == (2, "FAILED", "ValueError: bad")
        assert last.detail == "Traceback of bad"
        assert 0 < last.started_ms <= last.ended_ms
        assert found.missing == "this topology keeps no earlier attempts"

    @pytest.mark.parametrize("state", [QUEUED, RUNNING, DONE, FAILED])
    async def test_only_attempt_is_known_without_reading_a_history(self, place: Workplace, state: int) -> None:
        """A history may be as long as the journal; a job that was run once at most tells its attempt itself."""

        async def unread(_: str) -> list[Entry]:
            raise AssertionError("the history was read")

        job_id = await place.submit()
        if state != QUEUED:
            hand = await place.worker()
            (lease,) = await hand.take()
            if state == DONE:
                await hand.done(lease)
            elif state == FAILED:
                await hand.failed(lease)
        found = await attempts_of(place.jobs, unread, await place.jobs.get(job_id))
        assert [(one.number, one.outcome) for one in found.attempts] == ([(1, name(state))] if state != QUEUED else [])
        assert found.missing == ""

    async def test_history_that_cannot_be_read_leaves_the_last_attempt(self, place: Workplace) -> None:
        """Where the history takes too long, the last attempt is told, and the sentence says why others are missing."""

        async def slow(_: str) -> list[Entry]:
            raise DeadlineExceededError("no answer in time")

        job_id = await place.submit(max_attempts=2, backoff=AT_ONCE)
        hand = await place.worker()
        await fail(hand)
        await fail(hand)
        found = await attempts_of(place.jobs, slow, await place.jobs.get(job_id))
        assert [(one.number, one.outcome) for one in found.attempts] == [(2, "FAILED")]
        assert found.missing.endswith("the history could not be read: no answer in time")

    async def test_last_attempt_decides(self, place: Workplace) -> None:
        """When no attempt is left, the job has failed, for the reason of the last one."""
        job_id = await place.submit(max_attempts=2, backoff=AT_ONCE)
        hand = await place.worker()
        await fail(hand, "FIRST")
        await fail(hand, "LAST")
        job = await place.jobs.get(job_id)
        assert (job.state, job.failure_reason, job.attempts) == (FAILED, "LAST", 2)

    async def test_job_is_tried_once_unless_more_is_asked_for(self, place: Workplace) -> None:
        """By default the first failure is the last."""
        job_id = await place.submit()
        await fail(await place.worker())
        assert (await place.jobs.get(job_id)).state == FAILED

    async def test_failure_that_is_not_worth_repeating_ends_the_job(self, place: Workplace) -> None:
        """A handler that says so uses no more attempts."""
        job_id = await place.submit(max_attempts=9)
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.failed(lease, is_retryable=False)
        job = await place.jobs.get(job_id)
        assert (job.state, job.attempts) == (FAILED, 1)

    @pytest.mark.parametrize(("kind", "wait_ms"), [(FIXED, 50_000), (QUADRATIC, 50_000)])
    async def test_backoff_says_when_the_next_attempt_is_due(self, place: Workplace, kind: int, wait_ms: int) -> None:
        """After a failure the job waits as its template says."""
        job_id = await place.submit(max_attempts=2, backoff=BackoffRule(kind, 50_000, 3_600_000))
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.failed(lease)
        job = await place.jobs.get(job_id)
        assert job.state == QUEUED
        assert job.not_before_ms >= job.started_ms + wait_ms - CLOCKS_MS

    async def test_job_waits_as_long_as_its_handler_asked(self, place: Workplace) -> None:
        """A wait named by the handler goes before the template's backoff."""
        job_id = await place.submit(max_attempts=2, backoff=AT_ONCE)
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.report(ReportRow(job_id, lease.token, FAILED, retry_after_ms=900_000))
        job = await place.jobs.get(job_id)
        assert job.not_before_ms >= job.started_ms + 900_000 - CLOCKS_MS

    async def test_lost_worker_costs_no_attempt(self, place: Workplace) -> None:
        """A loss is no failure: a job that may fail only once is still granted again."""
        job_id = await place.submit(max_attempts=1)
        await lose(place, "lost")
        (lease,) = await (await place.worker("next")).take()
        job = await place.jobs.get(job_id)
        assert (lease.job_id, job.failures, job.losses) == (job_id, 0, 1)

    async def test_job_that_loses_too_many_workers_fails(self, place: Workplace) -> None:
        """Beyond its budget of losses a job is not given to anybody else, and says why."""
        job_id = await place.submit(max_losses=1)
        await lose(place, "first")
        await lose(place, "second")
        job, result = await place.jobs.settled(job_id)
        assert (job.state, job.losses, job.attempts) == (FAILED, 2, 2)
        assert job.failure_reason
        assert result.summary

    async def test_retry_makes_a_new_job_like_the_old_one(self, place: Workplace) -> None:
        """Template, payload, labels and headers are the same, the new job names the old one, and that stays."""
        extra = Extra(labels=(("a", "b"),), headers=(("c", "d"),))
        old = await place.submit(b"in", extra=extra, priority=8)
        await place.jobs.cancel(old, "")
        new = await place.jobs.retry(old)
        job = await place.jobs.get(new)
        assert new != old
        assert (job.state, job.template) == (QUEUED, place.template(priority=8))
        assert job.extra == Extra(labels=extra.labels, headers=extra.headers, retry_of=old)
        assert await place.jobs.payload(new) == b"in"
        assert (await place.jobs.get(old)).state != QUEUED

    async def test_job_that_has_not_ended_cannot_be_retried(self, place: Workplace) -> None:
        """Neither a job that waits nor one that runs."""
        job_id = await place.submit()
        with pytest.raises(FailedPreconditionError) as caught:
            await place.jobs.retry(job_id)
        assert caught.value.reason == "JOB_NOT_ENDED"
        await (await place.worker()).take()
        with pytest.raises(FailedPreconditionError):
            await place.jobs.retry(job_id)

    async def test_retry_under_a_request_id_is_done_once(self, place: Workplace) -> None:
        """The same retry finds the same job; without a request id each one makes another."""
        old = await place.run(await place.worker())
        request_id = place.name("again")
        first = await place.jobs.retry(old, request_id)
        assert await place.jobs.retry(old, request_id) == first
        assert await place.jobs.retry(old) != first

    async def test_retry_takes_no_keys_along(self, place: Workplace) -> None:
        """The old job's request id and unique key stay its own."""
        extra = Extra(request_id=place.name("request"), unique_key="only-one")
        old = await place.submit(extra=extra)
        await place.jobs.cancel(old, "")
        job = await place.jobs.get(await place.jobs.retry(old))
        assert job.extra == Extra(retry_of=old)
