"""One arena, tried quickly: twenty jobs, one of its processes killed, and what is left of it."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.client.grpc_transport import GrpcCarrier
from holdfast.client.remote import RemoteJobs
from holdfast.client.routed import RoutedJobs
from holdfast.core.lifecycle import QUEUED, RUNNING
from holdfast.core.model import Extra, Template
from holdfast.errors import HoldfastError
from holdfast.lab.compare.process_tree import argv, tree
from holdfast.lab.history.files import read_records
from holdfast.lab.history.records import DONE, Began, DamageFact, EndFact, GrantFact, JobFact, Record
from holdfast.lab.torture.jobs import WORK, Task, payload_of
from holdfast.lab.torture.ports import Arena, Process
from holdfast.ports import JobDraft

JOBS = 20
DEADLINE_S = 90.0
TEMPLATE = Template(WORK)


async def until(is_so: Callable[[], Awaitable[object]], what: str) -> None:
    """Returns once it is so; who cannot be asked just now is asked again."""
    end_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            if await is_so():
                return
        except HoldfastError as error:
            if not error.retryable:
                raise
        assert time.monotonic() < end_s, f"{what} never came"
        await asyncio.sleep(0.05)


def client_of(address: str) -> RemoteJobs | RoutedJobs:
    """Of one server, or of all nodes."""
    addresses = address.split(",")
    return RemoteJobs(GrpcCarrier(address)) if len(addresses) == 1 else RoutedJobs(addresses)


async def try_out(arena: Arena, role: str) -> list[Record]:
    """Submits the jobs, kills one of that role while they run, waits until all have ended, and reads the facts."""
    before, pids = set(tree(os.getpid())), set[int]()
    try:
        await arena.start()
        async with client_of(arena.grpc) as client:
            ids = [await _submit(client, number) for number in range(JOBS)]
            victim = next(one for one in arena.processes() if one.role == role)
            await _kill(arena, victim)
            await until(lambda: _has_ended(client), "the end of all jobs")
            await until(lambda: _are_ready(arena), "everybody's return")
        pids = set(tree(os.getpid())) - before
    finally:
        await arena.stop()
    assert arena.strange() == []
    assert [words for pid in pids if (words := argv(pid))] == [], "somebody stayed"
    facts = arena.facts()
    check(facts, ids, arena)
    return facts


async def _submit(client: RemoteJobs | RoutedJobs, number: int) -> str:
    extra = Extra(request_id=f"key-{number}", labels=(("name", f"job-{number}"),))
    draft = JobDraft(payload=payload_of(Task(takes_ms=100)), extra=extra)
    found: list[str] = []

    async def is_accepted() -> bool:
        found[:] = (await client.submit([TEMPLATE], [draft])).job_ids
        return bool(found[0])

    await until(is_accepted, "an answer to a submit")
    return found[0]


async def _kill(arena: Arena, victim: Process) -> None:
    old = victim.pid()
    assert old
    assert victim.is_ready()
    arena.expect(old)
    os.kill(old, signal.SIGKILL)

    async def is_another() -> bool:
        return victim.pid() not in {0, old}

    await until(is_another, f"another {victim.name}")


async def _has_ended(client: RemoteJobs | RoutedJobs) -> bool:
    return not (await client.page([QUEUED, RUNNING], 0, 1, newest_first=False)).jobs


async def _are_ready(arena: Arena) -> bool:
    return all(one.is_ready() for one in arena.processes())


def check(facts: list[Record], ids: list[str], arena: Arena) -> None:
    """The store has exactly these jobs, each of which has ended once."""
    assert [fact for fact in facts if isinstance(fact, DamageFact)] == []
    jobs = {fact.id: fact for fact in facts if isinstance(fact, JobFact)}
    assert jobs.keys() == set(ids)
    assert {fact.name for fact in jobs.values()} == {f"job-{number}" for number in range(JOBS)}
    assert {fact.state for fact in jobs.values()} == {DONE}
    assert {fact.key for fact in jobs.values()} <= {f"key-{number}" for number in range(JOBS)} | {""}
    began = _runs_in(arena.folder / "records")
    assert all(began[fact.run] == fact.id for fact in jobs.values()), "a result names an attempt that was begun"
    assert sorted(fact.job_id for fact in facts if isinstance(fact, EndFact)) == sorted(ids)
    if "grants" in arena.keeps:
        granted = {(fact.job_id, fact.token) for fact in facts if isinstance(fact, GrantFact)}
        assert granted >= {(fact.id, fact.token) for fact in jobs.values()}


def _runs_in(folder: Path) -> dict[str, str]:
    return {record.run: record.job_id for record in read_records(folder) if isinstance(record, Began)}
