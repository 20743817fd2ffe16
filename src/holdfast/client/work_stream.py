"""`WorkApi` over the stream of `holdfast.v1`.

What a worker says is collected while a message is on its way, and goes out as one message after it, so that a busy
worker sends few large messages instead of many small ones.
"""

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Any

import grpc

from holdfast import limits
from holdfast.backends.ports import Assignment, Directive, Introduction
from holdfast.client.channel import open_channel
from holdfast.client.refusals import error_of
from holdfast.core.commands import ReportRow
from holdfast.errors import AbortedError, HoldfastError, InvalidArgumentError, UnavailableError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.proto.enums import job_status

#: How long the server may take to say goodbye.
_FAREWELL_S = 1.0


class StreamWork:
    """Opens sessions with one server."""

    def __init__(self, target: str) -> None:
        self._target = target

    async def open(self, introduction: Introduction) -> "StreamSession":
        """Connects and says hello; each session has a channel of its own, so that none inherits a bad one."""
        channel = open_channel(self._target)
        session = StreamSession(channel)
        try:
            await session.start(introduction)
        except BaseException:
            await session.close()
            raise
        return session


class StreamSession:
    """One stream."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._call: Any = rpc.WorkServiceStub(channel).Work()
        #: Messages to send; whatever fits goes into the last one.
        self._outbox = [pb.WorkerMessage()]
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._seen_token = 0

    async def start(self, introduction: Introduction) -> None:
        """Sends the hello and starts the writer."""
        hello = pb.Hello(
            worker_id=introduction.worker_id,
            types=sorted(introduction.types),
            queues=sorted(introduction.queues),
            slots=introduction.slots,
            held=[pb.Held(job_id=job_id, token=token) for token, job_id in introduction.held.items()],
        )
        await self._send(pb.WorkerMessage(hello=hello))
        self._writer = asyncio.create_task(self._write())

    async def next(self) -> Directive:
        """The next message of the coordinator."""
        # A cancelled read would end the whole stream, so the read outlives whoever waits for it.
        reading = self._reading = self._reading or asyncio.ensure_future(self._call.read())
        try:
            message = await asyncio.shield(reading)
        except grpc.aio.AioRpcError as error:
            raise _error(error) from error
        except asyncio.CancelledError:
            if self._call.cancelled():
                raise UnavailableError("the session was closed") from None
            raise
        self._reading = None
        if not isinstance(message, pb.CoordinatorMessage):
            raise UnavailableError("the server ended the session")
        return self._directive(message)

    async def want(self, count: int) -> None:
        """More room."""
        self._outbox[-1].credits += count
        self._wake.set()

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Outcomes; several reports that go out together are acknowledged by the last one's number."""
        outcomes = [_outcome(row) for row in rows]
        if self._outbox[-1].ByteSize() + sum(len(row.output) for row in rows) > limits.BATCH_BYTES_MAX:
            self._outbox.append(pb.WorkerMessage())
        self._outbox[-1].outcomes.extend(outcomes)
        self._outbox[-1].report_id = report_id
        self._wake.set()

    async def extend(self) -> None:
        """A heartbeat."""
        self._outbox[-1].heartbeat.seen_token = self._seen_token
        self._wake.set()

    async def release(self, tokens: Collection[int]) -> None:
        """Leases handed back."""
        self._outbox[-1].released.extend(tokens)
        self._wake.set()

    async def drain(self) -> None:
        """No more leases."""
        self._outbox[-1].draining = True
        self._wake.set()

    async def close(self) -> None:
        """Sends what is pending, then ends the stream."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        with contextlib.suppress(HoldfastError, asyncio.InvalidStateError, TimeoutError):  # it may be over already
            await self._flush()
            await self._call.done_writing()
            async with asyncio.timeout(_FAREWELL_S):
                while True:
                    await self.next()
        self._call.cancel()
        await self._channel.close(None)
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._reading.cancelled() or self._reading.exception()  # looked at, so that nobody complains

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._flush()
        except HoldfastError:
            self._call.cancel()  # so that `next` notices

    async def _flush(self) -> None:
        outbox, self._outbox = self._outbox, [pb.WorkerMessage()]
        for message in outbox:
            if message.ByteSize():
                await self._send(message)

    async def _send(self, message: pb.WorkerMessage) -> None:
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise _error(error) from error
        except asyncio.InvalidStateError as error:
            raise UnavailableError("the session has ended") from error

    def _directive(self, message: pb.CoordinatorMessage) -> Directive:
        leases = [_assignment(lease) for lease in message.leases]
        if leases:
            self._seen_token = max(self._seen_token, leases[-1].token)
        return Directive(
            leases=leases,
            cancels=list(message.cancels),
            revoked=list(message.revoked),
            reported=message.reported,
            lease_ms=message.welcome.lease_ms,
            heartbeat_ms=message.welcome.heartbeat_ms,
            is_stopping=message.stopping,
            is_drained=message.drained,
        )


def _assignment(lease: pb.Lease) -> Assignment:
    return Assignment(
        lease.token,
        lease.job_id,
        lease.type,
        lease.payload,
        lease.attempt,
        lease.timeout_ms,
        lease.simulated,
        lease.work_duration_ms,
        lease.payload_size_bytes,
        dict(lease.labels) if lease.labels else {},
        dict(lease.headers) if lease.headers else {},
        lease.queue,
    )


def _outcome(row: ReportRow) -> pb.Outcome:
    return pb.Outcome(
        job_id=row.job_id,
        token=row.token,
        status=job_status(row.state),
        output=row.output,
        summary=row.summary,
        failure_reason=row.failure_reason,
        runtime_ms=row.runtime_ms,
        retryable=row.is_retryable,
        retry_after_ms=row.retry_after_ms,
    )


def _error(error: grpc.aio.AioRpcError) -> HoldfastError:
    """What no new session can mend stays what it is; of everything else it is worth trying again."""
    known = error_of(error)
    if isinstance(known, AbortedError | InvalidArgumentError):
        return known
    return UnavailableError(known.message, reason=known.reason)
