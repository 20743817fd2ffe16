"""From the client library's threads to one event loop.

Invariants:
- Nothing of ours runs on a thread of the library: answers, watches and changes of state are only put into a queue
  there.
- The loop is woken once for whatever has come since it was last woken, and runs it in the order in which it came.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

Convert = Callable[[Any], Any]

#: How long a server may take to accept a connection, at most, and as a part of what the session may be silent.
_ACCEPT_S, _ACCEPT_PART = 2.0, 0.25


class Bell(asyncio.Event):
    """What a watch does: it rings, and whoever is at the bell looks for himself."""

    def rung(self, _event: object) -> None:
        """Called on the loop, whatever it was that happened."""
        self.set()


class Watch:
    """Rings a bell, and is counted; equal watches of one node ring once."""

    __slots__ = ("_bell", "_traffic")

    def __init__(self, traffic: Counter[str], bell: Bell) -> None:
        self._traffic, self._bell = traffic, bell

    def __call__(self, event: object) -> None:
        self._traffic["rings"] += 1
        self._bell.rung(event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Watch) and other._bell is self._bell

    def __hash__(self) -> int:
        return id(self._bell)


class Inbox:
    """What other threads have for the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_called = False
        #: When the loop last saw to it.
        self.emptied_s = time.monotonic()

    def put(self, act: Callable[..., None], *arguments: object) -> None:
        """From any thread: the loop will do this."""
        self._waiting.append((act, arguments))
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to hear it
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_called = False  # first: what comes from now on calls again
        self.emptied_s = time.monotonic()
        while self._waiting:
            act, arguments = self._waiting.popleft()
            act(*arguments)


class KazooAnswer:
    """Where the library leaves the outcome of one request; a future of the loop gets it."""

    __slots__ = ("_inbox", "_link", "convert", "failed", "future")

    def __init__(self, inbox: Inbox, future: asyncio.Future[Any]) -> None:
        self._inbox = inbox
        self._link: Callable[[KazooAnswer], None] | None = None
        self.future = future
        #: Both are set by whoever asked, before the loop can get to the outcome.
        self.convert: Convert = lambda value: value
        self.failed: Convert = lambda error: error

    def set(self, value: object = None) -> None:
        """On the library's thread."""
        self._inbox.put(self._resolve, value)

    def set_exception(self, error: Exception) -> None:
        """On the library's thread."""
        self._inbox.put(self._fail, error)

    def rawlink(self, callback: "Callable[[KazooAnswer], None]") -> None:
        """The library waits for one answer to give another."""
        self._link = callback

    def get(self) -> Any:  # noqa: ANN401 - whatever the library has put there
        """What the library has waited for, as it asks for it."""
        return self.future.result()

    def _resolve(self, value: object) -> None:
        if not self.future.done():
            try:
                self.future.set_result(self.convert(value))
            except Exception as error:  # noqa: BLE001 - whoever asked is told
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
    """The library's handler, with the loop in place of its two threads for callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.inbox = Inbox(loop)

    def async_result(self) -> KazooAnswer:
        """Called by the library for every request, on the thread that asks: that is the loop's."""
        return KazooAnswer(self.inbox, self._loop.create_future())

    def create_connection(self, *address: Any, timeout: float = _ACCEPT_S, **options: Any) -> Any:  # noqa: ANN401
        """Of a machine that is gone the library would wait for as long as the session lasts, and lose it."""
        return super().create_connection(*address, timeout=min(timeout * _ACCEPT_PART, _ACCEPT_S), **options)

    def dispatch_callback(self, callback: Any) -> None:  # noqa: ANN401 - the library's own tuple
        """A watch has fired."""
        self.inbox.put(callback.func, *callback.args)
