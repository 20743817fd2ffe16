"""Shorthands for calls of the store that many tests make."""

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE
from holdfast.core.model import Extra, Template
from holdfast.ports import Assignment, JobDraft
from holdfast.topologies.pipeline.backend.store import Store, Ticket, WorkerKind

ECHO = Template("echo")
ECHOES = (WorkerKind(("echo",)),)
LEASE_MS = 60_000


async def insert(store: Store, template: Template = ECHO, payload: bytes = b"", **more: object) -> str:
    """Inserts a job and returns its id; further arguments become its extra."""
    extra = Extra(**more) if more else None  # type: ignore[arg-type]
    (job_id,) = (await store.rows.insert([template], [JobDraft(payload=payload, extra=extra)])).job_ids
    assert job_id
    return job_id


async def claim(store: Store, *, count: int = 100, visibility_ms: int = LEASE_MS) -> list[Ticket]:
    """Claims visible rows of the type `echo`."""
    return await store.claims.claim(count, visibility_ms, ECHOES, [])


async def start(store: Store, job_id: str, worker: str = "w", lease_ms: int = LEASE_MS) -> Assignment:
    """Starts a job that can be started and returns its lease."""
    (run,) = await store.leases.start(worker, [job_id], lease_ms)
    return run


async def running(store: Store, template: Template = ECHO, worker: str = "w", lease_ms: int = LEASE_MS) -> Assignment:
    """Inserts and starts a job and returns its lease."""
    return await start(store, await insert(store, template), worker, lease_ms)


async def report(store: Store, run: Assignment, state: int = DONE, worker: str = "w", **more: object) -> str:
    """Reports an outcome and returns the reason of the refusal; empty if it was accepted."""
    row = ReportRow(run.job_id, run.token, state, **more)  # type: ignore[arg-type]
    (reason,) = await store.leases.report(worker, [row])
    return reason


async def ended(store: Store) -> str:
    """Runs a job to DONE and returns its id."""
    run = await running(store)
    assert await report(store, run) == ""
    return run.job_id
