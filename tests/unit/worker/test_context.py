"""The job context, as job code uses it."""

import asyncio
import math

import pytest

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.model import Note
from holdfast.ports import Assignment, Directive
from holdfast.worker.context import CancelInterrupt, JobContext, current
from holdfast.worker.handlers import Handler, Mode
from tests.unit.worker.backend import working


async def nothing(_: Assignment) -> bytes:
    return b""


def context_of(**fields: object) -> JobContext:
    assignment = Assignment(7, "job", "t", **fields)  # type: ignore[arg-type]
    return JobContext(assignment, Handler(nothing), 0.0, lambda _: None)


def test_outside_of_a_job_there_is_no_context() -> None:
    """The error of `current()` says that it works only inside a handler."""
    with pytest.raises(LookupError, match="only inside a handler"):
        current()


def test_context_has_the_fields_of_its_lease() -> None:
    """The context has all fields of the lease that job code may need."""
    context = context_of(attempt=2, queue="q", labels={"a": "b"}, headers={"c": "d"}, timeout_ms=60_000)
    assert (context.job_id, context.type, context.queue, context.attempt) == ("job", "t", "q", 2)
    assert (context.token, context.labels, context.headers) == (7, {"a": "b"}, {"c": "d"})
    assert context.timeout_ms == 60_000
    assert context.remaining_s is not None
    assert 0 < context.remaining_s <= 60
    assert context_of().remaining_s is None


def test_canceled_context_raises() -> None:
    """`raise_if_canceled` raises the interrupt once there is one."""
    context = context_of()
    context.raise_if_canceled()
    assert [context.is_canceled, context_of().is_canceled] == [False, False]
    context.interrupt = CancelInterrupt
    assert [context.is_canceled, context_of().is_canceled] == [True, False]
    with pytest.raises(CancelInterrupt):
        context.raise_if_canceled()


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan, math.inf])
def test_impossible_progress_is_refused(fraction: float) -> None:
    """Progress outside of 0 to 1 raises a ValueError in the job's code."""
    with pytest.raises(ValueError, match="from 0 to 1"):
        context_of().progress(fraction)


def test_long_text_is_cut_to_the_limits_of_a_note() -> None:
    """Long text, invalid text and too many lines are cut to the limits of a note."""
    context = context_of()
    context.progress(1, "\udcff" * 10_000)
    for number in range(1_000):
        context.log(f"{number} " + "x" * 10_000)
    note = context.take_note()
    assert note is not None
    assert (note.permille, len(note.message)) == (1_000, limits.NOTE_MESSAGE_CHARS_MAX)
    assert len(note.lines) == limits.NOTE_LINES_MAX
    assert note.lines[0] == "(901 earlier lines were dropped)"
    assert note.lines[-1].startswith("999 ")
    assert max(map(len, note.lines)) == limits.NOTE_LINE_CHARS_MAX
    assert context.take_note() is None


async def test_words_go_out_with_heartbeats_and_the_last_ones_before_the_outcome() -> None:
    """Each heartbeat sends one note for all lines since the previous one, and the last note precedes the outcome."""
    going_on = asyncio.Event()

    async def speaks(_: Assignment) -> bytes:
        for number in range(5):
            current().log(f"early {number}")
            current().progress(number / 10, f"{number}")
        await going_on.wait()
        current().log("late")
        return b"done"

    async with working({"t": Handler(speaks, Mode.ASYNC)}, heartbeat_ms=10) as (_, backend):
        _, session = await backend.opened.get()
        session.tell(Directive(leases=[Assignment(7, "job", "t")]))
        early = tuple(f"early {number}" for number in range(5))
        assert await session.said.get() == Note("job", 7, 400, "4", early)
        going_on.set()
        assert await session.said.get() == Note("job", 7, -1, "4", ("late",))
        row = await session.said.get()
        assert isinstance(row, ReportRow)
        assert row.output == b"done"
