"""The worker's loop against a fake backend: kept leases, lost leases and reports."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast import limits
from holdfast.core.lifecycle import CANCELED, FAILED
from holdfast.errors import UnavailableError
from holdfast.ports import Assignment, Directive
from holdfast.worker import runtime
from holdfast.worker.handlers import Handler, Mode
from tests.unit.worker.backend import LEASE_MS, working


def of(run: Callable[[Assignment], Awaitable[bytes]]) -> dict[str, Handler]:
    return {"t": Handler(run, Mode.ASYNC)}


async def for_ever(_: Assignment) -> bytes:
    await asyncio.Event().wait()
    return b""


class Clock:
    """Replaces the module `time` in the runtime."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


async def test_job_that_outlasts_its_first_lease_survives_a_lost_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats have extended the lease, so the next session still names the job."""
    clock = Clock()
    monkeypatch.setattr(runtime, "time", clock)
    async with working(of(for_ever), heartbeat_ms=1) as (_, backend):
        _, session = await backend.opened.get()
        session.tell(Directive(leases=[Assignment(7, "job", "t")]))
        await session.beats.get()
        clock.now_s += 10 * LEASE_MS / 1_000
        while not session.beats.empty():
            session.beats.get_nowait()
        await session.beats.get()
        await session.beats.get()
        session.tell(UnavailableError("the server is gone"))
        introduction, _ = await backend.opened.get()
        assert introduction.held == {7: "job"}


async def test_job_is_given_up_once_its_lease_must_have_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that could not extend its leases for a whole lease length does not name them any more."""
    clock, is_running = Clock(), asyncio.Event()
    monkeypatch.setattr(runtime, "time", clock)

    async def run(assignment: Assignment) -> bytes:
        is_running.set()
        return await for_ever(assignment)

    async with working(of(run)) as (_, backend):
        _, session = await backend.opened.get()
        session.tell(Directive(leases=[Assignment(7, "job", "t")]))
        await is_running.wait()
        clock.now_s += LEASE_MS / 1_000 + 1
        session.tell(UnavailableError("the server is gone"))
        introduction, _ = await backend.opened.get()
        assert introduction.held == {}


async def test_job_goes_on_while_a_server_that_renews_leases_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the server is away, the worker comes back as the same instance, with its job and its outcome."""
    clock, is_running, gate = Clock(), asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(runtime, "time", clock)

    async def run(_: Assignment) -> bytes:
        is_running.set()
        await gate.wait()
        return b"done"

    async with working(of(run), are_leases_renewed=True) as (_, backend):
        first, session = await backend.opened.get()
        session.tell(Directive(leases=[Assignment(7, "job", "t")]))
        await is_running.wait()
        clock.now_s += 10 * LEASE_MS / 1_000
        session.tell(UnavailableError("the server is gone"))
        second, session = await backend.opened.get()
        assert (second.held, second.instance) == ({7: "job"}, first.instance)
        assert first.instance
        session.tell(UnavailableError("it is gone again"))
        gate.set()
        third, session = await backend.opened.get()
        assert third.held == {7: "job"}
        assert (await session.rows.get()).output == b"done"


async def test_job_stopped_before_its_first_step_is_reported() -> None:
    """A job that is canceled before its first step is reported, and does not occupy a slot."""
    async with working(of(for_ever)) as (worker, backend):
        _, session = await backend.opened.get()
        await worker.attached.wait()
        await worker._take(Directive(leases=[Assignment(7, "job", "t")]))
        await worker._take(Directive(cancels=[7]))
        row = await session.rows.get()
        assert (row.token, row.state) == (7, CANCELED)


async def test_long_exception_message_is_cut_to_a_valid_reason() -> None:
    """An exception with a very long message of invalid text is reported with a valid reason of limited length."""

    async def raises(_: Assignment) -> bytes:
        raise ValueError("\udcff" * 10_000_000)

    async with working(of(raises)) as (_, backend):
        _, session = await backend.opened.get()
        session.tell(Directive(leases=[Assignment(7, "job", "t")]))
        row = await session.rows.get()
        assert (row.state, len(row.failure_reason)) == (FAILED, limits.REASON_CHARS_MAX)
        assert row.failure_reason.startswith("ValueError: ?")


class Unshowable(BaseException):
    """A `BaseException` whose `__str__` raises."""

    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (Unshowable(), "Unshowable: it cannot be shown"),
        (asyncio.CancelledError("mine"), "CancelledError: mine"),
    ],
    ids=["exit", "unshowable", "cancel"],
)
async def test_every_exception_is_reported_as_a_failure(error: BaseException, why: str) -> None:
    """Any exception is reported as a failure, because an unreported attempt would keep its slot and lease for ever."""

    async def raises(_: Assignment) -> bytes:
        raise error

    async with working(of(raises)) as (_, backend):
        _, session = await backend.opened.get()
        session.tell(Directive(leases=[Assignment(7, "job", "t")]))
        row = await session.rows.get()
        assert (row.state, row.failure_reason) == (FAILED, why)


async def test_output_that_is_no_bytes_fails_its_job_and_not_the_worker() -> None:
    """A handler that returns no bytes fails its job without a retry."""

    async def returns(_: Assignment) -> bytes:
        return "text"  # type: ignore[return-value]

    async with working(of(returns)) as (_, backend):
        _, session = await backend.opened.get()
        session.tell(Directive(leases=[Assignment(7, "job", "t")]))
        row = await session.rows.get()
        assert (row.state, row.failure_reason, row.is_retryable) == (FAILED, "OUTPUT_NOT_BYTES", False)
