"""Workers' sessions over the wire and over gRPC, with the same behaviour."""

import asyncio

import pytest

from holdfast.client.wire_work import WireSession
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import State
from holdfast.core.model import Extra, Note, Template
from holdfast.errors import AbortedError, InvalidArgumentError, UnavailableError
from holdfast.ports import Directive, Introduction, JobDraft, JobView, WorkSession
from holdfast.server.ledger_server import LedgerServer
from tests.grpc_v1.work_session import StreamSession
from tests.integration.conftest import Start
from tests.integration.transports import CONVERSATIONS, work_of

pytestmark = pytest.mark.parametrize("kind", CONVERSATIONS)

#: More pairs of a type and a queue than a worker may wait for.
NAMES = frozenset(str(number) for number in range(101))


async def submitted(server: LedgerServer, count: int = 1, payload: bytes = b"leaf") -> list[str]:
    drafts = [JobDraft(payload=payload, extra=Extra(labels=(("a", "b"),)))] * count
    return (await server.jobs.submit([Template("brew", max_losses=0)], drafts)).job_ids


async def opened(server: LedgerServer, kind: str, held: dict[int, str] | None = None, worker: str = "w") -> WorkSession:
    """Opens a session and reads its welcome."""
    introduction = Introduction(worker, frozenset({"brew"}), slots=2, held=held or {})
    session = await work_of(server, kind).open(introduction)
    assert (await session.next()).lease_ms == server._settings.lease_ms
    return session


async def until(session: WorkSession, field: str) -> Directive:
    """Reads directives until one has this field."""
    while not getattr(directive := await session.next(), field):
        pass
    return directive


async def test_leases_come_by_credit_and_outcomes_are_acknowledged(start: Start, kind: str) -> None:
    """A worker receives a lease with the job's data, and the server acknowledges its outcome and stores its output."""
    server = await start()
    job_id, later = await submitted(server, 2)
    session = await opened(server, kind)
    await session.want(1)
    (lease,) = (await until(session, "leases")).leases
    assert (lease.job_id, lease.payload, lease.labels, lease.queue) == (job_id, b"leaf", {"a": "b"}, "default")
    await session.report(1, [ReportRow(job_id, lease.token, State.DONE, b"tea")])
    assert (await until(session, "reported")).reported == 1
    assert (await server.jobs.result(job_id)).output == b"tea"
    assert (await server.jobs.get(later)).state == State.QUEUED
    await session.close()


async def test_large_payloads_are_spread_over_messages(start: Start, kind: str) -> None:
    """Payloads that exceed one message reach the worker whole."""
    server = await start()
    for _ in range(7):
        await submitted(server, payload=b"x" * 1_000_000)
    session = await opened(server, kind)
    await session.want(7)
    leases = 0
    while leases < 7:
        leases += len((await session.next()).leases)
    await session.close()


async def test_notes_become_progress_and_history(start: Start, kind: str) -> None:
    """A note of a worker becomes the job's progress and an entry of its history."""
    server = await start()
    (job_id,) = await submitted(server)
    session = await opened(server, kind)
    await session.want(1)
    (lease,) = (await until(session, "leases")).leases
    await session.note([Note(job_id, lease.token, 420, "steeping", ("hot",))])
    await session.report(1, [ReportRow(job_id, lease.token + 1, State.DONE)])  # refused, and answered after the note
    await until(session, "reported")
    progress = (await server.jobs.get(job_id)).progress
    assert progress is not None
    assert (progress.permille, progress.message) == (420, "steeping")
    assert any("hot" in entry.reason for entry in await server.feed.history(job_id))
    await session.close()


async def test_operator_asks_a_worker_to_drain(start: Start, kind: str) -> None:
    """A worker that is asked to drain gets a notification, drains, and receives no more leases."""
    server = await start()
    session = await opened(server, kind)
    await session.want(2)
    await server.admin.drain_worker("w")
    assert (await until(session, "is_drain_asked")).is_drain_asked
    await session.drain()
    assert (await until(session, "is_drained")).leases == []
    (job_id,) = await submitted(server)
    await session.close()
    assert (await server.jobs.get(job_id)).attempts == 0


async def test_worker_that_leaves_in_good_order_costs_no_loss(start: Start, kind: str) -> None:
    """A worker that drains and closes its session returns its unfinished lease without a loss."""
    server = await start()
    (job_id,) = await submitted(server)
    session = await opened(server, kind)
    await session.want(1)
    await until(session, "leases")
    await session.drain()
    await until(session, "is_drained")
    await session.close()
    async for job in server.jobs.watch(job_id):
        if job.state != State.RUNNING:
            break
    assert job.state == State.QUEUED


async def test_newer_session_takes_over_the_leases_it_names(start: Start, kind: str) -> None:
    """A newer session with the same worker id takes over the named leases, and the older one gets ABORTED."""
    server = await start()
    (job_id,) = await submitted(server)
    old = await opened(server, kind)
    await old.want(1)
    (lease,) = (await until(old, "leases")).leases
    new = await opened(server, kind, {lease.token: job_id})
    with pytest.raises(AbortedError) as caught:
        await old.next()
    assert caught.value.reason == "WORKER_SUPERSEDED"
    await new.report(1, [ReportRow(job_id, lease.token, State.DONE)])
    await until(new, "reported")
    assert (await server.jobs.get(job_id)).state == State.DONE
    await old.close()
    await new.close()


async def test_worker_keeps_its_lease_over_a_restart(start: Start, kind: str) -> None:
    """A worker keeps its lease over a restart, and the next server accepts its report."""
    first = await start()
    (job_id,) = await submitted(first)
    session = await opened(first, kind)
    await session.want(1)
    (lease,) = (await until(session, "leases")).leases
    await first.stop()
    assert (await until(session, "is_stopping")).is_stopping
    with pytest.raises(UnavailableError):
        await session.next()
    await session.close()
    second = await start()
    session = await opened(second, kind, {lease.token: job_id})
    await session.report(1, [ReportRow(job_id, lease.token, State.DONE)])
    await until(session, "reported")
    assert (await second.jobs.get(job_id)).attempts == 1
    await session.close()


async def state_after_running(server: LedgerServer, job_id: str) -> JobView:
    """Waits until the job is no longer RUNNING and returns it."""
    async for job in server.jobs.watch(job_id):
        if job.state != State.RUNNING:
            return job
    raise AssertionError("expected the job to leave RUNNING, but the watch ended")


def drop(session: WorkSession) -> None:
    """Cuts the connection of a session."""
    assert isinstance(session, StreamSession | WireSession)
    assert session._line is not None
    session._line.drop()


async def test_worker_whose_connection_drops_keeps_its_lease(start: Start, kind: str) -> None:
    """A worker whose connection drops four times keeps its lease, and its report counts as the first attempt."""
    server = await start()
    (job_id,) = await submitted(server)
    session = await opened(server, kind)
    await session.want(1)
    (lease,) = (await until(session, "leases")).leases
    for _ in range(4):
        drop(session)
        with pytest.raises(UnavailableError):
            await until(session, "leases")
        await session.close()
        session = await opened(server, kind, {lease.token: job_id})
    await session.report(1, [ReportRow(job_id, lease.token, State.DONE)])
    await until(session, "reported")
    job = await server.jobs.get(job_id)
    assert (job.state, job.attempts) == (State.DONE, 1)
    await session.close()


async def test_worker_whose_connection_drops_for_good_loses_its_lease(start: Start, kind: str) -> None:
    """A worker that does not reconnect within the grace loses its lease."""
    server = await start(reconnect_grace_ms=50)
    (job_id,) = await submitted(server)
    session = await opened(server, kind)
    await session.want(1)
    await until(session, "leases")
    drop(session)
    job = await state_after_running(server, job_id)
    assert (job.state, job.failure_reason) == (State.FAILED, "WORKER_LOST")
    await session.close()


async def test_worker_that_closes_its_session_loses_its_lease_at_once(start: Start, kind: str) -> None:
    """A worker that closes its session loses its lease at once, without the reconnect grace."""
    server = await start(reconnect_grace_ms=3_600_000)
    (job_id,) = await submitted(server)
    session = await opened(server, kind)
    await session.want(1)
    await until(session, "leases")
    await session.close()
    assert (await state_after_running(server, job_id)).state == State.FAILED


async def test_introduction_that_is_wrong_is_refused_for_good(start: Start, kind: str) -> None:
    """An invalid worker name is INVALID_ARGUMENT with a reason, and not retryable."""
    server = await start()
    session = await work_of(server, kind).open(Introduction("two words", frozenset({"brew"})))
    with pytest.raises(InvalidArgumentError) as caught:
        await session.next()
    assert caught.value.reason == "NAME_INVALID"
    await session.close()


@pytest.mark.parametrize(
    "introduction",
    [
        Introduction("", frozenset({"brew"})),
        Introduction("w", frozenset({"../x"})),
        Introduction("w", frozenset({"brew"}), frozenset({""})),
        Introduction("w" * 1_000, frozenset({"brew"})),
        Introduction("w", NAMES, NAMES),
    ],
    ids=["no-id", "type", "queue", "long", "too-many-pairs"],
)
async def test_introduction_with_bad_names_is_refused(start: Start, kind: str, introduction: Introduction) -> None:
    """An introduction with malformed ids, types or queues, or with too many pairs of them, is INVALID_ARGUMENT."""
    session = await work_of(await start(), kind).open(introduction)
    with pytest.raises(InvalidArgumentError):
        await session.next()
    await session.close()


async def test_outcome_that_is_none_ends_the_session(start: Start, kind: str) -> None:
    """A report of an outcome that is not terminal is INVALID_ARGUMENT."""
    server = await start()
    session = await opened(server, kind)
    await session.report(1, [ReportRow("x", 1, State.RUNNING)])
    with pytest.raises(InvalidArgumentError):
        await until(session, "reported")
    await session.close()


async def test_stale_outcome_is_acknowledged_and_changes_nothing(start: Start, kind: str) -> None:
    """A report with an unknown token is acknowledged, so that the worker does not repeat it, and ignored."""
    server = await start()
    (job_id,) = await submitted(server)
    session = await opened(server, kind)
    await session.want(1)
    (lease,) = (await until(session, "leases")).leases
    await session.report(4, [ReportRow(job_id, lease.token + 7, State.DONE)])
    assert (await until(session, "reported")).reported == 4
    assert (await server.jobs.get(job_id)).state == State.RUNNING
    await session.close()


async def test_released_lease_costs_nothing(start: Start, kind: str) -> None:
    """A job that is released unrun is queued again without a loss."""
    server = await start()
    (job_id,) = await submitted(server)
    session = await opened(server, kind)
    await session.want(1)
    (lease,) = (await until(session, "leases")).leases
    await session.release([lease.token])
    assert (await state_after_running(server, job_id)).state == State.QUEUED
    await session.close()


async def test_cancel_is_pushed_to_the_holder(start: Start, kind: str) -> None:
    """The holder of a job receives its cancel without a request."""
    server = await start()
    (job_id,) = await submitted(server)
    session = await opened(server, kind)
    await session.want(1)
    (lease,) = (await until(session, "leases")).leases
    await server.jobs.cancel(job_id, "")
    assert (await until(session, "cancels")).cancels == [lease.token]
    await session.close()


async def test_token_that_no_server_granted_is_revoked(start: Start, kind: str) -> None:
    """A worker that names a lease which the server does not know is told that it is revoked."""
    server = await start()
    session = await work_of(server, kind).open(Introduction("w", frozenset({"brew"}), held={999: "made-up"}))
    assert (await until(session, "revoked")).revoked == [999]
    await session.close()


async def test_recalled_credit_brings_no_lease(start: Start, kind: str) -> None:
    """After the server has confirmed a recall, the worker gets no lease for the credit that it has taken back."""
    server = await start()
    session = await opened(server, kind)
    await session.want(2)
    await session.recall()  # type: ignore[attr-defined]  # not in the port: only these sessions have it
    assert (await until(session, "is_recalled")).leases == []
    (job_id,) = await submitted(server)
    assert (await server.jobs.get(job_id)).state == State.QUEUED
    await session.close()


async def test_wait_for_a_directive_can_be_given_up(start: Start, kind: str) -> None:
    """A canceled wait for a directive loses no later directive."""
    server = await start()
    session = await opened(server, kind)
    waiting = asyncio.create_task(session.next())
    await asyncio.sleep(0)
    waiting.cancel()
    await session.want(1)
    (job_id,) = await submitted(server)
    (lease,) = (await until(session, "leases")).leases
    assert lease.job_id == job_id
    await session.close()
