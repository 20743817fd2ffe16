"""One session with an ensemble, as one event loop uses it.

Invariants:
- A request is sent when its method is called, and answered in that order: callers may have many in progress.
- Every request is answered in time or fails. It fails at once while there is no connection: the library would queue it,
  and block the loop once its queue has a few hundred. After `UnavailableError` it is unknown whether the ensemble has
  executed it, or will: only a read after `sync`, on a session that is connected again, shows that. No request is sent
  twice here.
- The session lives as long as the event loop: a loop that stalls for more than half the session timeout sends no pings.
- A watch only rings a bell. It also rings when the connection is lost, because what it waits for may have happened
  meanwhile.
"""

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from kazoo.security import ACL, make_digest_acl

from holdfast import limits
from holdfast.errors import FailedPreconditionError, HoldfastError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.backend.kazoo_answers import (
    done_of,
    error_of,
    none_if_missing,
    stat_of,
    stat_or_none,
    unknown,
)
from holdfast.topologies.zookeeper.backend.kazoo_bridge import Bell, Bridge, Convert, KazooAnswer, Watch
from holdfast.topologies.zookeeper.backend.kazoo_patches import drop_if_misread, note_what_is_granted, ping_only_if
from holdfast.topologies.zookeeper.backend.paths import LAYOUT, Paths
from holdfast.topologies.zookeeper.backend.session_guard import SessionGuard
from holdfast.topologies.zookeeper.backend.session_guard_program import GuardedSession
from holdfast.topologies.zookeeper.backend.transactions import (
    Check,
    Create,
    Delete,
    Done,
    Put,
    ReadNode,
    RefusedError,
    Stat,
    Step,
)

T = TypeVar("T")

_CALL_S = limits.ZOOKEEPER_CALL_MS / 1_000
#: How many nodes of an older root are given credentials together.
_PROTECTED_AT_A_TIME = 256
#: Before anything is tried again that could not be done although the ensemble answers.
_PAUSE_S = 0.05
#: Pause before the outage is logged again: at first, and at most.
_AWAY_S, _AWAY_S_MAX = 2 * _CALL_S, 300.0
#: The library takes note of a watch a moment after it has answered.
_NOTED_S = 1.0
#: The library's logs are off unless this logger is configured.
_LOGGER = logging.getLogger("holdfast.zookeeper.client")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False


class Phase(Enum):
    """How it stands with the session."""

    CONNECTED = "it is connected"
    SUSPENDED = "it may be alive, and nobody can be asked"
    LOST = "it is over, and all that was its own is gone"


class EnsembleConnection:
    """One session. Made by `connect`."""

    def __init__(self, hosts: str, root: str, session_ms: int, credentials: str = "") -> None:
        """With `credentials`, `user:password`, only sessions that have them may use the nodes that are made here."""
        self.paths = Paths(root)
        self._acl = [make_digest_acl(*credentials.split(":", 1), all=True)] if credentials else []
        self.hosts = hosts
        self.phase = Phase.LOST
        #: Of the session as it is, or was when it was last connected.
        self.session_id = 0
        #: For how long the ensemble lets the session be silent; servers may grant less than was asked for.
        self.session_ms = max(session_ms, limits.ZOOKEEPER_SESSION_MS_MIN)
        #: How many requests of each kind were sent, how many names were listed, how many watches have rung.
        self.traffic: Counter[str] = Counter()
        self.when_changed: list[Callable[[Phase], None]] = []
        self._loop = asyncio.get_running_loop()
        self._bridge = Bridge(self._loop)
        self._client = KazooClient(
            hosts,
            timeout=self.session_ms / 1_000,
            handler=self._bridge,
            default_acl=self._acl or None,
            auth_data=[("digest", credentials)] if credentials else None,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0},
            logger=_LOGGER,
        )
        self._client.add_listener(lambda state: self._bridge.inbox.put(self._change, state))
        note_what_is_granted(self._client, self._granted)
        ping_only_if(self._client, self._is_loop_alive)
        drop_if_misread(self._client)
        self._connected = asyncio.Event()
        self._open: set[asyncio.Future[Any]] = set()
        #: The ensemble's time and this process's clock at one instant.
        self._clock = (0.0, 0.0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        #: When the outage is logged next, and the pause after that.
        self._away_told = (0.0, _AWAY_S)
        self._guard: SessionGuard | None = None

    def now_ms(self) -> int:
        """The ensemble's time."""
        at_ms, at_s = self._clock
        return int(at_ms + (time.monotonic() - at_s) * 1_000)

    async def open(self) -> None:
        """Connects and creates the layout if needed; `UnavailableError` if no server answers in time."""
        try:
            self._client.start_async()
            await self.connected()
            await self._prepare()
            await self._set_clock()
        except BaseException:
            await self.close()
            raise

    def guard(self) -> None:
        """Start a process that closes this session, and each that follows it here, should this process die."""
        assert self._guard is None, "a connection has one guard"
        self._guard = SessionGuard.start()
        self._tell_guard()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed from here: nothing will ever be answered."""
        return self._is_closed

    async def close(self) -> None:
        """Ends the session: all that is its own is gone when this returns, if the ensemble can be reached."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for future in list(self._open):
            if not future.done():
                future.set_exception(unknown("the connection to ZooKeeper was closed"))
        stopped = asyncio.Event()
        # A thread of its own: whatever jobs await may have all of the loop's, for as long as they like.
        threading.Thread(target=self._stop, args=(stopped,), name="holdfast-zookeeper-stop", daemon=True).start()
        await stopped.wait()

    def _stop(self, stopped: asyncio.Event) -> None:
        with contextlib.suppress(Exception):  # the library could not end its thread in time; it ends by itself
            self._client.stop()
        with contextlib.suppress(Exception):
            self._client.close()
        if self._guard is not None:
            self._guard.release()
        self._bridge.inbox.put(stopped.set)

    async def connected(self) -> None:
        """Waits until a server is connected; `UnavailableError` if that takes too long."""
        if self._is_closed:
            raise unknown("the connection to ZooKeeper was closed")
        try:
            async with asyncio.timeout(_CALL_S):
                await self._connected.wait()
        except TimeoutError:
            raise UnavailableError(f"no ZooKeeper server answers at {self.hosts}", reason="ENSEMBLE_AWAY") from None

    async def back(self) -> None:
        """Waits without a limit until a server is connected again; `UnavailableError` once it is closed."""
        await asyncio.sleep(_PAUSE_S)
        while True:
            try:
                return await self.connected()
            except UnavailableError:
                if self._is_closed:
                    raise
                self._tell_away()

    def _tell_away(self) -> None:
        """Log it for all that wait, ever more rarely while it lasts."""
        next_s, pause_s = self._away_told
        if self._loop.time() >= next_s:
            get_logger().info("ensemble_away", message="still trying to reach ZooKeeper")
            self._away_told = (self._loop.time() + pause_s, min(2 * pause_s, _AWAY_S_MAX))

    async def repeat(self, ask: Callable[[], Awaitable[T]]) -> T:
        """For what only reads: asked again when the connection is back, as long as that does not take too long."""
        until_s = self._loop.time() + _CALL_S
        while True:
            try:
                return await ask()
            except UnavailableError:
                if self._is_closed or self._loop.time() >= until_s:
                    raise
                await self.connected()

    # -- requests

    def get(self, path: str, bell: Bell | None = None) -> asyncio.Future[ReadNode | None]:
        """What a node holds; None if there is no such node, and then no bell will ring."""

        def node_of(pair: Any) -> ReadNode:  # noqa: ANN401 - the library's own tuple
            return ReadNode(pair[0], stat_of(pair[1]))

        return self._ask("get", lambda: self._client.get_async(path, self._watch(bell)), node_of, none_if_missing)

    def exists(self, path: str, bell: Bell | None = None) -> asyncio.Future[Stat | None]:
        """What is known of a node; the bell rings when it comes, changes or goes."""
        return self._ask("exists", lambda: self._client.exists_async(path, self._watch(bell)), stat_or_none)

    def children(self, path: str, bell: Bell | None = None) -> asyncio.Future[list[str] | None]:
        """The names below a node, in no order; None if there is no such node, and then no bell will ring."""
        return self._ask(
            "children",
            lambda: self._client.get_children_async(path, self._watch(bell)),
            self._count_names,
            none_if_missing,
        )

    def sync(self) -> asyncio.Future[object]:
        """What is read after this is no older than this request."""
        return self._ask("sync", lambda: self._client.sync_async(self.paths.root))

    def transact(self, steps: list[Step]) -> asyncio.Future[Done]:
        """All steps or none; `RefusedError` names the one that was not possible."""
        return self._ask("transact", lambda: self._commit(steps), lambda results: done_of(steps, results))

    def ignore(self, path: str, bell: Bell) -> None:
        """Removes the watch of a bell without waiters: the library would keep it until the node changes."""
        watches, watch = self._client._data_watchers, Watch(self.traffic, bell)  # noqa: SLF001 - as for grants
        self._loop.call_later(_NOTED_S, lambda: watches.get(path, set()).discard(watch))

    def _commit(self, steps: list[Step]) -> KazooAnswer:
        transaction = self._client.transaction()
        for step in steps:
            match step:
                case Create():
                    transaction.create(step.path, step.data, ephemeral=step.ephemeral, sequence=step.sequential)
                case Put():
                    transaction.set_data(step.path, step.data, step.version)
                case Delete():
                    transaction.delete(step.path, step.version)
                case Check():
                    transaction.check(step.path, step.version)
        answer: KazooAnswer = transaction.commit_async()
        return answer

    def _ask(
        self, kind: str, send: Callable[[], KazooAnswer], convert: Convert | None = None, failed: Convert | None = None
    ) -> asyncio.Future[Any]:
        if self._is_closed or self.phase is not Phase.CONNECTED:
            return self._unanswered()
        self.traffic[kind] += 1
        answer = send()
        if convert is not None:
            answer.convert = convert
        answer.failed = failed or error_of
        future = answer.future
        self._open.add(future)
        overdue = self._loop.call_later(_CALL_S, self._give_up, future)
        future.add_done_callback(lambda done: self._answered(done, overdue))
        return future

    def _unanswered(self) -> asyncio.Future[Any]:
        why = "the connection to ZooKeeper was closed" if self._is_closed else f"no server answers at {self.hosts}"
        future: asyncio.Future[Any] = self._loop.create_future()
        future.set_exception(unknown(why))
        future.exception()  # whoever does not wait for an answer need not be warned of it
        return future

    def _answered(self, future: asyncio.Future[Any], overdue: asyncio.TimerHandle) -> None:
        overdue.cancel()
        self._open.discard(future)
        if not future.cancelled():
            future.exception()  # whoever does not wait for an answer need not be warned of it

    def _give_up(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(unknown(f"ZooKeeper at {self.hosts} did not answer within {_CALL_S:.0f} s"))

    def _watch(self, bell: Bell | None) -> Callable[[object], None] | None:
        if bell is None:
            return None
        return Watch(self.traffic, bell)

    def _count_names(self, names: list[str]) -> list[str]:
        self.traffic["names"] += len(names)
        return names

    # -- the session

    def _is_loop_alive(self) -> bool:
        """On the library's thread: whether it was, not long ago; it is asked to show it again."""
        inbox = self._bridge.inbox
        inbox.put(lambda: None)
        return time.monotonic() - inbox.emptied_s < self.session_ms / 2_000

    def _granted(self, session_ms: int) -> None:
        """On the library's thread."""
        self.session_ms = session_ms

    def _change(self, state: str) -> None:
        phase = self.phase = Phase[state]
        if state == KazooState.CONNECTED:
            self._connected.set()
            self._away_told = (0.0, _AWAY_S)
            identity = self._client.client_id
            self.session_id = identity[0] if identity else self.session_id
            self._tell_guard()
            if self._clock[1] and not self._is_closed:  # the machine may have slept meanwhile
                self._spawn_clock()
        else:
            self._connected.clear()
        for listener in list(self.when_changed):
            listener(phase)

    def _tell_guard(self) -> None:
        identity = self._client.client_id
        if self._guard is not None and identity is not None and not self._is_closed:
            self._guard.watch(GuardedSession(self.hosts, self.session_ms, *identity))

    def _spawn_clock(self) -> None:
        task = self._loop.create_task(self._set_clock_again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _set_clock_again(self) -> None:
        with contextlib.suppress(HoldfastError):
            await self._set_clock()

    async def _set_clock(self) -> None:
        """By the time stamp of a write, which lies between its beginning and its end."""
        before_s = time.monotonic()
        done = await self.transact([Put(self.paths.clock, b"")])
        stat = done.stats[0]
        assert stat is not None
        self._clock = (float(stat.changed_ms), (before_s + time.monotonic()) / 2)

    async def _prepare(self) -> None:
        """Creates the permanent nodes, unless they exist."""
        node = await self.get(self.paths.layout)
        if node is None:
            for parent in self.paths.parents():
                # One that is there may be in a node that only others may change.
                with contextlib.suppress(RefusedError, FailedPreconditionError):
                    await self.transact([Create(parent)])
            with contextlib.suppress(RefusedError):
                await self.transact([Create(self.paths.layout, LAYOUT), *map(Create, self.paths.fixed())])
            await self.sync()
            node = await self.get(self.paths.layout)
        if node is None or node.data != LAYOUT:
            found = node.data.decode(errors="replace") if node else "none"
            message = f"the layout below {self.paths.root!r} must be {LAYOUT.decode()}, got {found}; use another path"
            raise FailedPreconditionError(message, reason="LAYOUT_UNKNOWN")
        if await self.exists(self.paths.failed) is None:  # the root was made by a version that did not have it
            with contextlib.suppress(RefusedError):
                await self.transact([Create(self.paths.failed)])
        if self._acl:
            await self._protect()

    async def _protect(self) -> None:
        """Closes a root that was made without credentials; the layout's node is closed last, and tells that it was.

        Each node is closed before its children are listed, so that no open one is made in it meanwhile.
        """
        if await self._acl_of(self.paths.layout) == self._acl:
            return
        nodes, level = 0, [self.paths.root]
        while level:
            below = []
            for start in range(0, len(level), _PROTECTED_AT_A_TIME):
                batch = level[start : start + _PROTECTED_AT_A_TIME]
                await asyncio.gather(*map(self._close_to_others, batch))
                below += [await asyncio.gather(*map(self.children, batch))]
                nodes += len(batch)
            names = zip(level, itertools.chain.from_iterable(below), strict=True)
            level = [f"{path}/{name}" for path, found in names for name in found or ()]
            level = [path for path in level if path != self.paths.layout]
        await self._close_to_others(self.paths.layout)
        get_logger().info("ensemble_protected", root=self.paths.root, nodes=nodes + 1)

    def _acl_of(self, path: str) -> asyncio.Future[list[ACL] | None]:
        return self._ask("acl", lambda: self._client.get_acls_async(path), lambda pair: pair[0], none_if_missing)

    def _close_to_others(self, path: str) -> asyncio.Future[object]:
        return self._ask("acl", lambda: self._client.set_acls_async(path, self._acl), None, none_if_missing)


async def connect(
    hosts: str, root: str, *, session_ms: int, credentials: str = "", is_guarded: bool = False
) -> EnsembleConnection:
    """A connection that is connected; `UnavailableError` if no server answers in time.

    A guarded one is closed as soon as this process dies, and not only when its session has timed out: for a process
    that others would wait for.
    """
    connection = EnsembleConnection(hosts, root, session_ms, credentials)
    await connection.open()
    if is_guarded:
        connection.guard()
    return connection
