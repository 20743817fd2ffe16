"""A worker's session with a server, whatever carries it.

What a worker says is collected while a message is on its way, and goes out as one message after it, so that a busy
worker sends few large messages instead of many small ones.
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

#: How long the server may take to say goodbye.
_FAREWELL_S = 1.0


class WorkLine(Protocol):
    """Messages up and down; each method raises a `HoldfastError` once the line has ended."""

    async def send(self, message: pb.WorkerMessage) -> None:
        """Returns when the next message may be sent."""
        ...

    async def receive(self) -> pb.CoordinatorMessage:
        """The next message; giving up waiting for it loses nothing."""
        ...

    async def finish(self) -> None:
        """Nothing more will be sent."""
        ...

    def drop(self) -> None:
        """Ends the line at once, so that whoever receives notices."""
        ...

    async def close(self) -> None:
        """Ends the line and what belongs to it."""
        ...


class StreamSession:
    """One session."""

    def __init__(self, line: WorkLine) -> None:
        self._line = line
        #: Messages to send; whatever fits goes into the last one.
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
        """The next message of the coordinator."""
        try:
            return self._directive(await self._line.receive())
        except HoldfastError:
            self._is_lost = True
            raise

    async def want(self, count: int) -> None:
        """More room."""
        self._outbox[-1].credits += count
        self._wake.set()

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Outcomes; several reports that go out together are acknowledged by the last one's number."""
        if self._outbox[-1].ByteSize() + sum(len(row.output) for row in rows) > limits.BATCH_BYTES_MAX:
            self._outbox.append(pb.WorkerMessage())
        box = self._outbox[-1]
        for row in rows:
            _add_outcome(box, row)
        box.report_id = report_id
        self._wake.set()

    async def note(self, notes: Sequence[Note]) -> None:
        """What running attempts say of themselves."""
        for note in notes:
            wire = _note(note)
            if self._outbox[-1].ByteSize() + wire.ByteSize() > limits.BATCH_BYTES_MAX:
                self._outbox.append(pb.WorkerMessage())
            self._outbox[-1].notes.append(wire)
        self._wake.set()

    async def extend(self) -> None:
        """A heartbeat."""
        self._outbox[-1].heartbeat.seen_token = self._seen_token
        self._wake.set()

    async def release(self, tokens: Collection[int]) -> None:
        """Leases handed back."""
        self._outbox[-1].released.extend(tokens)
        self._wake.set()

    async def recall(self) -> None:
        """Takes back what room was offered and not used; `is_recalled` says that no lease is on its way any more."""
        for message in self._outbox:
            message.credits = 0  # not even sent yet
        self._outbox[-1].recalling = True
        self._wake.set()

    async def drain(self) -> None:
        """No more leases."""
        self._outbox[-1].draining = True
        self._wake.set()

    async def close(self) -> None:
        """Sends what is pending and a goodbye, then ends the session; a lost one is only ended."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        if not self._is_lost:
            with contextlib.suppress(HoldfastError, TimeoutError):  # it may be over already
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
            self._line.drop()  # so that `next` notices

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
    """Written in its place, and only what is there: most have nothing to say but their output."""
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
