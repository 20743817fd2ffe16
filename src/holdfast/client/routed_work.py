"""`WorkApi` over several nodes: one session for the worker, with a `NodeSession` for each node.

Invariants: an unreachable node stops neither the other nodes' work nor the session; its leases and outcomes are kept
until it returns. Reports are acknowledged in their order, each when all nodes concerned have acknowledged their part.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence

import msgspec

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.credit_balancer import CreditBalancer
from holdfast.client.discovery import EndpointOf
from holdfast.client.endpoints import Endpoint, TcpEndpoint
from holdfast.client.node_session import NodeSession, closed
from holdfast.client.node_tokens import NodeTokens
from holdfast.client.wire_work import WireWork
from holdfast.core.commands import ReportRow
from holdfast.core.model import Note
from holdfast.core.owner import owner_index
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ports import Assignment, Directive, Introduction

#: How long the start waits for all nodes; after it, one node is enough.
_WELCOME_S = 1.0
#: A node that leaves credits unused for this long counts as having no jobs.
_PROBE_S = 0.02
#: How long leases of one node are held back while another node confirms a recall or a release.
_PATIENCE_S = 0.25


#: Called with a node's address and the error of its loss; None if the node is back.
Told = Callable[[str, HoldfastError | None], None]


class RoutedWork:
    """Opens sessions with several nodes, named in their fixed order."""

    def __init__(
        self,
        addresses: Sequence[str],
        told: Told | None = None,
        access: Access = NO_CREDENTIALS,
        *,
        endpoint: EndpointOf = TcpEndpoint,
    ) -> None:
        """`told` is called when a node is lost, and when it is back."""
        self._addresses = addresses
        self._endpoints = [endpoint(address, access) for address in addresses]
        self._told: Told = told or (lambda _address, _error: None)

    async def open(self, introduction: Introduction) -> "RoutedSession":
        """Opens sessions with all nodes that answer; `UnavailableError` if none does."""
        session = RoutedSession(self._addresses, self._told, self._endpoints)
        try:
            await session.start(introduction)
        except BaseException:
            await session.close()
            raise
        return session


class RoutedSession:
    """One worker's sessions with all nodes."""

    def __init__(self, addresses: Sequence[str], told: Told, endpoints: Sequence[Endpoint]) -> None:
        self._addresses = addresses
        self._told = told
        self._away: set[int] = set()
        self._tokens = NodeTokens(len(addresses))
        works = [WireWork(endpoint) for endpoint in endpoints]
        self._lines = [NodeSession(index, work, self._tokens, self) for index, work in enumerate(works)]
        self._tasks: list[asyncio.Task[None]] = []
        self._room = CreditBalancer(self._deliver, self._look_again)
        self._inbox: list[Directive] = []
        self._news = asyncio.Event()
        self._failure: HoldfastError | None = None
        #: The welcomes of the nodes, until they are merged into one; then None.
        self._welcomes: list[Directive] | None = []
        #: Nodes that have neither answered nor failed since the start.
        self._awaited = set(range(len(addresses)))
        self._absence: HoldfastError = closed()
        #: For each unacknowledged report, the nodes that have not acknowledged their part.
        self._reports: dict[int, set[int]] = {}
        self._reported = 0
        self._is_draining = False
        self._timers: dict[str, asyncio.Task[None]] = {}

    async def start(self, introduction: Introduction) -> None:
        """Sends hello to all nodes; returns when all have answered, or when some have and `_WELCOME_S` is over."""
        for token, job_id in introduction.held.items():
            self._lines[self._tokens.node(token)].held[token] = job_id
        self._tasks = [asyncio.create_task(line.run(introduction)) for line in self._lines]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WELCOME_S):
                while self._awaited and self._failure is None:
                    await self._next_news()
        while self._awaited and not self._welcomes and self._failure is None:
            await self._next_news()
        if self._failure is not None:
            raise self._failure
        welcomes, self._welcomes = self._welcomes or [], None
        if not welcomes:
            raise UnavailableError(self._absence.message, reason=self._absence.reason)
        self._inbox.insert(0, _together(welcomes))

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    # -- calls of the worker

    async def next(self) -> Directive:
        """Waits for the next directive of any node."""
        while not self._inbox:
            if self._failure is not None:
                raise self._failure
            await self._next_news()
        return self._inbox.pop(0)

    async def want(self, count: int) -> None:
        """Adds credits, distributed over all nodes."""
        self._refuse_if_over()
        await self._room.want(count)

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Sends each outcome to the node that granted the lease."""
        self._refuse_if_over()
        parts: dict[int, list[ReportRow]] = {}
        for row in rows:
            parts.setdefault(self._node_of(row), []).append(row)
        self._reports[report_id] = set(parts)
        for index, part in parts.items():
            await self._lines[index].report(report_id, part)
        self._acknowledge()

    def _node_of(self, row: ReportRow) -> int:
        """Returns the node of the lease; without a token, the owner of the job."""
        return self._tokens.node(row.token) if row.token else owner_index(row.job_id, len(self._lines))

    async def note(self, notes: Sequence[Note]) -> None:
        """Sends notes of running attempts."""
        self._refuse_if_over()
        parts: dict[int, list[Note]] = {}
        for note in notes:
            parts.setdefault(self._tokens.node(note.token), []).append(note)
        for index, part in parts.items():
            await self._lines[index].note(part)

    async def extend(self) -> None:
        """Sends a heartbeat to all nodes."""
        self._refuse_if_over()
        for line in self._lines:
            await line.extend()

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back, each to its node."""
        self._refuse_if_over()
        for line in self._lines:
            mine = [token for token in tokens if self._tokens.node(token) == line.index]
            if mine:
                await line.release(mine)

    async def drain(self) -> None:
        """Requests that no node grants more leases."""
        self._refuse_if_over()
        self._is_draining = True
        self._room.close()
        for line in self._lines:
            await line.drain()
        self._tell_if_drained()

    async def close(self) -> None:
        """Closes all sessions; leases still held go back at once."""
        self._failure = self._failure or closed()
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()  # each task closes its session
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._news.set()

    def _refuse_if_over(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- events of the node sessions

    async def joined(self, line: NodeSession, welcome: Directive) -> None:
        """Handles a session with a node that has begun, perhaps again."""
        if line.index in self._away:
            self._away.discard(line.index)
            self._told(self._addresses[line.index], None)
        if self._welcomes is not None:
            self._welcomes.append(welcome)
        elif welcome.revoked or welcome.cancels:
            self._tell(Directive(cancels=welcome.cancels, revoked=welcome.revoked))
        self._settle(line, 0)
        self._awaited.discard(line.index)
        self._news.set()
        await self._room.join(line.index, line)

    async def heard(self, line: NodeSession, directive: Directive) -> None:
        """Handles one directive of one node."""
        line.is_drained |= directive.is_drained
        revoked = self._room.returned(line.index, directive.revoked)
        if directive.leases:
            await self._room.arrive(line.index, directive.leases)
            self._hurry_if_held_back()
        if directive.is_recalled:
            await self._room.recalled(line.index)
        if directive.cancels or revoked or directive.is_drain_asked:
            asked = directive.is_drain_asked
            self._tell(Directive(cancels=directive.cancels, revoked=revoked, is_drain_asked=asked))
        if directive.reported or directive.revoked:
            self._settle(line, directive.reported)
        self._tell_if_drained()

    async def left(self, line: NodeSession, error: HoldfastError, lost: Collection[int]) -> None:
        """Handles the loss of a node's session; the leases `lost` are revoked."""
        self._absence = error
        if line.index not in self._away:
            self._away.add(line.index)
            self._told(self._addresses[line.index], error)
        self._awaited.discard(line.index)
        self._news.set()
        await self._room.leave(line.index)
        if lost:
            self._tell(Directive(revoked=list(lost)))
            self._settle(line, 0)
        self._tell_if_drained()

    def refused(self, error: HoldfastError) -> None:
        """Ends the whole session with an error that a new session cannot fix."""
        self._failure = self._failure or error
        self._news.set()

    def _tell(self, directive: Directive) -> None:
        self._inbox.append(directive)
        self._news.set()

    def _deliver(self, leases: list[Assignment]) -> None:
        self._tell(Directive(leases=leases))

    def _settle(self, line: NodeSession, reported: int) -> None:
        """Marks the parts of reports that the node has acknowledged, or that have no rows left."""
        for report_id in line.acknowledged(reported):
            self._reports.get(report_id, set()).discard(line.index)
        self._acknowledge()

    def _acknowledge(self) -> None:
        done = self._reported
        for report_id in sorted(self._reports):
            if self._reports[report_id]:
                break
            del self._reports[report_id]
            done = report_id
        if done > self._reported:
            self._reported = done
            self._tell(Directive(reported=done))

    def _tell_if_drained(self) -> None:
        are_drained = all(line.is_drained or not line.is_open for line in self._lines)
        if self._is_draining and are_drained and self._room.is_settled:
            self._is_draining = False
            self._tell(Directive(is_drained=True))

    # -- time

    def _look_again(self) -> None:
        self._after("probe", _PROBE_S)

    def _hurry_if_held_back(self) -> None:
        if not self._room.is_settled:
            self._after("hand_on", _PATIENCE_S)

    def _after(self, what: str, delay_s: float) -> None:
        """Starts a timer, unless the same one is running."""
        if what not in self._timers or self._timers[what].done():
            self._timers[what] = asyncio.create_task(self._later(what, delay_s))

    async def _later(self, what: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if what == "probe":
            await self._room.probe()
        else:
            self._room.hand_on()


def _together(welcomes: Sequence[Directive]) -> Directive:
    """Merges the welcomes: the shortest intervals, and all cancels and revocations."""
    return msgspec.structs.replace(
        welcomes[0],
        lease_ms=min(welcome.lease_ms for welcome in welcomes),
        heartbeat_ms=min(welcome.heartbeat_ms for welcome in welcomes),
        are_leases_renewed=all(welcome.are_leases_renewed for welcome in welcomes),
        cancels=[token for welcome in welcomes for token in welcome.cancels],
        revoked=[token for welcome in welcomes for token in welcome.revoked],
    )
