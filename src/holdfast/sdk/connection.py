"""The connection of an app: a portal, and on it a link to the backend. Nothing is opened before the first use."""

import ctypes
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.owner import mint, uuid4
from holdfast.errors import UnavailableError

if TYPE_CHECKING:
    from holdfast.client.link import BlockingCalls, Link, LinkPorts
    from holdfast.ports import WorkApi
    from holdfast.sdk.portal import Portal

T = TypeVar("T")
Closer = Callable[[float | None], None]


class AppConnection:
    """One portal and one link for all threads of this process."""

    def __init__(self, open_link: "Callable[[], Link]") -> None:
        """`open_link` is called on the portal's loop."""
        self._open_link = open_link
        self._lock = threading.Lock()
        self._closing = threading.RLock()
        self._portal: Portal | None = None
        self._link: Link | None = None
        self._is_closed = False
        self._closers: list[Closer] = []
        #: Workers of this process that were made and have not ended. The set drops a worker that is garbage-collected.
        self.workers: weakref.WeakSet[Any] = weakref.WeakSet()
        #: Causes of a wait that were logged already.
        self.warned: set[str] = set()
        #: Objects of the parent that a forked child keeps alive, so that they are never finalized there.
        self._inherited: list[object] = []

    def portal(self) -> "Portal":
        """Returns the portal; starts it if necessary."""
        portal = self._portal
        if portal is not None:
            return portal
        with self._lock:
            if self._is_closed:
                raise UnavailableError("the app is closed; make another Holdfast(...)", reason="APP_CLOSED")
            if self._portal is None:
                from holdfast.sdk.portal import Portal

                # The portal's thread keeps this object alive, so an app that was not closed is closed at exit.
                self._portal = Portal(owner=self)
            return self._portal

    def link(self) -> "Link":
        """Returns the link; opens it if necessary. Only for the portal's loop."""
        if self._link is None:
            if self._is_closed:
                raise UnavailableError("the app is closed; make another Holdfast(...)", reason="APP_CLOSED")
            self._link = self._open_link()
        return self._link

    def is_private(self) -> bool:
        """Whether no other process can run these jobs; False before the link is open."""
        link = self._link
        return link is not None and link.is_private

    async def call(
        self, use: "Callable[[LinkPorts], Awaitable[T]]", *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """Calls the backend. Only for the portal's loop."""
        return await self.link().call(use, is_repeatable=is_repeatable, is_waiting=is_waiting)

    def blocking_calls(self) -> "BlockingCalls | None":
        """Returns the API for calls on the caller's own thread; None if there is none or the link is not open yet."""
        link, portal = self._link, self._portal
        if link is None or portal is None:
            return None
        portal.refuse_own_thread()
        return link.blocking_calls()

    def stream(self, use: "Callable[[LinkPorts], AsyncIterator[T]]") -> AsyncIterator[T]:
        """Reads a stream of the backend. Only for the portal's loop."""
        return self.link().stream(use)

    async def work(self) -> "WorkApi":
        """Returns the API from which a worker gets its leases. Only for the portal's loop."""
        return await self.link().work()

    def mint(self) -> str:
        """Returns a new unique id."""
        return uuid4(os.urandom(16))

    def mint_many(self, count: int) -> list[str]:
        """Returns `count` new unique ids, from one read of the random source."""
        return mint(os.urandom, count)

    def before_close(self, closer: Closer) -> None:
        """Registers a function that `close` calls first: workers end before the link that they use."""
        self._closers.append(closer)

    def close(self, timeout_s: float | None = None) -> None:
        """Hands over the directory that this process serves, and ends the thread. Harmless to repeat.

        Workers of this process finish their running jobs, within the timeout if there is one. If another thread is
        closing the app, this waits for it, because the workers still need the link.
        """
        with self._closing:
            self._close(timeout_s)

    def _close(self, timeout_s: float | None) -> None:
        closers, self._closers = self._closers, []
        for closer in closers:
            closer(timeout_s)
        with self._lock:
            self._is_closed = True
            portal, self._portal = self._portal, None
        if portal is not None:
            try:
                portal.run(self._close_link)
            finally:
                portal.close()

    def redirect(self, open_link: "Callable[[], Link]") -> "Callable[[], Link]":
        """Closes the connection, and uses `open_link` from now on; returns the function that was used before."""
        self.close()
        with self._lock:
            before, self._open_link = self._open_link, open_link
            self._is_closed = False
        return before

    async def _close_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def disown(self) -> None:
        """Starts afresh in a forked child: the portal, its loop and the link belong to the parent."""
        self._inherited += [self._portal, self._link]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._inherited))
        if self._link is not None:
            self._link.disown()
        self._lock = threading.Lock()
        self._closing = threading.RLock()
        self._portal = self._link = None
        self._closers = []
        self.workers = weakref.WeakSet()
