"""A worker's word with its coordinator: it asks for queue processes, says that it lives, and hears of changes.

While the coordinator is away, the worker keeps the queue processes that it has, and says by itself that it lives: else
another coordinator would take it for gone, and nobody would claim what only this worker can run.

Beside its heartbeats the worker keeps one silent connection open. The kernel closes it when the process dies, and not
while the process is stopped: the coordinator notices a dead worker at once and never takes a stopped one for dead.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.errors import HoldfastError, UnauthenticatedError
from holdfast.ports import Introduction
from holdfast.topologies.pipeline.backend.circuit_breaker import Absence
from holdfast.topologies.pipeline.backend.http_client import REFUSED, RoleConnections
from holdfast.topologies.pipeline.backend.messages import REPLACED, UNKNOWN, WAIT_MS_MAX, Asking, Beat, Leaving, Placed

_DEADLINE_S = 2.0
_RETRY_S = 0.5
#: A coordinator that answers sooner than this has something to say, or is not to be asked at once.
_SOON_S = 0.05


class Attendance:
    """One session's talk with the coordinator at `host:port`."""

    def __init__(
        self,
        lines: RoleConnections,
        address: str,
        introduction: Introduction,
        session: str,
        running: Callable[[], int],
        placed: Callable[[Placed], None],
        live: Callable[[str], Awaitable[None]],
    ) -> None:
        """`placed` hears of every answer that is news, `live` of the session whose coordinator hears of nothing."""
        self._lines = lines
        self._address = address
        self._introduction = introduction
        self._running = running
        self._placed = placed
        self._live = live
        self._said_s = float("-inf")
        self._session = session
        self._last = Placed(status=UNKNOWN, heartbeat_ms=1_000)
        self._is_draining = False
        self._absence = Absence("coordinator")
        #: Set from the time that the silent connection drops until there is a new one.
        self._dropped = asyncio.Event()
        #: What was said in the database before this time is said again.
        self._urgent_until_s = float("-inf")

    async def begin(self) -> None:
        """Asks for queue processes; if nobody answers, `run` goes on asking.

        `UnauthenticatedError` if the coordinator does not know this worker by its token.
        """
        try:
            self._hear(await self._request())
        except HoldfastError as error:
            if error.reason == REFUSED:
                raise UnauthenticatedError(error.message, reason=REFUSED) from error
            self._absence.missed(self._address, error)

    async def run(self) -> None:
        """Says that the worker lives, until it is replaced; may be canceled at any time."""
        while self._last.status != REPLACED:
            began_s = time.monotonic()
            try:
                placed = await self._beat()
            except HoldfastError as error:
                self._absence.missed(self._address, error)
                await self._say_by_itself()
                await asyncio.sleep(min(_RETRY_S, self._last.heartbeat_ms / 4_000))
                continue
            self._absence.answered(self._address)
            is_news = self._hear(placed)
            if not is_news and time.monotonic() - began_s < _SOON_S:
                await asyncio.sleep(self._last.heartbeat_ms / 1_000)

    async def stay(self) -> None:
        """Keep a connection open until the worker is replaced; may be canceled at any time.

        The coordinator takes a worker for lost whose connection dropped and which was not heard of since. So the worker
        connects again at once, and says in the database that it lives until it is connected. Neither waits for the
        other: the database may be slow while the coordinator can be reached, and the other way round.
        """
        async with asyncio.TaskGroup() as tasks:
            speaking = tasks.create_task(self._speak_while_dropped())
            await self._keep_connection()
            speaking.cancel()

    async def _keep_connection(self) -> None:
        present = {"worker_id": self._introduction.worker_id, "session": self._session}
        while self._last.status != REPLACED:
            with suppress(HoldfastError):  # the heartbeat's task logs that the coordinator is away
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
        """Once a heartbeat, in the row where the coordinator writes down when it heard of the worker.

        At first more often: a word that precedes the moment in which the coordinator notices the drop does not count.
        """
        now_s = time.monotonic()
        if self._said_s < self._urgent_until_s or now_s - self._said_s >= self._last.heartbeat_ms / 1_000:
            self._said_s = now_s
            try:
                await self._live(self._session)
            except HoldfastError:  # it was not heard, so it is said again
                self._said_s = float("-inf")

    async def drain(self) -> None:
        """The worker takes nothing more; what it took from goes to others."""
        self._is_draining = True
        await self._say("/coordinator/heartbeat", self._beat_now(0))

    async def leave(self) -> None:
        """The worker goes; if nobody hears it, missed heartbeats say the same."""
        leaving = Leaving(worker_id=self._introduction.worker_id, session=self._session)
        await self._say("/coordinator/release-assignment", leaving)

    async def _say(self, path: str, content: object) -> None:
        try:
            await self._lines.ask(self._address, path, content, kind=Placed, deadline_s=_DEADLINE_S)
        except HoldfastError as error:
            self._absence.missed(self._address, error)

    async def _request(self) -> Placed:
        introduction = self._introduction
        ask = Asking(
            worker_id=introduction.worker_id,
            session=self._session,
            types=sorted(introduction.types),
            queues=sorted(introduction.queues),
            slots=introduction.slots,
        )
        return await self._lines.ask(
            self._address, "/coordinator/request-assignment", ask, kind=Placed, deadline_s=_DEADLINE_S
        )

    async def _beat(self) -> Placed:
        if self._last.status == UNKNOWN:
            return await self._request()
        wait_ms = min(self._last.heartbeat_ms, WAIT_MS_MAX)
        return await self._lines.ask(
            self._address,
            "/coordinator/heartbeat",
            self._beat_now(wait_ms),
            kind=Placed,
            deadline_s=_DEADLINE_S + wait_ms / 1_000,
        )

    def _beat_now(self, wait_ms: int) -> Beat:
        return Beat(
            worker_id=self._introduction.worker_id,
            session=self._session,
            version=self._last.version,
            running=self._running(),
            wait_ms=wait_ms,
            is_draining=self._is_draining,
        )

    def _hear(self, placed: Placed) -> bool:
        """Whether it is news."""
        if placed.status == self._last.status and placed.version == self._last.version:
            return False
        heartbeat_ms = placed.heartbeat_ms or self._last.heartbeat_ms
        self._last = Placed(status=placed.status, version=placed.version, heartbeat_ms=heartbeat_ms)
        self._placed(placed)
        return True
