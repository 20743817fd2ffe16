"""The connection of a worker to one of several nodes, on a clock that the test controls."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from holdfast import limits
from holdfast.client import node_session
from holdfast.client.node_session import NodeSession
from holdfast.client.node_tokens import NodeTokens
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE
from holdfast.core.model import Note
from holdfast.errors import AbortedError, HoldfastError, UnavailableError
from holdfast.ports import Assignment, Directive, Introduction

LEASE_MS = 10_000


class Clock:
    """The clock of the node session."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Session:
    """A session whose server side is the test."""

    def __init__(self, introduction: Introduction) -> None:
        self.introduction = introduction
        self.says: asyncio.Queue[Directive | HoldfastError] = asyncio.Queue()
        self.reports: list[tuple[int, list[ReportRow]]] = []
        self.has_reports = asyncio.Event()
        self.beats = 0
        #: Cleared: the connection is full, so that reports wait until the node reads.
        self.is_read = asyncio.Event()
        self.is_read.set()
        self.is_lost = False

    async def next(self) -> Directive:
        said = await self.says.get()
        if isinstance(said, HoldfastError):
            raise said
        return said

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        self._refuse_if_lost()
        self.reports.append((report_id, list(rows)))
        self.has_reports.set()
        await self.is_read.wait()

    async def extend(self) -> None:
        self._refuse_if_lost()
        self.beats += 1

    async def want(self, count: int) -> None:
        self._refuse_if_lost()

    async def recall(self) -> None:
        self._refuse_if_lost()

    async def note(self, notes: Sequence[Note]) -> None:
        self._refuse_if_lost()

    async def release(self, tokens: Collection[int]) -> None:
        self._refuse_if_lost()

    async def drain(self) -> None:
        self._refuse_if_lost()

    def _refuse_if_lost(self) -> None:
        if self.is_lost:
            raise UnavailableError("the session has ended", reason="CONNECTION_LOST")

    async def close(self) -> None:
        pass


class Work:
    """Opens sessions and passes each one to the test."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[Session] = asyncio.Queue()
        self.are_leases_renewed = False
        self.is_slow = False

    async def open(self, introduction: Introduction) -> Any:  # noqa: ANN401 - stands for a session over the wire
        session = Session(introduction)
        if self.is_slow:
            session.is_read.clear()
        welcome = Directive(lease_ms=LEASE_MS, heartbeat_ms=1_000, are_leases_renewed=self.are_leases_renewed)
        session.says.put_nowait(welcome)
        self.opened.put_nowait(session)
        return session


class Listener:
    """Records the notifications."""

    def __init__(self) -> None:
        self.joins: asyncio.Queue[Directive] = asyncio.Queue()
        self.heard_all: asyncio.Queue[Directive] = asyncio.Queue()
        self.losses: asyncio.Queue[list[int]] = asyncio.Queue()
        self.refusals: asyncio.Queue[HoldfastError] = asyncio.Queue()

    async def joined(self, line: NodeSession, welcome: Directive) -> None:
        self.joins.put_nowait(welcome)

    async def heard(self, line: NodeSession, directive: Directive) -> None:
        self.heard_all.put_nowait(directive)

    async def left(self, line: NodeSession, error: HoldfastError, lost: Collection[int]) -> None:
        self.losses.put_nowait(list(lost))

    def refused(self, error: HoldfastError) -> None:
        self.refusals.put_nowait(error)


class Scene:
    """A running session with node 1 of 3."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.work, self.listener = Clock(), Work(), Listener()
        monkeypatch.setattr(node_session, "time", self.clock)
        self.line = NodeSession(1, self.work, NodeTokens(3), self.listener)  # type: ignore[arg-type]
        self.task = asyncio.create_task(self.line.run(Introduction("w", frozenset({"t"}))))

    async def session(self) -> Session:
        """Returns the next session, after its welcome."""
        session = await asyncio.wait_for(self.work.opened.get(), 30)
        await asyncio.wait_for(self.listener.joins.get(), 30)
        return session

    async def hold(self, session: Session, token: int) -> None:
        """Grants a lease."""
        session.says.put_nowait(Directive(leases=[Assignment(token, f"job-{token}", "t")]))
        await asyncio.wait_for(self.listener.heard_all.get(), 30)

    async def lose(self, session: Session) -> list[int]:
        """Breaks the session; returns the leases that the worker gives up."""
        session.says.put_nowait(UnavailableError("gone"))
        return await asyncio.wait_for(self.listener.losses.get(), 30)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - an asynchronous generator
    """A node session whose clock stands still."""
    scene = Scene(monkeypatch)
    yield scene
    await scene.end()


async def test_new_session_names_its_leases_with_the_tokens_of_the_node(scene: Scene) -> None:
    """After a reconnect the worker lists its leases with the node's own tokens."""
    session = await scene.session()
    await scene.hold(session, 7)
    assert scene.line.held == {22: "job-7"}
    assert await scene.lose(session) == []
    assert (await scene.session()).introduction.held == {7: "job-7"}


async def test_leases_of_a_node_that_renews_them_are_kept_however_long_it_is_away(scene: Scene) -> None:
    """If the node renews leases, the worker keeps them over an absence longer than a lease."""
    scene.work.are_leases_renewed = True
    await scene.lose(await scene.session())
    session = await scene.session()
    await scene.hold(session, 7)
    scene.clock.now_s += 10 * LEASE_MS / 1_000
    assert await scene.lose(session) == []
    assert (await scene.session()).introduction.held == {7: "job-7"}


async def test_sessions_that_were_welcome_are_opened_again_soon(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a connection is reset, the worker reconnects well within the reconnect grace."""
    waits_ms: list[float] = []

    class Random:
        def uniform(self, low: float, high: float) -> float:
            waits_ms.append(high)
            return low

    monkeypatch.setattr(node_session, "random", Random())
    for _ in range(8):
        await scene.lose(await scene.session())
    await scene.session()
    assert max(waits_ms) < limits.RECONNECT_GRACE_MS / 2


async def test_outcome_is_sent_again_until_it_is_durable(scene: Scene) -> None:
    """A report that a lost session may not have delivered is sent again until it is acknowledged."""
    session = await scene.session()
    await scene.hold(session, 7)
    await scene.line.report(1, [ReportRow("job-7", 22, DONE)])
    await scene.lose(session)
    again = await scene.session()
    assert again.reports == session.reports == [(1, [ReportRow("job-7", 7, DONE)])]
    assert scene.line.acknowledged(1) == [1]
    await scene.lose(again)
    last = await scene.session()
    assert (last.reports, last.introduction.held) == ([], {})


async def test_outcome_that_arrives_while_others_are_sent_again_is_sent_after_them(scene: Scene) -> None:
    """While a node reads the outcomes of the last session slowly, a new outcome waits, and no outcome is lost."""
    session = await scene.session()
    for token in (7, 8, 9):
        await scene.hold(session, token)
    await scene.line.report(1, [ReportRow("job-7", 22, DONE)])
    await scene.line.report(2, [ReportRow("job-8", 25, DONE)])
    scene.work.is_slow = True
    await scene.lose(session)
    again = await asyncio.wait_for(scene.work.opened.get(), 30)
    await asyncio.wait_for(again.has_reports.wait(), 30)
    reporting = asyncio.create_task(scene.line.report(3, [ReportRow("job-9", 28, DONE)]))
    await asyncio.sleep(0)
    again.is_read.set()
    await reporting
    await asyncio.wait_for(scene.listener.joins.get(), 10)
    assert [report_id for report_id, _ in again.reports] == [1, 2, 3]
    assert not scene.task.done()


async def test_call_to_a_node_whose_loss_was_not_noticed_yet_does_not_fail(scene: Scene) -> None:
    """A lost node disturbs neither the worker nor other nodes; the outcome and the drain are sent when it is back."""
    session = await scene.session()
    await scene.hold(session, 7)
    session.is_lost = True
    await scene.line.want(1)
    await scene.line.recall()
    await scene.line.note([Note("job-7", 22)])
    await scene.line.extend()
    await scene.line.release([25])
    await scene.line.report(1, [ReportRow("job-7", 22, DONE)])
    await scene.line.drain()
    await scene.lose(session)
    again = await scene.session()
    assert [report_id for report_id, _ in again.reports] == [1]
    assert scene.line.is_draining


async def test_leases_of_a_node_that_was_silent_for_too_long_are_given_up(scene: Scene) -> None:
    """Once the leases of a lost node have expired, the worker gives up the leases and their reports."""
    session = await scene.session()
    await scene.hold(session, 7)
    await scene.line.report(1, [ReportRow("job-7", 22, DONE)])
    scene.clock.now_s += LEASE_MS / 1_000 + 1
    assert await scene.lose(session) == [22]
    assert scene.line.acknowledged(0) == [1]
    assert (await scene.session()).introduction.held == {}


async def test_heartbeats_keep_leases_of_a_node_that_has_nothing_to_say(scene: Scene) -> None:
    """A heartbeat keeps the leases of a node that sent nothing for longer than a lease before it disconnected."""
    session = await scene.session()
    await scene.hold(session, 7)
    scene.clock.now_s += LEASE_MS / 1_000 + 1
    await scene.line.extend()
    assert session.beats == 1
    assert await scene.lose(session) == []


async def test_refusal_that_no_session_can_mend_ends_the_line(scene: Scene) -> None:
    """An error that no reconnect can fix, such as a newer session of the same worker, ends the session."""
    session = await scene.session()
    session.says.put_nowait(AbortedError("superseded"))
    assert isinstance(await asyncio.wait_for(scene.listener.refusals.get(), 30), AbortedError)
    await asyncio.wait_for(asyncio.wait([scene.task]), 30)
    assert scene.task.done()
