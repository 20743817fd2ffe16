"""The worker's stream: its handshake, its end, and its leases."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from holdfast.core.lifecycle import State
from holdfast.core.model import Extra, Template
from holdfast.ports import JobDraft
from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import holdfast_pb2_grpc as own_rpc
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast.server.ledger_server import LedgerServer
from tests.integration.conftest import Start


class Stream:
    """A worker stream that a test drives."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._call: Any = own_rpc.WorkServiceStub(channel).Work()

    async def say(self, **fields: Any) -> None:  # noqa: ANN401 - the fields of the message
        await self._call.write(own.WorkerMessage(**fields))

    async def hear(self) -> own.CoordinatorMessage:
        """The next message; raises the call's error if it has ended with one."""
        message = await self._call.read()
        if not isinstance(message, own.CoordinatorMessage):
            raise StopAsyncIteration
        return message

    async def leases(self, count: int = 1) -> list[own.Lease]:
        """Waits for this number of leases."""
        found: list[own.Lease] = []
        while len(found) < count:
            found += (await self.hear()).leases
        return found

    def drop(self) -> None:
        """Ends the call without a goodbye."""
        self._call.cancel()


@asynccontextmanager
async def stream_to(server: LedgerServer) -> AsyncIterator[Stream]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield Stream(channel)


def hello(worker: str = "w", held: dict[str, int] | None = None, types: tuple[str, ...] = ("sim",)) -> own.Hello:
    tokens = [own.Held(job_id=job_id, token=token) for job_id, token in (held or {}).items()]
    return own.Hello(worker_id=worker, types=types, slots=1, held=tokens)


def outcome(job_id: str, token: int, status: public.JobStatus) -> own.Outcome:
    return own.Outcome(job_id=job_id, token=token, status=status)


async def submitted(server: LedgerServer, job_type: str = "sim", **template: Any) -> str:  # noqa: ANN401
    reply = await server.jobs.submit([Template(job_type, **template)], [JobDraft(extra=Extra())])
    return reply.job_ids[0]


async def reached(server: LedgerServer, job_id: str, state: State) -> None:
    """Waits until the job is in the state."""
    async for job in server.jobs.watch(job_id):
        if job.state == state:
            return
    raise AssertionError(f"{job_id} ended without reaching {state.name}")


async def test_first_message_must_say_hello(start: Start) -> None:
    """A stream whose first message is no hello is INVALID_ARGUMENT."""
    server = await start()
    async with stream_to(server) as stream:
        await stream.say(credits=1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.hear()
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "bad",
    [
        own.Hello(),
        own.Hello(worker_id="a b"),
        own.Hello(worker_id="w", types=["../x"]),
        own.Hello(worker_id="w", queues=[""]),
    ],
    ids=["no-id", "id", "type", "queue"],
)
async def test_hello_with_a_bad_name_is_refused(start: Start, bad: own.Hello) -> None:
    """A hello with malformed worker ids, types or queues is refused."""
    server = await start()
    async with stream_to(server) as stream:
        await stream.say(hello=bad)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.hear()
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_hello_with_more_pairs_than_can_wait_is_refused(start: Start) -> None:
    """A hello with too many pairs of type and queue is refused."""
    server = await start()
    names = [str(number) for number in range(101)]
    async with stream_to(server) as stream:
        await stream.say(hello=own.Hello(worker_id="w", types=names, queues=names))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.hear()
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_welcome_comes_first_and_carries_the_terms(start: Start) -> None:
    """The first message of the server has the lease, the heartbeat interval, the epoch and the cluster."""
    server = await start(lease_ms=12_345, heartbeat_ms=678)
    async with stream_to(server) as stream:
        await stream.say(hello=hello())
        welcome = (await stream.hear()).welcome
        assert (welcome.lease_ms, welcome.heartbeat_ms, welcome.epoch) == (12_345, 678, 1)
        assert len(welcome.cluster_id) == 32


async def test_no_more_leases_come_than_credits_were_given(start: Start) -> None:
    """Two credits bring two of three jobs, oldest first, and a third credit brings the last."""
    server = await start()
    ids = [await submitted(server) for _ in range(3)]
    async with stream_to(server) as stream:
        await stream.say(hello=hello(), credits=2)
        assert [lease.job_id for lease in await stream.leases(2)] == ids[:2]
        assert (await server.jobs.get(ids[2])).state == State.QUEUED
        await stream.say(credits=1)
        assert [lease.job_id for lease in await stream.leases()] == ids[2:]


async def test_worker_gets_only_types_that_it_knows(start: Start) -> None:
    """A worker receives no job of a type that it did not announce."""
    server = await start()
    unknown, known = await submitted(server, "brew"), await submitted(server, "echo")
    async with stream_to(server) as stream:
        await stream.say(hello=hello(types=("echo",)), credits=5)
        assert [lease.job_id for lease in await stream.leases()] == [known]
        assert (await server.jobs.get(unknown)).state == State.QUEUED


async def test_dropped_stream_requeues_at_once(start: Start) -> None:
    """A worker whose stream is dropped loses its job at once, and another worker gets it."""
    server = await start(lease_ms=3_600_000)
    job_id = await submitted(server)
    async with stream_to(server) as first:
        await first.say(hello=hello("first"), credits=1)
        await first.leases()
        first.drop()
    async with stream_to(server) as second:
        await second.say(hello=hello("second"), credits=1)
        (lease,) = await second.leases()
        assert (lease.job_id, lease.attempt) == (job_id, 2)


async def test_released_lease_goes_to_another_and_costs_nothing(start: Start) -> None:
    """A job that is released unrun is queued again without a loss."""
    server = await start()
    job_id = await submitted(server, max_losses=0)
    async with stream_to(server) as stream:
        await stream.say(hello=hello(), credits=1)
        (lease,) = await stream.leases()
        await stream.say(released=[lease.token])
        await reached(server, job_id, State.QUEUED)


async def test_newer_session_of_a_worker_takes_over_with_its_leases(start: Start) -> None:
    """A newer session of the same id that names the lease keeps it, and the older one is ABORTED."""
    server = await start()
    job_id = await submitted(server)
    async with stream_to(server) as old, stream_to(server) as new:
        await old.say(hello=hello(), credits=1)
        (lease,) = await old.leases()
        await new.say(hello=hello(held={job_id: lease.token}))
        assert list((await new.hear()).revoked) == []
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await old.hear()
        assert caught.value.code() == grpc.StatusCode.ABORTED
        await new.say(outcomes=[outcome(job_id, lease.token, public.DONE)], report_id=1)
        await reached(server, job_id, State.DONE)
        assert (await server.jobs.get(job_id)).attempts == 1


async def test_lease_that_a_returning_worker_does_not_name_goes_back(start: Start) -> None:
    """A worker that returns without naming its lease loses it, and an unknown token that it names is revoked."""
    server = await start()
    job_id = await submitted(server)
    async with stream_to(server) as old, stream_to(server) as new:
        await old.say(hello=hello(), credits=1)
        await old.leases()
        await new.say(hello=hello(held={"made-up": 999}))
        assert list((await new.hear()).revoked) == [999]
        await reached(server, job_id, State.QUEUED)


async def test_cancel_is_pushed_to_the_holder(start: Start) -> None:
    """The holder of a job receives its cancel without a request."""
    server = await start()
    job_id = await submitted(server)
    async with stream_to(server) as stream:
        await stream.say(hello=hello(), credits=1)
        (lease,) = await stream.leases()
        await server.jobs.cancel(job_id, "")
        assert list((await stream.hear()).cancels) == [lease.token]


async def test_stale_outcome_is_acknowledged_and_changes_nothing(start: Start) -> None:
    """A report with an unknown token is acknowledged, so that the worker does not repeat it, and ignored."""
    server = await start()
    job_id = await submitted(server)
    async with stream_to(server) as stream:
        await stream.say(hello=hello(), credits=1)
        (lease,) = await stream.leases()
        row = outcome(job_id, lease.token + 7, public.DONE)
        await stream.say(outcomes=[row], report_id=4)
        assert (await stream.hear()).reported == 4
        assert (await server.jobs.get(job_id)).state == State.RUNNING


async def test_outcome_that_is_none_ends_the_stream(start: Start) -> None:
    """A report of an outcome that is not terminal is INVALID_ARGUMENT."""
    server = await start()
    async with stream_to(server) as stream:
        await stream.say(hello=hello())
        await stream.hear()
        await stream.say(outcomes=[outcome("x", 1, public.RUNNING)], report_id=1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.hear()
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_draining_worker_gets_no_more(start: Start) -> None:
    """A worker that has announced its drain gets no more jobs."""
    server = await start()
    async with stream_to(server) as draining, stream_to(server) as other:
        await draining.say(hello=hello("draining"), credits=5)
        await draining.hear()
        await draining.say(draining=True)
        assert (await draining.hear()).drained, "expected the server to confirm the drain"
        job_id = await submitted(server)
        await other.say(hello=hello("other"), credits=1)
        assert [lease.job_id for lease in await other.leases()] == [job_id]


async def test_stopping_server_tells_its_workers_and_leaves_them_their_leases(start: Start) -> None:
    """A server that stops notifies its workers, and a worker keeps its lease over the restart."""
    first = await start()
    job_id = await submitted(first)
    async with stream_to(first) as stream:
        await stream.say(hello=hello(), credits=1)
        (lease,) = await stream.leases()
        await first.stop()
        assert (await stream.hear()).stopping
    second = await start()
    async with stream_to(second) as stream:
        await stream.say(hello=hello(held={job_id: lease.token}))
        assert list((await stream.hear()).revoked) == []
        row = outcome(job_id, lease.token, public.DONE)
        await stream.say(outcomes=[row], report_id=1)
        await reached(second, job_id, State.DONE)
        assert (await second.jobs.get(job_id)).attempts == 1
