"""Whoever serves a directory, asked on the caller's own thread."""

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
    """Each thread has a connection of its own, made when it first asks, closed when the thread has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = threading.local()
        self._all: WeakSet[BlockingCarrier] = WeakSet()

    def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Durable when it returns."""
        carrier = self._take(None)
        try:
            return driven(RemoteJobs(carrier, Once()).submit(templates, drafts))
        finally:
            self._own.carrier = carrier

    def settled(self, job_id: str, timeout_s: float | None) -> Settled | None:
        """The job and its result once it has ended; None if it has not in time."""
        carrier = self._take(timeout_s)
        try:
            return driven(RemoteJobs(carrier, Once()).settled(job_id))
        except DeadlineExceededError:
            return None
        finally:
            self._own.carrier = carrier

    def close(self) -> None:
        """Ends the connections of all threads; one that waits asks the link instead."""
        for carrier in list(self._all):
            carrier.drop()

    def _take(self, patience_s: float | None) -> BlockingCarrier:
        """The thread's connection, or a new one: a signal's handler may ask while its thread waits in the first."""
        carrier: BlockingCarrier | None = self._own.__dict__.pop("carrier", None)
        if carrier is None or not carrier.is_open:
            carrier = BlockingCarrier.connect(self._path)
            self._all.add(carrier)
        carrier.patience_s = patience_s
        return carrier


def driven(call: Awaitable[T]) -> T:
    """The answer of a coroutine that never gives the thread away."""
    steps = cast("Generator[Any, None, T]", call.__await__())
    try:
        next(steps)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError("a call that should have waited on its own thread did not")
