"""A worker's client of its coordinator: it requests queue processes, sends heartbeats and receives changes.

While the coordinator is unavailable, the worker keeps its queue processes, and records in the database that it is
alive. Otherwise another coordinator would consider it lost, and watchers would not claim jobs that only it can run.

Beside its heartbeats the worker keeps one idle connection open. The kernel closes it when the process dies, but not
while the process is stopped: the coordinator notices a dead worker at once and never takes a stopped one for dead.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.errors import HoldfastError, UnauthenticatedError
from holdfast.ports import Introduction
from holdfast.topologies.pipeline.backend.circuit_breaker import CircuitBreaker
from holdfast.topologies.pipeline.backend.http_client import REFUSED, RoleConnections
from holdfast.topologies.pipeline.backend.messages import (
    REPLACED,
    UNKNOWN,
    WAIT_MS_MAX,
    AssignmentReply,
    AssignmentRequest,
    HeartbeatRequest,
    LeaveRequest,
)

_DEADLINE_S = 2.0
_RETRY_S = 0.5
#: A response without news that comes sooner than this is followed by a pause.
_SOON_S = 0.05


class CoordinatorClient:
    """The requests of one session to the coordinator at `host:port`."""

    def __init__(
        self,
        lines: RoleConnections,
        address: str,
        introduction: Introduction,
        session: str,
        running: Callable[[], int],
        placed: Callable[[AssignmentReply], None],
        live: Callable[[str], Awaitable[None]],
    ) -> None:
        """`placed` receives every response with news; `live` records in the database that the session is alive."""
        self._lines = lines
        self._address = address
        self._introduction = introduction
        self._running = running
        self._placed = placed
        self._live = live
        self._said_s = float("-inf")
        self._session = session
        self._last = AssignmentReply(status=UNKNOWN, heartbeat_ms=1_000)
        self._is_draining = False
        self._breaker = CircuitBreaker("coordinator")
        #: Set from the time that the idle connection drops until there is a new one.
        self._dropped = asyncio.Event()
        #: A record in the database that was made before this time is repeated.
        self._urgent_until_s = float("-inf")

    async def begin(self) -> None:
        """Requests queue processes; if the coordinator does not respond, `run` repeats the request.

        Raises `UnauthenticatedError` if the coordinator refuses the worker's token.
        """
        try:
            self._hear(await self._request())
        except HoldfastError as error:
            if error.reason == REFUSED:
                raise UnauthenticatedError(error.message, reason=REFUSED) from error
            self._breaker.missed(self._address, error)

    async def run(self) -> None:
        """Sends heartbeats until the worker is replaced; may be canceled at any time."""
        while self._last.status != REPLACED:
            began_s = time.monotonic()
            try:
                placed = await self._beat()
            except HoldfastError as error:
                self._breaker.missed(self._address, error)
                await self._say_by_itself()
                await asyncio.sleep(min(_RETRY_S, self._last.heartbeat_ms / 4_000))
                continue
            self._breaker.answered(self._address)
            is_news = self._hear(placed)
            if not is_news and time.monotonic() - began_s < _SOON_S:
                await asyncio.sleep(self._last.heartbeat_ms / 1_000)

    async def stay(self) -> None:
        """Keeps a connection open until the worker is replaced; may be canceled at any time.

        The coordinator considers a worker lost if its connection dropped and nothing was received from it since. So the
        worker reconnects at once, and records in the database that it is alive until it is connected. The two do not
        wait for each other: the database may be slow while the coordinator can be reached, and vice versa.
        """
        async with asyncio.TaskGroup() as tasks:
            speaking = tasks.create_task(self._speak_while_dropped())
            await self._keep_connection()
            speaking.cancel()

    async def _keep_connection(self) -> None:
        present = {"worker_id": self._introduction.worker_id, "session": self._session}
        while self._last.status != REPLACED:
            with suppress(HoldfastError):  # the heartbeat task logs that the coordinator is away
                await self._lines.hold(
                    self._address, "/coordinator/presence", present, begun=self._dropped.clear, deadline_s=_DEADLINE_S
                )
            if self._dropped.is_set():
                await asyncio.sleep(_RETRY_S)
            else:
                self._urgent_until_s = time.monotonic() + _RETRY_S
                self._dropped.set()
                await asyncio.sleep(_SOON_S)

    async def _speak_while_dropped(self) -> None:
        while True:
            await self._dropped.wait()
            await self._say_by_itself()
            await asyncio.sleep(_RETRY_S)

    async def _say_by_itself(self) -> None:
        """Records once per heartbeat, in the row where the coordinator saves the last heartbeat, that the worker lives.

        More often at first: a record from before the coordinator notices the dropped connection does not count.
        """
        now_s = time.monotonic()
        if self._said_s < self._urgent_until_s or now_s - self._said_s >= self._last.heartbeat_ms / 1_000:
            self._said_s = now_s
            try:
                await self._live(self._session)
            except HoldfastError:  # not recorded, so repeat it
                self._said_s = float("-inf")

    async def drain(self) -> None:
        """Reports that the worker drains; its queue processes are assigned to other workers."""
        self._is_draining = True
        await self._say("/coordinator/heartbeat", self._beat_now(0))

    async def leave(self) -> None:
        """Reports that the worker leaves; if the request fails, missed heartbeats have the same effect."""
        leaving = LeaveRequest(worker_id=self._introduction.worker_id, session=self._session)
        await self._say("/coordinator/release-assignment", leaving)

    async def _say(self, path: str, content: object) -> None:
        try:
            await self._lines.ask(self._address, path, content, kind=AssignmentReply, deadline_s=_DEADLINE_S)
        except HoldfastError as error:
            self._breaker.missed(self._address, error)

    async def _request(self) -> AssignmentReply:
        introduction = self._introduction
        ask = AssignmentRequest(
            worker_id=introduction.worker_id,
            session=self._session,
            types=sorted(introduction.types),
            queues=sorted(introduction.queues),
            slots=introduction.slots,
        )
        return await self._lines.ask(
            self._address, "/coordinator/request-assignment", ask, kind=AssignmentReply, deadline_s=_DEADLINE_S
        )

    async def _beat(self) -> AssignmentReply:
        if self._last.status == UNKNOWN:
            return await self._request()
        wait_ms = min(self._last.heartbeat_ms, WAIT_MS_MAX)
        return await self._lines.ask(
            self._address,
            "/coordinator/heartbeat",
            self._beat_now(wait_ms),
            kind=AssignmentReply,
            deadline_s=_DEADLINE_S + wait_ms / 1_000,
        )

    def _beat_now(self, wait_ms: int) -> HeartbeatRequest:
        return HeartbeatRequest(
            worker_id=self._introduction.worker_id,
            session=self._session,
            version=self._last.version,
            running=self._running(),
            wait_ms=wait_ms,
            is_draining=self._is_draining,
        )

    def _hear(self, placed: AssignmentReply) -> bool:
        """Processes a response; returns whether it has news."""
        if placed.status == self._last.status and placed.version == self._last.version:
            return False
        heartbeat_ms = placed.heartbeat_ms or self._last.heartbeat_ms
        self._last = AssignmentReply(status=placed.status, version=placed.version, heartbeat_ms=heartbeat_ms)
        self._placed(placed)
        return True
