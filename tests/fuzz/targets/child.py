"""Messages of a child process to its worker: job code has access to the socket, and may send anything.

In any case the attempt has one outcome. The worker can send this outcome and the notes, and the server accepts them. No
other attempt is affected.
"""

import asyncio
import time

from holdfast import limits
from holdfast.client.wire_work import WireSession, WireWork
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, TERMINAL
from holdfast.core.model import Note, Template
from holdfast.ports import Assignment, Introduction, JobDraft, JobView
from holdfast.server.wire.connection import WireService
from holdfast.worker.context import JobContext
from holdfast.worker.executors.child_process import ChildProcess
from holdfast.worker.executors.frames import LENGTH_BYTES, FromChild, NoteMessage, OutcomeMessage, Ready, framed
from holdfast.worker.executors.port import AttemptTally, Ended, ExecutorCallbacks
from holdfast.worker.executors.processes import ProcessConfig, ProcessExecutor, _Member
from holdfast.worker.handlers import Handler, Mode
from holdfast.worker.notes import Notes
from holdfast.worker.outbox import Outbox
from tests.fuzz.depth import DEEP
from tests.fuzz.wire_ends import joined
from tests.fuzz.world import LOOKS, World, run, settle

EXAMPLES = 80
IS_GUIDED = False

_JOB = "0d3f5a5f-9d0e-4f0a-8b51-8d3b1c620c11"
_TOKEN = 1
_CONFIG = ProcessConfig(app_path="shop:app", memory_bytes=0, max_jobs=0, max_memory_bytes=0, kill_grace_ms=1_000)
_HANDLER = Handler(lambda _: b"", Mode.PROCESS)
_BITS_64 = (1 << 64) - 1


def seeds() -> list[bytes]:
    """Valid messages of a child, and messages that no child of Holdfast sends."""
    rows = (
        ReportRow(_JOB, _TOKEN, DONE, b'{"a":1}', "", "", 5),
        ReportRow(_JOB, _TOKEN, FAILED, b"{}", "summary", "ValueError: no", 5, is_retryable=False, retry_after_ms=10),
        ReportRow(_JOB, _TOKEN, CANCELED),
        ReportRow(_JOB, _TOKEN, 2),
        ReportRow(_JOB, _TOKEN, DONE, runtime_ms=_BITS_64),
        ReportRow("another", _TOKEN, DONE),
        ReportRow(_JOB, _TOKEN + 1, DONE),
        ReportRow(_JOB, _TOKEN, DONE, bytes(limits.OUTPUT_BYTES_MAX + 1)),
    )
    notes = (
        Note(_JOB, _TOKEN, 500, "half", ("line",)),
        Note(_JOB, _TOKEN, _BITS_64, "x"),
        Note(_JOB, _TOKEN, -1, "", ("x" * 2_000,) * 120),
        Note(_JOB, _TOKEN, 1, "x" * (limits.MESSAGE_BYTES_MAX + 1)),
    )
    words: list[list[FromChild]] = [
        [NoteMessage(note), OutcomeMessage(row, 1_000)] for row in rows for note in notes[:2]
    ]
    words += [[NoteMessage(note)] for note in notes]
    lives = [b"".join(map(framed, [Ready(), *said])) for said in words]
    deep = b"\x82\xa4type\xa5ready\xa1x" + DEEP
    return [*lives, lives[0] * 2, lives[0][:-1], b"", b"\xff" * 8, len(deep).to_bytes(LENGTH_BYTES, "big") + deep]


def fuzz(data: bytes) -> None:
    """Lets a child send these bytes about its attempt, and end."""
    run(_fuzz(data))


async def _fuzz(data: bytes) -> None:
    world = World()
    await world.begin()
    await world.backend.jobs.submit([Template("echo", max_attempts=1)], [JobDraft(id=_JOB)])
    session = await WireWork(joined(WireService(world.backend, world.terms))).open(
        Introduction("w1", frozenset({"echo"}))
    )
    outcomes = await _outcomes(data, await _lease(session), session)
    assert len(outcomes) == 1, f"one attempt has {len(outcomes)} outcomes"
    view, said = await _ended(world), outcomes[0].state
    # No cancel was requested, so a report of CANCELED counts as a failure.
    assert view.state == (FAILED if said == CANCELED else said), f"{view.state} came of {outcomes[0]}"
    assert view.state in TERMINAL
    # A server ends the session for a message that is too large or invalid.
    assert session._is_open, f"the session was ended: {session._ended()}"
    await session.close()
    await world.end()


async def _ended(world: World) -> JobView:
    """The job once it has ended, or in its current state after the limit of polls."""
    for _ in range(LOOKS):
        await settle()
        view = await world.backend.jobs.get(_JOB)
        if view.state in TERMINAL:
            break
        await asyncio.sleep(0.001)
    return view


async def _lease(session: WireSession) -> Assignment:
    await session.want(1)
    while True:
        directive = await session.next()
        if directive.leases:
            assert directive.leases[0].token == _TOKEN
            return directive.leases[0]


async def _outcomes(data: bytes, assignment: Assignment, session: WireSession) -> list[ReportRow]:
    """Sends the notes and outcomes that the worker makes of the child's messages; returns the outcomes."""
    notes, outbox, rows = Notes(), Outbox(), list[ReportRow]()

    def ended(over: list[Ended]) -> None:
        for context, row in over:
            notes.end(context)
            outbox.add(row)
            rows.append(row)

    context = JobContext(assignment, _HANDLER, time.monotonic(), notes.add)
    executor = ProcessExecutor(ExecutorCallbacks(ended, AttemptTally()), _CONFIG)
    member = _Member(_CONFIG)
    member.process, member.context = _Child(data), context
    executor._busy[context] = member
    await executor._live(member)
    for said in (*notes.take_last(), *notes.take()):
        await session.note(said)
    for report_id, part in outbox.take():
        await session.report(report_id, part)
    return rows


class _Child(ChildProcess):
    """A child without a process, whose messages have all arrived."""

    def __init__(self, data: bytes) -> None:
        super().__init__("shop:app", 0)
        self._data = data

    async def start(self) -> None:
        self._reader = asyncio.StreamReader()
        self._reader.feed_data(self._data)
        self._reader.feed_eof()

    async def end(self) -> int:
        return 0
