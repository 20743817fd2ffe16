"""A worker's session with a server, over any transport.

While a message is being sent, further data is collected in the next message. So a busy worker sends few large messages
instead of many small ones.
"""

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Protocol

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.model import Note
from holdfast.errors import HoldfastError
from holdfast.ports import Assignment, Directive, Introduction
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.enums import job_status

#: How long `close` waits until the server ends the session.
_FAREWELL_S = 1.0


class WorkLine(Protocol):
    """The transport of one session; send and receive raise a `HoldfastError` after it has ended."""

    async def send(self, message: pb.WorkerMessage) -> None:
        """Sends a message; returns when the next one may be sent."""
        ...

    async def receive(self) -> pb.CoordinatorMessage:
        """Waits for the next message; canceling the wait loses no message."""
        ...

    async def finish(self) -> None:
        """Tells the server that nothing more will be sent."""
        ...

    def drop(self) -> None:
        """Ends the connection at once, so that a pending `receive` fails."""
        ...

    async def close(self) -> None:
        """Ends the connection and frees its resources."""
        ...


class StreamSession:
    """One session, with an outbox that is sent by a task."""

    def __init__(self, line: WorkLine) -> None:
        self._line = line
        #: Messages to send; new data is added to the last one while it fits.
        self._outbox = [pb.WorkerMessage()]
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._seen_token = 0
        self._is_lost = False

    async def start(self, introduction: Introduction) -> None:
        """Sends the hello and starts the writer."""
        hello = pb.Hello(
            worker_id=introduction.worker_id,
            types=sorted(introduction.types),
            queues=sorted(introduction.queues),
            slots=introduction.slots,
            held=[pb.Held(job_id=job_id, token=token) for token, job_id in introduction.held.items()],
            instance=introduction.instance,
            dies_with_server=introduction.dies_with_server,
        )
        await self._line.send(pb.WorkerMessage(hello=hello))
        self._writer = asyncio.create_task(self._write())

    async def next(self) -> Directive:
        """Waits for the next message of the coordinator."""
        try:
            return self._directive(await self._line.receive())
        except HoldfastError:
            self._is_lost = True
            raise

    async def want(self, count: int) -> None:
        """Adds credits."""
        self._outbox[-1].credits += count
        self._wake.set()

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Sends outcomes; reports that share a message are acknowledged by the id of the last one."""
        if self._outbox[-1].ByteSize() + sum(len(row.output) for row in rows) > limits.BATCH_BYTES_MAX:
            self._outbox.append(pb.WorkerMessage())
        box = self._outbox[-1]
        for row in rows:
            _add_outcome(box, row)
        box.report_id = report_id
        self._wake.set()

    async def note(self, notes: Sequence[Note]) -> None:
        """Sends notes of running attempts."""
        for note in notes:
            wire = _note(note)
            if self._outbox[-1].ByteSize() + wire.ByteSize() > limits.BATCH_BYTES_MAX:
                self._outbox.append(pb.WorkerMessage())
            self._outbox[-1].notes.append(wire)
        self._wake.set()

    async def extend(self) -> None:
        """Sends a heartbeat."""
        self._outbox[-1].heartbeat.seen_token = self._seen_token
        self._wake.set()

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back."""
        self._outbox[-1].released.extend(tokens)
        self._wake.set()

    async def recall(self) -> None:
        """Takes unused credits back; the directive with `is_recalled` confirms that no more leases are in flight."""
        for message in self._outbox:
            message.credits = 0  # not sent yet
        self._outbox[-1].recalling = True
        self._wake.set()

    async def drain(self) -> None:
        """Requests that no more leases are granted."""
        self._outbox[-1].draining = True
        self._wake.set()

    async def close(self) -> None:
        """Sends pending data and a goodbye, then ends the session; a lost session is only closed."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        if not self._is_lost:
            with contextlib.suppress(HoldfastError, TimeoutError):  # it may have ended already
                async with asyncio.timeout(_FAREWELL_S):
                    await self._say_goodbye()
        await self._line.close()

    async def _say_goodbye(self) -> None:
        self._outbox[-1].leaving = True
        await self._flush()
        await self._line.finish()
        while True:
            await self._line.receive()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._flush()
        except HoldfastError:
            self._is_lost = True
            self._line.drop()  # so that `next` fails

    async def _flush(self) -> None:
        outbox, self._outbox = self._outbox, [pb.WorkerMessage()]
        for message in outbox:
            if message.ByteSize():
                await self._line.send(message)

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
            is_drain_asked=message.drain,
            is_recalled=message.recalled,
            are_leases_renewed=message.welcome.renews_leases,
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
        lease.retries_left,
    )


def _note(note: Note) -> pb.Note:
    permille = note.permille if note.permille >= 0 else None
    return pb.Note(job_id=note.job_id, token=note.token, permille=permille, message=note.message, lines=note.lines)


def _add_outcome(box: pb.WorkerMessage, row: ReportRow) -> None:
    """Adds an outcome to a message; rare fields are set only if they have a value."""
    outcome = box.outcomes.add(
        job_id=row.job_id,
        token=row.token,
        status=job_status(row.state),
        output=row.output,
        runtime_ms=row.runtime_ms,
        retryable=row.is_retryable,
    )
    if row.summary or row.failure_reason or row.retry_after_ms:
        outcome.summary, outcome.failure_reason = row.summary, row.failure_reason
        outcome.retry_after_ms = row.retry_after_ms
