"""Waiting for the end of a job on the caller's own thread, in the process that serves the ledger."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.core.lifecycle import State
from holdfast.core.model import Template
from holdfast.errors import NotFoundError, UnavailableError
from holdfast.ledger.job_api import LedgerJobs
from holdfast.ports import JobDraft
from holdfast.settings import MEMORY, Settings
from holdfast.topologies.embedded.blocking_ledger import BlockingLedger
from holdfast.topologies.embedded.served_ledger import MemoryLink

JOB = "00000000-0000-4000-8000-000000000001"
#: Far longer than any wait takes; it ends a test that would hang.
LONG_S = 60.0


@pytest.fixture
async def link() -> AsyncIterator[MemoryLink]:
    """A ledger in memory with one waiting job."""
    made = MemoryLink(Settings(data=MEMORY))
    await made.call(lambda ports: ports.jobs.submit([Template("brew")], [JobDraft(id=JOB)]))
    yield made
    await made.close()


def calls_of(link: MemoryLink) -> BlockingLedger:
    """The blocking calls of the link."""
    calls = link.blocking_calls()
    assert isinstance(calls, BlockingLedger)
    return calls


def waits(link: MemoryLink) -> int:
    """The number of jobs whose end is awaited."""
    jobs = calls_of(link)._jobs
    assert isinstance(jobs, LedgerJobs)
    return len(jobs._waiters._ends)


async def begun(link: MemoryLink) -> None:
    """Returns when a thread waits for the job."""
    while not waits(link):  # noqa: ASYNC110 - a few turns of the loop
        await asyncio.sleep(0)


async def cancel(link: MemoryLink) -> None:
    await link.call(lambda ports: ports.jobs.cancel(JOB, "enough"))


@pytest.mark.parametrize("timeout_s", [None, LONG_S])
async def test_thread_gets_the_end_of_the_job(link: MemoryLink, timeout_s: float | None) -> None:
    """A thread that waits is woken by the event that ends the job, and no wait is left behind."""
    waiting = asyncio.create_task(asyncio.to_thread(calls_of(link).settled, JOB, timeout_s))
    await begun(link)
    await cancel(link)
    settled = await waiting
    assert settled is not None
    assert (settled[0].id, settled[1].state) == (JOB, State.CANCELED)
    assert not waits(link)


async def test_ended_job_is_returned_at_once(link: MemoryLink) -> None:
    """The result of a job that has ended already needs no event."""
    await cancel(link)
    settled = await asyncio.to_thread(calls_of(link).settled, JOB, None)
    assert settled is not None
    assert settled[0].state is State.CANCELED


async def test_timeout_gives_the_wait_up(link: MemoryLink) -> None:
    """After its timeout a wait returns None, and the ledger forgets it."""
    assert await asyncio.to_thread(calls_of(link).settled, JOB, 0.001) is None
    await link.call(lambda ports: ports.jobs.get(JOB))
    assert not waits(link)


async def test_unknown_job_is_not_found(link: MemoryLink) -> None:
    """The refusal of the ledger is raised on the caller's thread."""
    with pytest.raises(NotFoundError):
        await asyncio.to_thread(calls_of(link).settled, JOB.replace("1", "2"), LONG_S)


async def test_closed_ledger_wakes_its_waiters(link: MemoryLink) -> None:
    """A ledger that closes does not leave a thread waiting."""
    waiting = asyncio.create_task(asyncio.to_thread(calls_of(link).settled, JOB, None))
    await begun(link)
    await link.close()
    with pytest.raises(UnavailableError):
        await waiting
