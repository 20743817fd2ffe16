"""The load balancer and the ports behind it, over real HTTP."""

import asyncio

import pytest

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE, State
from holdfast.core.model import Extra, QueueMode, Template
from holdfast.errors import InvalidArgumentError, NotFoundError, UnavailableError
from holdfast.ports import Introduction, JobDraft, JobQuery, ScheduleSpec
from holdfast.topologies.pipeline.backend.http_client import LATE, NotDeliveredError
from holdfast.topologies.pipeline.backend.port_rpc import METHODS, question
from holdfast.topologies.pipeline.backend.remote_api import BalancedAdmin, BalancedJobs, BalancedSchedules
from tests.integration.pipeline.schedulers_in_process import site


async def test_calls_go_round() -> None:
    """The load balancer distributes calls over all healthy schedulers."""
    async with site(3) as here:
        asked: list[str] = []
        carry = here.lines.carry

        async def counted(address: str, path: str, body: bytes, *, deadline_s: float = 1) -> bytes:
            asked.append(address)
            return await carry(address, path, body, deadline_s=deadline_s)

        here.lines.carry = counted  # type: ignore[method-assign]
        for _ in range(6):
            await here.balancer.call(METHODS["admin.stats"], question())
        assert sorted(asked) == sorted([one.address for one in here.schedulers] * 2)


async def test_dead_scheduler_is_left_out_and_taken_back() -> None:
    """No call fails when one of two schedulers stops, and it gets calls again when it is back."""
    async with site(2) as here:
        jobs, (first, second) = BalancedJobs(here.balancer), here.schedulers
        await first.stop()
        for _ in range(4):
            await jobs.submit([Template("x")], [JobDraft()])
        await here.until(False, True)
        await first.start()
        await here.until(True, True)
        await second.stop()
        await jobs.submit([Template("x")], [JobDraft()])


async def test_scheduler_without_database_is_left_out() -> None:
    """A scheduler that reports that it is not ready gets no calls."""
    async with site(2) as here:
        here.schedulers[0].is_ready = False
        await here.until(False, True)
        here.schedulers[0].is_ready = True
        await here.until(True, True)


async def test_late_connection_does_not_mark_its_scheduler_unhealthy() -> None:
    """A connection that was not made in time does not mark its scheduler as unhealthy."""
    async with site(1) as here:
        jobs, carry, late = BalancedJobs(here.balancer), here.lines.carry, ["first"]

        async def carried(address: str, path: str, body: bytes, *, deadline_s: float = 1) -> bytes:
            if late:
                raise NotDeliveredError(f"the scheduler did not answer the {late.pop()} call", reason=LATE)
            return await carry(address, path, body, deadline_s=deadline_s)

        here.lines.carry = carried  # type: ignore[method-assign]
        (job_id,) = (await jobs.submit([Template("x")], [JobDraft()])).job_ids
        assert (await jobs.get(job_id)).state is State.QUEUED
        assert late == []


async def test_gateway_reports_at_once_that_no_scheduler_is_healthy() -> None:
    """A call without a healthy scheduler fails at once with UNAVAILABLE and a retry hint."""
    async with site(1) as here:
        jobs = BalancedJobs(here.balancer)
        await here.schedulers[0].stop()
        with pytest.raises(UnavailableError) as refused:
            await jobs.get("00000000-0000-4000-8000-000000000000")
        assert refused.value.reason == "SCHEDULERS_AWAY"
        assert refused.value.details["retry_after_s"] == "1"


async def test_silent_scheduler_is_not_waited_for() -> None:
    """A call that a scheduler does not answer goes to another one as soon as the first is found to be unhealthy."""
    async with site(2) as here:
        callers, stuck = [BalancedJobs(here.balancer) for _ in range(4)], here.schedulers[0]
        stuck.is_stuck = True
        submitting = [asyncio.create_task(jobs.submit([Template("x")], [JobDraft()])) for jobs in callers]
        await stuck.asked.wait()
        stuck.is_ready = False
        answers = await asyncio.gather(*submitting)
        assert all(submitted.job_ids[0] for submitted in answers)
        assert [submitted.existing for submitted in answers] == [frozenset()] * 4


async def test_load_balancer_does_not_repeat_a_purge_with_an_unknown_outcome() -> None:
    """A purge whose scheduler stops has an unknown outcome, and the load balancer does not repeat it."""
    async with site(2) as here:
        (job_id,) = (await here.ledger.jobs.submit([Template("x", "q")], [JobDraft()])).job_ids
        for one in here.schedulers:
            one.is_stuck = True
        purging = asyncio.create_task(BalancedAdmin(here.balancer).purge("q", "enough"))
        await asyncio.wait(
            [asyncio.create_task(one.asked.wait()) for one in here.schedulers], return_when="FIRST_COMPLETED"
        )
        asked = [one for one in here.schedulers if one.asked.is_set()]
        for one in asked:
            await one.stop()
        with pytest.raises(UnavailableError, match="unknown whether"):
            await purging
        assert len(asked) == 1
        assert (await here.ledger.jobs.get(job_id)).state is State.QUEUED


async def test_submissions_travel_together_and_are_told_apart() -> None:
    """Concurrent submits share a few requests, and each caller gets its own jobs and refusals."""
    async with site(1) as here:
        jobs, sent = BalancedJobs(here.balancer), list[int]()
        carry = here.lines.carry

        async def counted(address: str, path: str, body: bytes, *, deadline_s: float = 1) -> bytes:
            sent.append(len(body))
            return await carry(address, path, body, deadline_s=deadline_s)

        here.lines.carry = counted  # type: ignore[method-assign]
        drafts = [[JobDraft(payload=str(number).encode()), JobDraft(payload=b"x")] for number in range(50)]
        given = [jobs.submit([Template(f"type-{number % 3}")], drafts[number]) for number in range(50)]
        bad = jobs.submit([Template("x")], [JobDraft(id="nonsense"), JobDraft()])
        *answers, mixed = await asyncio.gather(*given, bad)
        assert len(sent) < 25
        for number, submitted in enumerate(answers):
            assert (submitted.refusals, submitted.existing) == ({}, frozenset())
            assert await here.ledger.jobs.payload(submitted.job_ids[0]) == str(number).encode()
            assert (await here.ledger.jobs.get(submitted.job_ids[1])).template.type == f"type-{number % 3}"
        assert (set(mixed.refusals), bool(mixed.job_ids[1])) == ({0}, True)


async def test_bad_submission_costs_no_other() -> None:
    """An invalid submit fails for its own caller and not for those whose submits share its request."""
    async with site(1) as here:
        jobs = BalancedJobs(here.balancer)
        good = [jobs.submit([Template("x")], [JobDraft()]) for _ in range(12)]
        bad = jobs.submit([Template("x", priority=99)], [JobDraft()])
        *answers, refused = await asyncio.gather(*good, bad, return_exceptions=True)
        assert [one for one in answers if isinstance(one, BaseException)] == []
        assert isinstance(refused, InvalidArgumentError) or refused.refusals  # type: ignore[union-attr]


async def test_repeated_submission_is_found_by_its_key() -> None:
    """A repeated submit with the same request id returns the first job, marked as existing."""
    async with site(1) as here:
        jobs, draft = BalancedJobs(here.balancer), JobDraft(extra=Extra(request_id="once"))
        first = await jobs.submit([Template("x")], [draft])
        second = await jobs.submit([Template("x")], [draft])
        assert (first.job_ids, first.existing) == (second.job_ids, frozenset())
        assert second.existing == frozenset({0})


async def test_error_of_a_scheduler_reaches_the_caller_unchanged() -> None:
    """An error of a scheduler reaches the caller as the same error."""
    async with site(1) as here:
        jobs = BalancedJobs(here.balancer)
        with pytest.raises(NotFoundError) as there:
            await jobs.get("00000000-0000-4000-8000-000000000000")
        with pytest.raises(NotFoundError) as here_error:
            await here.ledger.jobs.get("00000000-0000-4000-8000-000000000000")
        assert (there.value.reason, there.value.message) == (here_error.value.reason, here_error.value.message)


async def test_every_method_crosses_the_wire() -> None:
    """Every method through the load balancer gives the result of the scheduler's own port."""
    async with site(1) as here:
        balancer, ledger = here.balancer, here.ledger
        jobs, admin, schedules = BalancedJobs(balancer), BalancedAdmin(balancer), BalancedSchedules(balancer)
        extra = Extra(labels=(("a", "b"),), unique_key="u")
        (job_id,) = (await jobs.submit([Template("x", "q")], [JobDraft(payload=b"p", extra=extra)])).job_ids
        assert await jobs.get(job_id) == await ledger.jobs.get(job_id)
        assert await jobs.payload(job_id) == b"p"
        assert await jobs.explain(job_id) == await ledger.jobs.explain(job_id)
        assert (await jobs.page([State.QUEUED], 0, 5, newest_first=True)).jobs == [await jobs.get(job_id)]
        assert (await jobs.find(JobQuery(labels={"a": "b"}), "", 5)).jobs == [await jobs.get(job_id)]
        assert [queue.name for queue in await admin.queues()] == ["q"]
        await admin.set_queue_mode("q", QueueMode.PAUSED, "why not")
        assert (await admin.queues())[0].mode is QueueMode.PAUSED
        assert await admin.workers() == []
        assert (await admin.stats()).states == (await ledger.admin.stats()).states
        with pytest.raises(NotFoundError):
            await admin.drain_worker("nobody")
        assert await admin.purge("q", "enough") == 1
        assert (await jobs.result(job_id)).state is State.CANCELED
        assert (await jobs.cancel(job_id, "again")).was_terminal
        assert await jobs.retry(job_id, "under-a-key") == await jobs.retry(job_id, "under-a-key")
        spec = ScheduleSpec("s", Template("x"), cron="* * * * *")
        assert (await schedules.set(spec)).spec == spec == (await schedules.get("s")).spec
        assert (await schedules.pause("s", is_paused=True)).is_paused
        assert len(await schedules.preview(spec, 0, 3)) == 3
        assert (await jobs.get(await schedules.trigger("s"))).template.type == "x"
        assert [one.spec.name for one in await schedules.all()] == ["s"]
        await schedules.delete("s")
        assert await schedules.all() == []


async def test_watch_and_settled_hear_of_the_end() -> None:
    """A caller that waits for a job or watches it by polling gets its changes and its result."""
    async with site(1) as here:
        jobs = BalancedJobs(here.balancer)
        (job_id,) = (await jobs.submit([Template("x")], [JobDraft()])).job_ids

        async def watch() -> list[State]:
            return [view.state async for view in jobs.watch(job_id)]

        watching, waiting = asyncio.create_task(watch()), asyncio.create_task(jobs.settled(job_id))
        session = await here.ledger.work.open(Introduction("w", frozenset({"x"})))
        await session.want(1)
        while not (leases := (await session.next()).leases):
            pass
        await session.report(1, [ReportRow(job_id, leases[0].token, DONE, b"out")])
        async with asyncio.timeout(30):
            states = await watching
            view, result = await waiting
        assert (view.state, result.output, states[-1]) == (State.DONE, b"out", State.DONE)
        await session.close()


async def test_more_wait_than_there_are_connections_for() -> None:
    """A thousand waits for one job leave connections for other calls, and all of them end with the job."""
    async with site(1) as here:
        jobs = BalancedJobs(here.balancer)
        (job_id,) = (await jobs.submit([Template("x")], [JobDraft()])).job_ids
        waiting = [asyncio.create_task(jobs.settled(job_id)) for _ in range(1_000)]
        assert (await jobs.get(job_id)).state is State.QUEUED
        await jobs.cancel(job_id, "enough")
        async with asyncio.timeout(240):
            ends = await asyncio.gather(*waiting)
        assert {view.state for view, _ in ends} == {State.CANCELED}
