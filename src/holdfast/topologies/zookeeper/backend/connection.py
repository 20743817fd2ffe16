"""One session with an ensemble, as one event loop uses it.

Invariants:
- A request is sent when its method is called, and answered in that order: callers may have many in progress.
- Every request is answered in time or fails. It fails at once while there is no connection: the library would queue it,
  and block the loop once its queue has a few hundred. After `UnavailableError` it is unknown whether the ensemble has
  executed it, or will: only a read after `sync`, on a session that is connected again, shows that. No request is sent
  twice here.
- The session lives as long as the event loop: a loop that stalls for more than half the session timeout sends no pings.
- A watch only sets an event, after which its task reads again. A lost connection sets it too, because the change that
  the task waits for may have happened meanwhile.
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

from holdfast.errors import FailedPreconditionError, HoldfastError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper import ensemble_limits
from holdfast.topologies.zookeeper.backend.kazoo_answers import (
    done_of,
    error_of,
    none_if_missing,
    stat_of,
    stat_or_none,
    unknown,
)
from holdfast.topologies.zookeeper.backend.kazoo_bridge import Bridge, Convert, KazooResult, Watch, WatchEvent
from holdfast.topologies.zookeeper.backend.kazoo_patches import drop_if_misread, note_what_is_granted, ping_only_if
from holdfast.topologies.zookeeper.backend.paths import LAYOUT, Paths
from holdfast.topologies.zookeeper.backend.session_guard import SessionGuard
from holdfast.topologies.zookeeper.backend.session_guard_program import GuardedSession
from holdfast.topologies.zookeeper.backend.transactions import (
    Check,
    Create,
    Delete,
    Put,
    ReadNode,
    RefusedError,
    Stat,
    Step,
    TransactionResult,
)

T = TypeVar("T")

_CALL_S = ensemble_limits.CALL_MS / 1_000
#: Number of nodes of an older root that are protected concurrently.
_PROTECTED_AT_A_TIME = 256
#: Pause before `back` checks the connection: a request may have failed although it is connected.
_PAUSE_S = 0.05
#: Pause before the outage is logged again: at first, and at most.
_AWAY_S, _AWAY_S_MAX = 2 * _CALL_S, 300.0
#: The library registers a watch shortly after the reply.
_NOTED_S = 1.0
#: The library's logs are off unless this logger is configured.
_LOGGER = logging.getLogger("holdfast.zookeeper.client")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False


class SessionPhase(Enum):
    """The state of the session."""

    CONNECTED = "it is connected"
    SUSPENDED = "it may be alive, but no server is connected"
    LOST = "it is over, and its ephemeral nodes are gone"


class EnsembleConnection:
    """One session, which `connect` opens."""

    def __init__(self, hosts: str, root: str, session_ms: int, credentials: str = "") -> None:
        """With `credentials`, `user:password`, only sessions that have them may use the nodes that this one creates."""
        self.paths = Paths(root)
        self._acl = [make_digest_acl(*credentials.split(":", 1), all=True)] if credentials else []
        self.hosts = hosts
        self.phase = SessionPhase.LOST
        #: The id of the session, or of the last one that was connected.
        self.session_id = 0
        #: The session timeout; servers may grant less than was requested.
        self.session_ms = max(session_ms, ensemble_limits.SESSION_MS_MIN)
        #: Numbers of sent requests by kind, of listed names, and of watches that have fired.
        self.traffic: Counter[str] = Counter()
        self.when_changed: list[Callable[[SessionPhase], None]] = []
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
        """Returns the ensemble's time."""
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
        """Starts a process that closes this session, or a later one of this connection, if this process dies."""
        assert self._guard is None, "a connection has one guard"
        self._guard = SessionGuard.start()
        self._tell_guard()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called; every request fails then."""
        return self._is_closed

    async def close(self) -> None:
        """Ends the session; its ephemeral nodes are gone when this returns, if the ensemble is reachable."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for future in list(self._open):
            if not future.done():
                future.set_exception(unknown("the connection to ZooKeeper was closed"))
        stopped = asyncio.Event()
        # A separate thread, because jobs may occupy all threads of the loop's executor.
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
            message = (
                f"no ZooKeeper server answers at {self.hosts}; start the ensemble, or check the addresses (--ensemble,"
                " HOLDFAST_ENSEMBLE, or the zk:// URL)"
            )
            raise UnavailableError(message, reason="ENSEMBLE_AWAY") from None

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
        """Logs the outage once for all waiting callers, at growing intervals."""
        next_s, pause_s = self._away_told
        if self._loop.time() >= next_s:
            get_logger().info("ensemble_away", message="still trying to reach ZooKeeper")
            self._away_told = (self._loop.time() + pause_s, min(2 * pause_s, _AWAY_S_MAX))

    async def repeat(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Runs a read-only request, and repeats it after a lost connection, within the time limit of a call."""
        until_s = self._loop.time() + _CALL_S
        while True:
            try:
                return await ask()
            except UnavailableError:
                if self._is_closed or self._loop.time() >= until_s:
                    raise
                await self.connected()

    # -- requests

    def get(self, path: str, watch_event: WatchEvent | None = None) -> asyncio.Future[ReadNode | None]:
        """Reads a node; None if it does not exist, and then no watch is set."""

        def node_of(pair: Any) -> ReadNode:  # noqa: ANN401 - the library's own tuple
            return ReadNode(pair[0], stat_of(pair[1]))

        return self._ask(
            "get", lambda: self._client.get_async(path, self._watch(watch_event)), node_of, none_if_missing
        )

    def exists(self, path: str, watch_event: WatchEvent | None = None) -> asyncio.Future[Stat | None]:
        """Reads the metadata of a node; the event is set when it is created, changed or deleted."""
        return self._ask("exists", lambda: self._client.exists_async(path, self._watch(watch_event)), stat_or_none)

    def children(self, path: str, watch_event: WatchEvent | None = None) -> asyncio.Future[list[str] | None]:
        """Lists the names below a node, unordered; None if it does not exist, and then no watch is set."""
        return self._ask(
            "children",
            lambda: self._client.get_children_async(path, self._watch(watch_event)),
            self._count_names,
            none_if_missing,
        )

    def sync(self) -> asyncio.Future[object]:
        """Makes later reads return state that is no older than this request."""
        return self._ask("sync", lambda: self._client.sync_async(self.paths.root))

    def transact(self, steps: list[Step]) -> asyncio.Future[TransactionResult]:
        """Executes all steps or none; `RefusedError` names the step that failed."""
        return self._ask("transact", lambda: self._commit(steps), lambda results: done_of(steps, results))

    def ignore(self, path: str, watch_event: WatchEvent) -> None:
        """Removes the watch of an event without waiters: the library would keep it until the node changes."""
        watches, watch = self._client._data_watchers, Watch(self.traffic, watch_event)  # noqa: SLF001 - as for grants
        self._loop.call_later(_NOTED_S, lambda: watches.get(path, set()).discard(watch))

    def _commit(self, steps: list[Step]) -> KazooResult:
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
        answer: KazooResult = transaction.commit_async()
        return answer

    def _ask(
        self, kind: str, send: Callable[[], KazooResult], convert: Convert | None = None, failed: Convert | None = None
    ) -> asyncio.Future[Any]:
        if self._is_closed or self.phase is not SessionPhase.CONNECTED:
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
        future.exception()  # retrieved, so that asyncio does not log it if no caller waits
        return future

    def _answered(self, future: asyncio.Future[Any], overdue: asyncio.TimerHandle) -> None:
        overdue.cancel()
        self._open.discard(future)
        if not future.cancelled():
            future.exception()  # retrieved, so that asyncio does not log it if no caller waits

    def _give_up(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(unknown(f"ZooKeeper at {self.hosts} did not answer within {_CALL_S:.0f} s"))

    def _watch(self, watch_event: WatchEvent | None) -> Callable[[object], None] | None:
        if watch_event is None:
            return None
        return Watch(self.traffic, watch_event)

    def _count_names(self, names: list[str]) -> list[str]:
        self.traffic["names"] += len(names)
        return names

    # -- the session

    def _is_loop_alive(self) -> bool:
        """Returns whether the loop has run recently, and schedules a call on it; runs on the library's thread."""
        inbox = self._bridge.inbox
        inbox.put(lambda: None)
        return time.monotonic() - inbox.emptied_s < self.session_ms / 2_000

    def _granted(self, session_ms: int) -> None:
        """Stores the granted session timeout; runs on the library's thread."""
        self.session_ms = session_ms

    def _change(self, state: str) -> None:
        phase = self.phase = SessionPhase[state]
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
        """Sets the clock by the time stamp of a write, which lies between its request and its reply."""
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
                # An existing node may have a parent that only others may change.
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
        if await self.exists(self.paths.failed) is None:  # an earlier version without this node created the root
            with contextlib.suppress(RefusedError):
                await self.transact([Create(self.paths.failed)])
        if self._acl:
            await self._protect()

    async def _protect(self) -> None:
        """Protects a root that was created without credentials; the node of the layout comes last, as the mark.

        Each node is protected before its children are listed, so that no unprotected child is added meanwhile.
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
    """Opens a connection; `UnavailableError` if no server answers in time.

    A guarded session is closed as soon as this process dies, not only at its timeout: for processes that hold leases or
    a place in a line.
    """
    connection = EnsembleConnection(hosts, root, session_ms, credentials)
    await connection.open()
    if is_guarded:
        connection.guard()
    return connection
