"""A worker's session over the wire, with a server that a test scripts."""

import asyncio
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.client import wire_work
from holdfast.client.wire_work import WireWork
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE
from holdfast.core.model import Note
from holdfast.errors import FailedPreconditionError, UnauthenticatedError, UnavailableError
from holdfast.ports import Directive, Introduction
from holdfast.wire.frames import framed
from holdfast.wire.messages import ERROR, LAST, Opened, WireFailure, WorkerMessage, decode_worker_message
from tests.unit.client.wire_server import Peer, scripted

ME = Introduction("w", frozenset({"brew"}), slots=2)


async def heard(peer: Peer) -> WorkerMessage:
    return decode_worker_message(await peer.message())


async def test_calls_of_one_turn_share_a_message(tmp_path: Path) -> None:
    """The introduction comes first, and the data of several calls that are made together come in one message."""
    messages: asyncio.Queue[WorkerMessage] = asyncio.Queue()

    async def serve(peer: Peer) -> None:
        assert (await peer.open()).purpose == "work"
        while True:
            messages.put_nowait(await heard(peer))

    async with scripted(tmp_path, serve) as endpoint:
        session = await WireWork(endpoint).open(ME)
        assert await messages.get() == WorkerMessage(ME)
        row, note = ReportRow("x", 1, DONE, b"tea"), Note("x", 1, 500, "steeping")
        await session.want(2)
        await session.want(1)
        await session.report(7, [row])
        await session.note([note])
        await session.extend()
        await session.release([3, 4])
        await session.drain()
        expected = WorkerMessage(None, 3, [row], 7, True, [3, 4], True, [note])
        assert await messages.get() == expected
        await session.close()
        assert await messages.get() == WorkerMessage(is_leaving=True)


async def test_large_reports_are_spread_over_messages(tmp_path: Path) -> None:
    """Reports that would exceed a message of limited size are sent in several messages, each acknowledged by its id."""
    messages: asyncio.Queue[WorkerMessage] = asyncio.Queue()

    async def serve(peer: Peer) -> None:
        await peer.open()
        while True:
            messages.put_nowait(await heard(peer))

    async with scripted(tmp_path, serve) as endpoint:
        session = await WireWork(endpoint).open(ME)
        await messages.get()
        output = b"x" * limits.PAYLOAD_BYTES_MAX
        for number in range(1, 7):
            await session.report(number, [ReportRow("x", number, DONE, output)])
        ids: list[int] = []
        while sum(ids[-1:]) < 6:
            message = await messages.get()
            assert len(message.outcomes) <= limits.BATCH_BYTES_MAX // len(output)
            ids.append(message.report_id)
        assert len(ids) > 1
        await session.close()


async def test_recall_takes_back_credit_that_was_not_sent(tmp_path: Path) -> None:
    """Credit that a recall takes back before it was sent never reaches the server."""
    messages: asyncio.Queue[WorkerMessage] = asyncio.Queue()

    async def serve(peer: Peer) -> None:
        await peer.open()
        while True:
            messages.put_nowait(await heard(peer))

    async with scripted(tmp_path, serve) as endpoint:
        session = await WireWork(endpoint).open(ME)
        await messages.get()
        await session.want(2)
        await session.recall()
        assert await messages.get() == WorkerMessage(is_recalling=True)
        await session.close()


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (WireFailure("UNAUTHENTICATED", "TOKEN_UNKNOWN", "revoked"), UnauthenticatedError),
        (WireFailure("RESOURCE_EXHAUSTED", "OVER_BUDGET", "later"), UnavailableError),
    ],
    ids=["final", "retried"],
)
async def test_error_ends_the_session_after_the_directives_before_it(
    tmp_path: Path, failure: WireFailure, error: type[Exception]
) -> None:
    """An error of the server ends the session; one that a new session cannot fix is kept, others are UNAVAILABLE."""

    async def serve(peer: Peer) -> None:
        await peer.open()
        peer.send((LAST, Directive(lease_ms=5)), (ERROR, failure))
        await peer.writer.drain()
        await peer.reader.read()

    async with scripted(tmp_path, serve) as endpoint:
        session = await WireWork(endpoint).open(ME)
        assert (await session.next()).lease_ms == 5
        for _ in range(2):
            with pytest.raises(error, match=failure.message) as caught:
                await session.next()
        assert getattr(caught.value, "reason") == failure.reason  # noqa: B009 - of every error here
        await session.close()


async def test_refused_opening_is_kept_or_retried(tmp_path: Path) -> None:
    """A refusal of the opening that another try cannot fix is kept; others are UNAVAILABLE, which is retried."""
    refusals = iter([("UNAUTHENTICATED", UnauthenticatedError), ("FAILED_PRECONDITION", UnavailableError)])

    async def refuse(peer: Peer) -> None:
        await peer.opening()
        peer.send(Opened(0, code, "WHY", "because"))
        await peer.writer.drain()

    async with scripted(tmp_path, refuse) as endpoint:
        for code, error in refusals:  # noqa: B007 - read by the script
            with pytest.raises(error, match="because") as caught:
                await WireWork(endpoint).open(ME)
            assert not isinstance(caught.value, FailedPreconditionError)


@pytest.mark.parametrize("said", [b"", framed(b"\xff\xff"), b"\xff\xff\xff\xff", framed(b"\x92\x00\xa3")])
async def test_session_that_breaks_is_unavailable(tmp_path: Path, said: bytes) -> None:
    """A session whose connection ends, or gets something else than a directive, fails as UNAVAILABLE."""

    async def serve(peer: Peer) -> None:
        await peer.open()
        await peer.message()
        await peer.message()  # so the opening was read
        peer.writer.write(said)
        await peer.writer.drain()

    async with scripted(tmp_path, serve) as endpoint:
        session = await WireWork(endpoint).open(ME)
        await session.want(1)
        with pytest.raises(UnavailableError):
            await session.next()
        with pytest.raises(UnavailableError):
            await session.want(1)
        await session.close()


async def test_directive_of_a_newer_server_is_understood(tmp_path: Path) -> None:
    """A worker ignores elements of a directive that it does not know, and takes the default for missing ones."""

    async def serve(peer: Peer) -> None:
        await peer.open()
        peer.send(
            [LAST, [[[7, "x", "brew"]], [], [], 0, 5], "new"], [LAST, [*[[]] * 3, 1, *[0] * 2, *[False] * 5, None, 1]]
        )
        await peer.reader.read()

    async with scripted(tmp_path, serve) as endpoint:
        session = await WireWork(endpoint).open(ME)
        first, second = await session.next(), await session.next()
        assert (first.lease_ms, first.leases[0].token, first.leases[0].attempt) == (5, 7, 1)
        assert second.reported == 1
        await session.close()


async def test_goodbye_to_a_server_that_does_not_read_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that leaves a server which reads nothing does not wait for it."""
    monkeypatch.setattr(wire_work, "_FAREWELL_S", 0.01)

    async def stall(peer: Peer) -> None:
        await peer.open()
        await asyncio.Event().wait()

    async with scripted(tmp_path, stall) as endpoint:
        session = await WireWork(endpoint).open(ME)
        assert session._line is not None
        report = [ReportRow("x", 1, DONE, b"x" * limits.PAYLOAD_BYTES_MAX)] * 3
        reports = []
        while session._line.is_writable:
            reports.append(asyncio.create_task(session.report(1, report)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await session.close()
        await asyncio.gather(*reports, return_exceptions=True)
