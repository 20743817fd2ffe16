"""Near calls over the Unix socket of a server on this machine, on the caller's own thread."""

import threading
from collections.abc import Awaitable, Generator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast
from weakref import WeakSet

from holdfast.client.blocking_transport import BlockingCarrier
from holdfast.client.link import Settled
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import Once
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.errors import DeadlineExceededError
from holdfast.ports import JobDraft

T = TypeVar("T")


class NearSocket:
    """`Near` with one connection per thread, opened by the thread's first call and closed when the thread ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = threading.local()
        self._all: WeakSet[BlockingCarrier] = WeakSet()

    def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs; they are durable when it returns."""
        carrier = self._take(None)
        try:
            return driven(RemoteJobs(carrier, Once()).submit(templates, drafts))
        finally:
            self._own.carrier = carrier

    def settled(self, job_id: str, timeout_s: float | None) -> Settled | None:
        """Waits until the job has ended and returns it with its result; None on timeout."""
        carrier = self._take(timeout_s)
        try:
            return driven(RemoteJobs(carrier, Once()).settled(job_id))
        except DeadlineExceededError:
            return None
        finally:
            self._own.carrier = carrier

    def close(self) -> None:
        """Closes the connections of all threads; a thread that waits in one falls back to the link."""
        for carrier in list(self._all):
            carrier.drop()

    def _take(self, patience_s: float | None) -> BlockingCarrier:
        """Takes the thread's connection, or opens a new one: a signal handler may interrupt a call with another."""
        carrier: BlockingCarrier | None = self._own.__dict__.pop("carrier", None)
        if carrier is None or not carrier.is_open:
            carrier = BlockingCarrier.connect(self._path)
            self._all.add(carrier)
        carrier.patience_s = patience_s
        return carrier


def driven(call: Awaitable[T]) -> T:
    """Runs a coroutine that never suspends, and returns its result."""
    steps = cast("Generator[Any, None, T]", call.__await__())
    try:
        next(steps)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError("expected the call to block its thread, but it suspended")
