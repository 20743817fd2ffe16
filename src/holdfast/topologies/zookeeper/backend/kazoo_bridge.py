"""Passes kazoo's results from its threads to one event loop.

Invariants:
- No callback of ours runs on a thread of kazoo: replies, watches and changes of state are only put into a queue there.
- The loop is woken once for all queued calls, and runs them in order.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

Convert = Callable[[Any], Any]

#: Maximum time to connect to a server, in seconds and as a fraction of kazoo's timeout.
_ACCEPT_S, _ACCEPT_PART = 2.0, 0.25


class WatchEvent(asyncio.Event):
    """An event that is set by a watch; the waiting task then reads the state again."""

    def fired(self, _event: object) -> None:
        """Called on the loop, for any kind of event."""
        self.set()


class Watch:
    """Sets an event and counts that; equal watches of one node fire once."""

    __slots__ = ("_traffic", "_watch_event")

    def __init__(self, traffic: Counter[str], watch_event: WatchEvent) -> None:
        self._traffic, self._watch_event = traffic, watch_event

    def __call__(self, event: object) -> None:
        self._traffic["rings"] += 1
        self._watch_event.fired(event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Watch) and other._watch_event is self._watch_event

    def __hash__(self) -> int:
        return id(self._watch_event)


class Inbox:
    """Calls that other threads queue for the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_called = False
        #: When the loop last ran the queued calls.
        self.emptied_s = time.monotonic()

    def put(self, act: Callable[..., None], *arguments: object) -> None:
        """Queues a call for the loop; may be called on any thread."""
        self._waiting.append((act, arguments))
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: drop the call
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_called = False  # first, so that a later `put` wakes the loop again
        self.emptied_s = time.monotonic()
        while self._waiting:
            act, arguments = self._waiting.popleft()
            act(*arguments)


class KazooResult:
    """The result object that kazoo fills for one request; it resolves a future of the loop."""

    __slots__ = ("_inbox", "_link", "convert", "failed", "future")

    def __init__(self, inbox: Inbox, future: asyncio.Future[Any]) -> None:
        self._inbox = inbox
        self._link: Callable[[KazooResult], None] | None = None
        self.future = future
        #: Both are set by the caller, before the loop can process the result.
        self.convert: Convert = lambda value: value
        self.failed: Convert = lambda error: error

    def set(self, value: object = None) -> None:
        """On the library's thread."""
        self._inbox.put(self._resolve, value)

    def set_exception(self, error: Exception) -> None:
        """On the library's thread."""
        self._inbox.put(self._fail, error)

    def rawlink(self, callback: "Callable[[KazooResult], None]") -> None:
        """Stores the callback by which kazoo derives another result from this one."""
        self._link = callback

    def get(self) -> Any:  # noqa: ANN401 - any result of kazoo
        """Returns the result, for kazoo's callback."""
        return self.future.result()

    def _resolve(self, value: object) -> None:
        if not self.future.done():
            try:
                self.future.set_result(self.convert(value))
            except Exception as error:  # noqa: BLE001 - the caller receives it
                self.future.set_exception(error)
            self._pass_on()

    def _fail(self, error: Exception) -> None:
        if not self.future.done():
            outcome = self.failed(error)
            if isinstance(outcome, BaseException):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)
            self._pass_on()

    def _pass_on(self) -> None:
        if self._link is not None:
            self._link(self)


class Bridge(SequentialThreadingHandler):  # type: ignore[misc]  # the library has no types
    """kazoo's handler, with the loop in place of its two threads for callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.inbox = Inbox(loop)

    def async_result(self) -> KazooResult:
        """Called by kazoo for every request, on the thread of the caller, which is the loop's."""
        return KazooResult(self.inbox, self._loop.create_future())

    def create_connection(self, *address: Any, timeout: float = _ACCEPT_S, **options: Any) -> Any:  # noqa: ANN401
        """Connects with a shorter timeout: kazoo would wait for an unreachable server until the session is lost."""
        return super().create_connection(*address, timeout=min(timeout * _ACCEPT_PART, _ACCEPT_S), **options)

    def dispatch_callback(self, callback: Any) -> None:  # noqa: ANN401 - the library's own tuple
        """Queues a watch that has fired."""
        self.inbox.put(callback.func, *callback.args)
