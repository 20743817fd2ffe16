"""A worker's session with one of several nodes, reopened whenever it is lost.

Invariants: an outcome is kept until its node confirms that it is durable, and sent again in each session; every session
begins with the leases that the worker holds; if a node that does not renew leases is silent for longer than a lease
lasts, its leases are given up.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from holdfast import limits
from holdfast.client.node_tokens import NodeTokens
from holdfast.client.wire_work import WireSession, WireWork
from holdfast.core.commands import ReportRow
from holdfast.core.model import Note
from holdfast.errors import FINAL, HoldfastError, UnavailableError
from holdfast.ports import Assignment, Directive, Introduction

#: Around a message to a node whose session may be lost.
_NOT_SENT = contextlib.suppress(HoldfastError)


class NodeListener(Protocol):
    """Receives the events of node sessions. Tokens are outer tokens (see `node_tokens`), not the node's own."""

    async def joined(self, line: "NodeSession", welcome: Directive) -> None:
        """Called when a session has begun."""
        ...

    async def heard(self, line: "NodeSession", directive: Directive) -> None:
        """Called for each directive of the node."""
        ...

    async def left(self, line: "NodeSession", error: HoldfastError, lost: Collection[int]) -> None:
        """Called when the session has ended; the leases `lost` are given up."""
        ...

    def refused(self, error: HoldfastError) -> None:
        """Called for an error that a new session cannot fix."""
        ...


class NodeSession:
    """The connection to one node. `run` runs until it is canceled."""

    def __init__(self, index: int, work: WireWork, tokens: NodeTokens, listener: NodeListener) -> None:
        self.index = index
        self._work = work
        self._tokens = tokens
        self._listener = listener
        self._session: WireSession | None = None
        #: The job ids of the leases that this worker holds at the node, by token.
        self.held: dict[int, str] = {}
        #: Outcomes that are not durable yet, by report id.
        self.reports: dict[int, list[ReportRow]] = {}
        self.is_draining = False
        self.is_drained = False
        #: The last time at which a lease may have been granted or extended.
        self._heard_s = time.monotonic()
        self._lease_ms = limits.LEASE_MS_DEFAULT
        self._are_leases_renewed = False
        self._is_welcome = False
        #: Whether the outcomes of earlier sessions are being sent; new ones wait behind them.
        self._is_catching_up = False

    @property
    def is_open(self) -> bool:
        """Whether a session is open."""
        return self._session is not None

    async def run(self, introduction: Introduction) -> None:
        """Keeps a session open, with back-off after failures."""
        failures = 0
        while True:
            self._is_welcome = False
            try:
                await self._live(introduction)
            except FINAL as error:
                self._listener.refused(error)
                return
            except HoldfastError as error:
                # After a session that was established, reconnect soon: the leases last for the reconnect grace.
                failures = 0 if self._is_welcome else failures + 1
                await self._listener.left(self, error, self._given_up())
            ceiling_ms = min(limits.RETRY_FIRST_MS * 2 ** min(failures, 10), limits.RETRY_MS_MAX)
            await asyncio.sleep(random.uniform(0, ceiling_ms) / 1_000)

    async def _live(self, introduction: Introduction) -> None:
        """Runs one session, from its hello to its loss."""
        held = {self._tokens.inner(token): job_id for token, job_id in self.held.items()}
        session = await self._work.open(msgspec.structs.replace(introduction, held=held))
        try:
            welcome = self._outer(await session.next())
            self._lease_ms = welcome.lease_ms or self._lease_ms
            self._are_leases_renewed = welcome.are_leases_renewed
            self._hear(welcome)
            self._session, self._is_welcome = session, True
            await self._catch_up(session)
            if self.is_draining:
                await session.drain()
            await self._listener.joined(self, welcome)
            while True:
                directive = self._outer(await session.next())
                self._hear(directive)
                await self._listener.heard(self, directive)
        finally:
            self._session = None
            self.is_drained = False
            await session.close()

    async def _catch_up(self, session: WireSession) -> None:
        """Sends every outcome that is not durable, in order: the acknowledgement of a report covers all before it."""
        sent: set[int] = set()
        self._is_catching_up = True
        try:
            while unsent := [report_id for report_id in self.reports if report_id not in sent]:
                await session.report(unsent[0], self._inner(self.reports[unsent[0]]))
                sent.add(unsent[0])
        finally:
            self._is_catching_up = False

    def _hear(self, directive: Directive) -> None:
        self._heard_s = time.monotonic()
        self.held.update({lease.token: lease.job_id for lease in directive.leases})
        for token in directive.revoked:
            self._forget(token)

    def _forget(self, token: int) -> None:
        self.held.pop(token, None)
        for rows in self.reports.values():
            rows[:] = [row for row in rows if row.token != token]

    def _given_up(self) -> list[int]:
        """Removes and returns the leases that must have expired since the last contact with the node."""
        if self._are_leases_renewed or (time.monotonic() - self._heard_s) * 1_000 <= self._lease_ms:
            return []
        lost = list(self.held)
        for token in lost:
            self._forget(token)
        return lost

    def acknowledged(self, reported: int) -> list[int]:
        """Removes and returns the reports that are durable, and those that have no rows left."""
        done = [report_id for report_id, rows in self.reports.items() if report_id <= reported or not rows]
        for report_id in done:
            for row in self.reports.pop(report_id):
                self.held.pop(row.token, None)
        return done

    # -- calls of the worker; a node without a session gets outcomes and a drain when it is back. `run` notices a lost
    # -- session a moment later than they do; until then it is treated like a missing one.

    async def want(self, count: int) -> None:
        """Offers credits."""
        if self._session is not None:
            with _NOT_SENT:
                await self._session.want(count)

    async def recall(self) -> None:
        """Takes unused credits back."""
        if self._session is not None:
            with _NOT_SENT:
                await self._session.recall()

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Sends outcomes, and keeps them until they are durable."""
        self.reports[report_id] = list(rows)
        if self._session is not None and not self._is_catching_up:
            with _NOT_SENT:
                await self._session.report(report_id, self._inner(rows))

    async def note(self, notes: Sequence[Note]) -> None:
        """Sends notes of running attempts."""
        if self._session is not None:
            inner = [msgspec.structs.replace(note, token=self._tokens.inner(note.token)) for note in notes]
            with _NOT_SENT:
                await self._session.note(inner)

    async def extend(self) -> None:
        """Sends a heartbeat."""
        if self._session is not None:
            with _NOT_SENT:
                await self._session.extend()
                self._heard_s = time.monotonic()

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back."""
        for token in tokens:
            self._forget(token)
        if self._session is not None:
            with _NOT_SENT:
                await self._session.release([self._tokens.inner(token) for token in tokens])

    async def drain(self) -> None:
        """Requests that the node grants no more leases."""
        self.is_draining = True
        if self._session is not None:
            with _NOT_SENT:
                await self._session.drain()

    # -- tokens

    def _inner(self, rows: Sequence[ReportRow]) -> list[ReportRow]:
        return [msgspec.structs.replace(row, token=self._tokens.inner(row.token)) for row in rows]

    def _outer(self, directive: Directive) -> Directive:
        outer = self._tokens.outer
        return msgspec.structs.replace(
            directive,
            leases=[self._lease(lease) for lease in directive.leases],
            cancels=[outer(self.index, token) for token in directive.cancels],
            revoked=[outer(self.index, token) for token in directive.revoked],
        )

    def _lease(self, lease: Assignment) -> Assignment:
        return msgspec.structs.replace(lease, token=self._tokens.outer(self.index, lease.token))


def closed() -> UnavailableError:
    """The error of calls after the session was closed."""
    return UnavailableError("the session was closed")
