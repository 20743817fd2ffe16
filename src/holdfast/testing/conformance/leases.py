"""Leases: one holder at a time, expiry, and no effect of reports without a valid lease."""

import asyncio

import pytest

from holdfast.core.capabilities import Capability
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE, QUEUED, RUNNING, TERMINAL
from holdfast.errors import AbortedError, HoldfastError
from holdfast.limits import LOSSES_MAX
from holdfast.testing.conformance.harness import SHORT_LEASE_MS, Control, needs
from holdfast.testing.conformance.workplace import PATIENCE_S, Workplace

SECOND_MS = 1_000


class TestLeasing:
    """Expiry, heartbeats, fencing tokens, and sessions that replace each other."""

    async def test_welcome_carries_the_terms(self, place: Workplace) -> None:
        """The first directive carries the lease length and the heartbeat interval."""
        hand = await place.worker()
        assert hand.welcome.lease_ms >= hand.welcome.heartbeat_ms > 0

    @needs(lease_ms=SHORT_LEASE_MS)
    async def test_job_of_a_silent_worker_goes_to_another(self, place: Workplace) -> None:
        """When a lease expires, the job is granted again, under a larger token, as another attempt."""
        job_id = await place.submit(max_losses=LOSSES_MAX)
        (before,) = await (await place.worker("silent")).take()
        (after,) = await (await place.worker("other")).take()
        # On a slow machine leases may expire before a worker has received them, and the last one as well.
        assert (after.job_id, after.attempt > before.attempt) == (job_id, True)
        assert after.token > before.token
        job = await place.jobs.get(job_id)
        assert job.losses == job.attempts - (job.state == RUNNING) >= 1

    @needs(lease_ms=SHORT_LEASE_MS)
    async def test_holder_hears_that_its_lease_ran_out(self, place: Workplace) -> None:
        """A worker that is still connected receives the token of an expired lease."""
        await place.submit(max_losses=LOSSES_MAX)
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.until(lambda: lease.token in hand.revoked)

    @needs(lease_ms=SHORT_LEASE_MS)
    async def test_late_report_changes_nothing(self, place: Workplace) -> None:
        """The old holder's report is acknowledged and ignored; the new holder's counts."""
        job_id = await place.submit(max_losses=LOSSES_MAX)
        old, new = await place.worker("old"), await place.worker("new")
        (before,) = await old.take()
        (after,) = await new.take()
        await old.done(before, b"old")
        assert (await place.jobs.get(job_id)).state in {RUNNING, QUEUED}
        await new.done(after, b"new")
        while (await place.jobs.get(job_id)).state not in TERMINAL:  # on a slow machine that lease expired as well
            (after,) = await new.take()
            await new.done(after, b"new")
        settled, result = await place.jobs.settled(job_id)
        assert (result.output == b"new") == (settled.token == after.token)
        assert result.output != b"old"

    @needs(Control.CLOCK, lease_ms=10 * SECOND_MS)
    async def test_heartbeats_keep_a_lease(self, place: Workplace) -> None:
        """While its holder sends heartbeats in time, a job stays with it for many times the lease length."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        for _ in range(5):
            await place.harness.advance(8 * SECOND_MS)
            await hand.session.extend()
            job = await place.jobs.get(job_id)
            assert (job.state, job.token) == (RUNNING, lease.token)

    @needs(Control.CLOCK, lease_ms=10 * SECOND_MS)
    async def test_lease_holds_until_it_is_over_and_no_longer(self, place: Workplace) -> None:
        """A lease is not revoked before it expires, and is revoked afterwards."""
        job_id = await place.submit()
        hand = await place.worker()
        await hand.take()
        await place.harness.advance(8 * SECOND_MS)  # plus the real time that this takes
        assert (await place.jobs.get(job_id)).state == RUNNING
        await place.harness.advance(3 * SECOND_MS)
        assert (await place.jobs.get(job_id)).state == QUEUED

    async def test_report_under_a_token_that_never_was_changes_nothing(self, place: Workplace) -> None:
        """The report is acknowledged, so that the worker does not repeat it for ever, and the job still runs."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.report(ReportRow(job_id, lease.token + 1_000_000, DONE, b"forged"))
        assert (await place.jobs.get(job_id)).state == RUNNING
        await hand.done(lease, b"real")
        assert (await place.jobs.result(job_id)).output == b"real"

    async def test_report_of_another_worker_changes_nothing(self, place: Workplace) -> None:
        """A report with a valid token from a worker that does not hold the lease changes nothing."""
        job_id = await place.submit()
        (lease,) = await (await place.worker("holder")).take()
        await (await place.worker("thief")).done(lease, b"stolen")
        assert (await place.jobs.get(job_id)).state == RUNNING

    async def test_report_of_an_unknown_job_is_acknowledged(self, place: Workplace) -> None:
        """A report of an unknown job is acknowledged, and the session continues."""
        job_id = await place.submit()
        hand = await place.worker()
        await hand.report(ReportRow("nobody", 1, DONE))
        assert [lease.job_id for lease in await hand.take()] == [job_id]

    async def test_repeated_report_counts_once(self, place: Workplace) -> None:
        """The same outcome sent again is acknowledged and changes nothing."""
        job_id = await place.submit(max_attempts=3)
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.done(lease, b"one")
        await hand.done(lease, b"two")
        assert (await place.jobs.result(job_id)).output == b"one"

    async def test_failure_reported_twice_is_one_failure(self, place: Workplace) -> None:
        """A repeated report of a failed attempt does not count as another failure."""
        job_id = await place.submit(max_attempts=3)
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.failed(lease)
        await hand.failed(lease)
        job = await place.jobs.get(job_id)
        assert (job.state, job.failures) == (QUEUED, 1)

    async def test_many_outcomes_in_one_report_all_count(self, place: Workplace) -> None:
        """One acknowledgement covers every row of a report."""
        ids = await place.submit_many(20)
        hand = await place.worker(slots=20)
        leases = await hand.take(20)
        await hand.report(*(ReportRow(lease.job_id, lease.token, DONE) for lease in leases))
        assert [(await place.jobs.get(job_id)).state for job_id in ids] == [DONE] * 20

    @needs(Capability.ORDER)
    async def test_tokens_only_grow(self, place: Workplace) -> None:
        """Every grant has a larger token than all before it."""
        await place.submit_many(10)
        hand = await place.worker(slots=10)
        tokens = [lease.token for lease in await hand.take(10)]
        assert tokens == sorted(set(tokens))

    async def test_closed_session_gives_its_jobs_back_at_once(self, place: Workplace) -> None:
        """The next worker need not wait for the lease to expire."""
        job_id = await place.submit()
        hand = await place.worker("first")
        await hand.take()
        await hand.session.close()
        (lease,) = await (await place.worker("second")).take()
        assert (lease.job_id, lease.attempt) == (job_id, 2)

    @needs(Capability.SESSIONS)
    async def test_newer_session_of_a_worker_replaces_the_older(self, place: Workplace) -> None:
        """Of two sessions under one worker id the newer one continues, and the older one is aborted."""
        old = await place.worker("twin")
        new = await place.worker("twin")
        with pytest.raises(AbortedError):
            await old.until(lambda: False)
        job_id = await place.submit()
        assert [lease.job_id for lease in await new.take()] == [job_id]

    async def test_new_session_keeps_a_lease_that_it_names(self, place: Workplace) -> None:
        """A new session that names a lease keeps it, under the same token."""
        job_id = await place.submit()
        (lease,) = await (await place.worker("back")).take()
        again = await place.worker("back", held={lease.token: job_id})
        assert again.revoked == []
        await again.done(lease, b"kept")
        job, result = await place.jobs.settled(job_id)
        assert (job.attempts, result.output) == (1, b"kept")

    async def test_lease_that_a_new_session_does_not_name_goes_to_another_worker(self, place: Workplace) -> None:
        """A lease that the new session of its worker does not name goes to another worker."""
        job_id = await place.submit()
        await (await place.worker("forgetful")).take()
        await place.worker("forgetful")
        (lease,) = await (await place.worker("other")).take()
        assert lease.job_id == job_id

    @needs(Capability.SESSIONS)
    async def test_lease_that_another_session_does_not_name_is_no_loss(self, place: Workplace) -> None:
        """With sessions, a lease that the worker's next session does not name goes back without counting as a loss."""
        job_id = await place.submit()
        await (await place.worker("forgetful")).take()
        await place.worker("forgetful")
        await (await place.worker("other")).take()
        assert (await place.jobs.get(job_id)).losses == 0

    async def test_worker_is_told_which_of_the_leases_it_names_are_gone(self, place: Workplace) -> None:
        """A named lease that has ended or never existed is revoked at the beginning of the session."""
        job_id = await place.submit()
        hand = await place.worker("back")
        (lease,) = await hand.take()
        await hand.done(lease)
        again = await place.worker("back", held={lease.token: job_id, 999_999_999: "nobody"})
        await again.until(lambda: len(again.revoked) >= 2)  # several nodes may revoke them one after another
        assert sorted(again.revoked) == sorted([lease.token, 999_999_999])

    async def test_ended_session_refuses_to_go_on(self, place: Workplace) -> None:
        """After `close`, waiting for a directive raises instead of waiting for ever."""
        hand = await place.worker()
        await hand.session.close()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(HoldfastError):
                await hand.session.next()
