"""Calls to a server on the caller's own thread."""

import threading
from collections.abc import Sequence
from weakref import WeakSet

from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.endpoints import Endpoint
from holdfast.client.link import Settled
from holdfast.client.remote import SUBMIT_S
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.errors import DeadlineExceededError, UnavailableError
from holdfast.ports import JobDraft
from holdfast.wire.methods import SETTLED, SUBMIT, OneJob, Submission


class _Own(threading.local):
    """The idle connections of one thread: one, or more if a signal handler interrupted a call with another call."""

    def __init__(self) -> None:
        self.idle: list[BlockingTransport] = []


class BlockingClient:
    """One connection per thread, opened by the thread's first call and closed when the thread ends."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._own = _Own()
        self._all: WeakSet[BlockingTransport] = WeakSet()
        self._is_closed = False
        #: For both of these; a signal handler may interrupt a call that holds it, and make another call.
        self._lock = threading.RLock()

    def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs; they are durable when it returns."""
        transport = self._take(SUBMIT_S)
        try:
            return transport.call(SUBMIT, Submission(list(templates), list(drafts)), SUBMIT_S)
        finally:
            self._own.idle.append(transport)

    def settled(self, job_id: str, timeout_s: float | None) -> Settled | None:
        """Waits until the job has ended and returns it with its result; None on timeout."""
        transport = self._take(timeout_s)
        try:
            return transport.call(SETTLED, OneJob(job_id), timeout_s)
        except DeadlineExceededError:
            return None
        finally:
            self._own.idle.append(transport)

    def close(self) -> None:
        """Closes the connections of all threads; a thread that waits in one falls back to the link."""
        with self._lock:
            self._is_closed = True
            transports = list(self._all)
        for transport in transports:
            transport.drop()

    def _take(self, within_s: float | None) -> BlockingTransport:
        """Takes an idle connection of the thread, or opens a new one within the deadline of the call."""
        idle = self._own.idle
        while idle:
            transport = idle.pop()
            if transport.is_open:
                return transport
        transport = BlockingTransport.connect(self._endpoint, within_s)
        with self._lock:
            if not self._is_closed:
                self._all.add(transport)
                return transport
        transport.drop()
        raise UnavailableError("the connection was closed", reason="CONNECTION_LOST")
