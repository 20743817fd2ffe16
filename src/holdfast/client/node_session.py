"""One node of several, as a worker keeps in touch with it: a session that is opened again whenever it is lost.

Invariants: an outcome is kept until its node says that it is durable, and sent again in each session; what is held is
named whenever a session begins; when a node that renews no leases was silent for longer than one lasts, its leases are
given up.
"""

import asyncio
import random
import time
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from holdfast import limits
from holdfast.client.node_tokens import Tokens
from holdfast.client.work_session import StreamSession
from holdfast.client.work_stream import StreamWork
from holdfast.core.commands import ReportRow
from holdfast.core.model import Note
from holdfast.errors import FINAL, HoldfastError, UnavailableError
from holdfast.ports import Assignment, Directive, Introduction


class NodeListener(Protocol):
    """Who hears of one node; tokens are those that everybody knows, not the node's own."""

    async def joined(self, line: "NodeSession", welcome: Directive) -> None:
        """A session has begun."""
        ...

    async def heard(self, line: "NodeSession", directive: Directive) -> None:
        """The node has said something."""
        ...

    async def left(self, line: "NodeSession", error: HoldfastError, lost: Collection[int]) -> None:
        """The session is over, and these leases are given up."""
        ...

    def refused(self, error: HoldfastError) -> None:
        """No other session can mend it."""
        ...


class NodeSession:
    """One node. `run` goes on until it is canceled."""

    def __init__(self, index: int, work: StreamWork, tokens: Tokens, listener: NodeListener) -> None:
        self.index = index
        self._work = work
        self._tokens = tokens
        self._listener = listener
        self._session: StreamSession | None = None
        #: What this worker holds here, by token.
        self.held: dict[int, str] = {}
        #: Outcomes that are not durable yet, by report.
        self.reports: dict[int, list[ReportRow]] = {}
        self.is_draining = False
        self.is_drained = False
        #: When a lease may last have been given or extended.
        self._heard_s = time.monotonic()
        self._lease_ms = limits.LEASE_MS_DEFAULT
        self._are_leases_renewed = False
        self._is_welcome = False

    @property
    def is_open(self) -> bool:
        """Whether the node can be told something now."""
        return self._session is not None

    async def run(self, introduction: Introduction) -> None:
        """Keeps a session open."""
        failures = 0
        while True:
            self._is_welcome = False
            try:
                await self._live(introduction)
            except FINAL as error:
                self._listener.refused(error)
                return
            except HoldfastError as error:
                # Whoever was welcome has leases to come back for, within the reconnect grace.
                failures = 0 if self._is_welcome else failures + 1
                await self._listener.left(self, error, self._given_up())
            ceiling_ms = min(limits.RETRY_FIRST_MS * 2 ** min(failures, 10), limits.RETRY_MS_MAX)
            await asyncio.sleep(random.uniform(0, ceiling_ms) / 1_000)

    async def _live(self, introduction: Introduction) -> None:
        """One session, from its hello to its loss."""
        held = {self._tokens.inner(token): job_id for token, job_id in self.held.items()}
        session = await self._work.open(msgspec.structs.replace(introduction, held=held))
        try:
            welcome = self._outer(await session.next())
            self._lease_ms = welcome.lease_ms or self._lease_ms
            self._are_leases_renewed = welcome.are_leases_renewed
            self._hear(welcome)
            self._session, self._is_welcome = session, True
            for report_id, rows in self.reports.items():
                await session.report(report_id, self._inner(rows))
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
        """What must have run out for good since the node was last heard of."""
        if self._are_leases_renewed or (time.monotonic() - self._heard_s) * 1_000 <= self._lease_ms:
            return []
        lost = list(self.held)
        for token in lost:
            self._forget(token)
        return lost

    def acknowledged(self, reported: int) -> list[int]:
        """The reports that are durable by now, and those of which nothing is left to send."""
        done = [report_id for report_id, rows in self.reports.items() if report_id <= reported or not rows]
        for report_id in done:
            for row in self.reports.pop(report_id):
                self.held.pop(row.token, None)
        return done

    # -- what the worker says; a node that is away hears it when it is back, as far as that makes sense

    async def want(self, count: int) -> None:
        """More room."""
        if self._session is not None:
            await self._session.want(count)

    async def recall(self) -> None:
        """No more room."""
        if self._session is not None:
            await self._session.recall()

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Outcomes."""
        self.reports[report_id] = list(rows)
        if self._session is not None:
            await self._session.report(report_id, self._inner(rows))

    async def note(self, notes: Sequence[Note]) -> None:
        """Words of running attempts."""
        if self._session is not None:
            await self._session.note([msgspec.structs.replace(n, token=self._tokens.inner(n.token)) for n in notes])

    async def extend(self) -> None:
        """A heartbeat."""
        if self._session is not None:
            await self._session.extend()
            self._heard_s = time.monotonic()

    async def release(self, tokens: Collection[int]) -> None:
        """Leases handed back."""
        for token in tokens:
            self._forget(token)
        if self._session is not None:
            await self._session.release([self._tokens.inner(token) for token in tokens])

    async def drain(self) -> None:
        """No more leases."""
        self.is_draining = True
        if self._session is not None:
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
    """What whoever still listens is told."""
    return UnavailableError("the session was closed")
