"""Retries: the separate budgets for failures and losses, and retries of ended jobs as new jobs."""

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
#: Maximum difference of the clocks of two processes of a backend: a clock that never goes back follows no correction.
CLOCKS_MS = 1_000


async def lose(place: Workplace, name: str) -> None:
    """Makes a worker take a job and close its session."""
    hand = await place.worker(name)
    await hand.take()
    await hand.session.close()


async def fail(hand: Hand, reason: str = "it broke") -> None:
    """Makes a worker take a job and report a failure."""
    (lease,) = await hand.take()
    await hand.failed(lease, reason)


class TestRetrying:
    """Jobs whose attempts fail or are lost."""

    async def test_failed_attempt_is_followed_by_another(self, place: Workplace) -> None:
        """While attempts are left, a failed job is granted again, as the next attempt."""
        job_id = await place.submit(max_attempts=2, backoff=AT_ONCE)
        hand = await place.worker()
        await fail(hand)
        (lease,) = await hand.take()
        assert (lease.job_id, lease.attempt) == (job_id, 2)
        await hand.done(lease, b"second")
        job, result = await place.jobs.settled(job_id)
        assert (job.state, job.failures, result.output) == (DONE, 1, b"second")

    async def test_failure_that_is_told_again_leaves_the_next_attempt_alone(self, place: Workplace) -> None:
        """A repeated report of a failed attempt does not affect the next attempt, which may already run."""
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
        """Without a history the job has its last attempt, with a note that earlier attempts are missing."""

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
        """The attempt of a job that ran at most once is known without the history, which may be long."""

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
        """If reading the history fails, the last attempt is returned with the reason why others are missing."""

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
        """When no attempt is left, the job fails with the reason of the last attempt."""
        job_id = await place.submit(max_attempts=2, backoff=AT_ONCE)
        hand = await place.worker()
        await fail(hand, "FIRST")
        await fail(hand, "LAST")
        job = await place.jobs.get(job_id)
        assert (job.state, job.failure_reason, job.attempts) == (FAILED, "LAST", 2)

    async def test_job_is_tried_once_unless_more_is_asked_for(self, place: Workplace) -> None:
        """By default a job fails with its first failed attempt."""
        job_id = await place.submit()
        await fail(await place.worker())
        assert (await place.jobs.get(job_id)).state == FAILED

    async def test_failure_that_is_not_worth_repeating_ends_the_job(self, place: Workplace) -> None:
        """A failure that is not retryable ends the job, although attempts are left."""
        job_id = await place.submit(max_attempts=9)
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.failed(lease, is_retryable=False)
        job = await place.jobs.get(job_id)
        assert (job.state, job.attempts) == (FAILED, 1)

    @pytest.mark.parametrize(("kind", "wait_ms"), [(FIXED, 50_000), (QUADRATIC, 50_000)])
    async def test_backoff_says_when_the_next_attempt_is_due(self, place: Workplace, kind: int, wait_ms: int) -> None:
        """After a failure the job waits for the back-off of its template."""
        job_id = await place.submit(max_attempts=2, backoff=BackoffRule(kind, 50_000, 3_600_000))
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.failed(lease)
        job = await place.jobs.get(job_id)
        assert job.state == QUEUED
        assert job.not_before_ms >= job.started_ms + wait_ms - CLOCKS_MS

    async def test_job_waits_as_long_as_its_handler_asked(self, place: Workplace) -> None:
        """A retry delay of the handler takes precedence over the template's back-off."""
        job_id = await place.submit(max_attempts=2, backoff=AT_ONCE)
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.report(ReportRow(job_id, lease.token, FAILED, retry_after_ms=900_000))
        job = await place.jobs.get(job_id)
        assert job.not_before_ms >= job.started_ms + 900_000 - CLOCKS_MS

    async def test_lost_worker_costs_no_attempt(self, place: Workplace) -> None:
        """A loss does not count as a failure, so a job with one attempt is granted again."""
        job_id = await place.submit(max_attempts=1)
        await lose(place, "lost")
        (lease,) = await (await place.worker("next")).take()
        job = await place.jobs.get(job_id)
        assert (lease.job_id, job.failures, job.losses) == (job_id, 0, 1)

    async def test_job_that_loses_too_many_workers_fails(self, place: Workplace) -> None:
        """A job with more losses than `max_losses` fails, with a reason and a summary."""
        job_id = await place.submit(max_losses=1)
        await lose(place, "first")
        await lose(place, "second")
        job, result = await place.jobs.settled(job_id)
        assert (job.state, job.losses, job.attempts) == (FAILED, 2, 2)
        assert job.failure_reason
        assert result.summary

    async def test_retry_makes_a_new_job_like_the_old_one(self, place: Workplace) -> None:
        """A retry has the same template, payload, labels and headers, names the old job, and leaves that unchanged."""
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
        """A retry of a waiting or running job is refused."""
        job_id = await place.submit()
        with pytest.raises(FailedPreconditionError) as caught:
            await place.jobs.retry(job_id)
        assert caught.value.reason == "JOB_NOT_ENDED"
        await (await place.worker()).take()
        with pytest.raises(FailedPreconditionError):
            await place.jobs.retry(job_id)

    async def test_retry_under_a_request_id_is_done_once(self, place: Workplace) -> None:
        """Retries under one request id return the same job, and each retry without one makes a new job."""
        old = await place.run(await place.worker())
        request_id = place.name("again")
        first = await place.jobs.retry(old, request_id)
        assert await place.jobs.retry(old, request_id) == first
        assert await place.jobs.retry(old) != first

    async def test_retry_takes_no_keys_along(self, place: Workplace) -> None:
        """A retry does not have the request id or the unique key of the old job."""
        extra = Extra(request_id=place.name("request"), unique_key="only-one")
        old = await place.submit(extra=extra)
        await place.jobs.cancel(old, "")
        job = await place.jobs.get(await place.jobs.retry(old))
        assert job.extra == Extra(retry_of=old)
