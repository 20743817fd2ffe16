"""What one app has open: a portal, and on it a link to whoever answers. Nothing is opened before the first use."""

import ctypes
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.owner import mint, uuid4
from holdfast.errors import UnavailableError

if TYPE_CHECKING:
    from holdfast.client.link import Link, LinkPorts, Near
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
        #: Workers of this process that were made and have not ended; one that is dropped unused leaves by itself.
        self.workers: weakref.WeakSet[Any] = weakref.WeakSet()
        #: Causes of a wait that were logged before.
        self.warned: set[str] = set()
        #: What a forked child keeps, so that nothing of its parent's is ever finalized there.
        self._inherited: list[object] = []

    def portal(self) -> "Portal":
        """The portal, started if need be."""
        portal = self._portal
        if portal is not None:
            return portal
        with self._lock:
            if self._is_closed:
                raise UnavailableError("the app is closed", reason="APP_CLOSED")
            if self._portal is None:
                from holdfast.sdk.portal import Portal

                # As long as its thread lives, this is kept: an app that is dropped unclosed is closed at the end.
                self._portal = Portal(owner=self)
            return self._portal

    def link(self) -> "Link":
        """On the portal's loop: the link, opened if need be."""
        if self._link is None:
            if self._is_closed:
                raise UnavailableError("the app is closed", reason="APP_CLOSED")
            self._link = self._open_link()
        return self._link

    def is_private(self) -> bool:
        """Whether no other process can run these jobs; False before the link is open."""
        link = self._link
        return link is not None and link.is_private

    async def call(
        self, use: "Callable[[LinkPorts], Awaitable[T]]", *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """On the portal's loop: the answer of whoever answers."""
        return await self.link().call(use, is_repeatable=is_repeatable, is_waiting=is_waiting)

    def near(self) -> "Near | None":
        """On a caller's own thread: whoever can be asked there. Nobody before the link is open."""
        link, portal = self._link, self._portal
        if link is None or portal is None:
            return None
        portal.refuse_own_thread()
        return link.near()

    def stream(self, use: "Callable[[LinkPorts], AsyncIterator[T]]") -> AsyncIterator[T]:
        """On the portal's loop: what a stream yields."""
        return self.link().stream(use)

    async def work(self) -> "WorkApi":
        """On the portal's loop: where a worker gets its work now."""
        return await self.link().work()

    def mint(self) -> str:
        """An id that nobody else has."""
        return uuid4(os.urandom(16))

    def mint_many(self, count: int) -> list[str]:
        """So many of them, from one draw."""
        return mint(os.urandom, count)

    def before_close(self, closer: Closer) -> None:
        """Has something ended first: what works for this app ends before what it works with."""
        self._closers.append(closer)

    def close(self, timeout_s: float | None = None) -> None:
        """Hands over what this process serves, and ends the thread. Harmless when closed or never opened.

        Workers of this process finish what they run, within the timeout if there is one. Who closes while another
        thread does waits for it: what works for this app still needs what it works with.
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
        """Closes what is open, and from now on opens this; what was opened before is returned."""
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
        """In a forked child: the portal, its loop and what it served are the parent's; begins afresh."""
        self._inherited += [self._portal, self._link]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._inherited))
        if self._link is not None:
            self._link.disown()
        self._lock = threading.Lock()
        self._closing = threading.RLock()
        self._portal = self._link = None
        self._closers = []
        self.workers = weakref.WeakSet()
