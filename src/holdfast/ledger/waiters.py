"""Waits for changes of a job: woken when a change is durable. It costs nothing while there are no waits.

A watcher is woken by every change and reads the job again. A wait for the end gets the job and its result from the
event itself: they are copied when the event is applied, because the job may be removed before the waiter runs.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from holdfast.core.events import AnyEvent, Noted
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import TERMINAL
from holdfast.errors import HoldfastError
from holdfast.ledger.views import job_view, result_view
from holdfast.ports import JobView, ResultView

T = TypeVar("T")
Settled = tuple[JobView, ResultView]
#: Called with the job and its result when the job has ended, or with the error of a coordinator that stops.
Ended = Callable[[Settled | HoldfastError], None]


class Waiters:
    """An observer of one coordinator."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[asyncio.Event]] = {}
        self._ends: dict[str, list[Ended]] = {}
        self._touched: deque[tuple[int, str, Settled | None]] = deque()
        self.failure: HoldfastError | None = None

    def watch(self, job_id: str) -> asyncio.Event:
        """Returns an event that is set at every change; end it with `unwatch`."""
        changed = asyncio.Event()
        self._watchers.setdefault(job_id, []).append(changed)
        return changed

    def unwatch(self, job_id: str, changed: asyncio.Event) -> None:
        """Stops setting this event."""
        _remove(self._watchers, job_id, changed)

    def end_then(self, job_id: str, ended: Ended) -> Callable[[], None]:
        """Calls `ended` at the end of a job that has not ended yet; returns a function that gives the wait up."""
        self.refuse_if_closed()
        self._ends.setdefault(job_id, []).append(ended)

        def give_up() -> None:
            if ended in self._ends.get(job_id, ()):
                _remove(self._ends, job_id, ended)

        return give_up

    def close(self, failure: HoldfastError) -> None:
        """Fails all waits, and all that begin later, because nothing more becomes durable here."""
        self.failure = failure
        ends, self._ends = self._ends, {}
        for waiting in ends.values():
            for ended in waiting:
                ended(failure)
        for watchers in self._watchers.values():
            for changed in watchers:
                changed.set()

    def refuse_if_closed(self) -> None:
        """Raises the error that `close` got, after `close`."""
        if self.failure is not None:
            raise self.failure

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Records the changes of jobs that have waiters."""
        watchers, ends = self._watchers, self._ends
        if not watchers and not ends:
            return
        if isinstance(event, Noted):  # changes no state, but watchers see the progress
            self._touched += [(position, note.job_id, None) for note in event.notes if note.job_id in watchers]
            return
        for job, _ in ledger.state.moves:
            if job.id in ends and job.state in TERMINAL:
                self._touched.append((position, job.id, (job_view(ledger, job), result_view(job))))
            elif job.id in watchers:
                self._touched.append((position, job.id, None))

    def durable(self, position: int) -> None:
        """Wakes the waiters whose changes are durable now."""
        touched = self._touched
        while touched and touched[0][0] <= position:
            _, job_id, end = touched.popleft()
            if end is not None:
                for ended in self._ends.pop(job_id, ()):
                    ended(end)
            for changed in self._watchers.get(job_id, ()):
                changed.set()

    def bug(self, command: object, error: Exception) -> None:
        """Does nothing: a failed command changes no job."""


def _remove(waiting: dict[str, list[T]], job_id: str, one: T) -> None:
    of_job = waiting[job_id]
    of_job.remove(one)
    if not of_job:
        del waiting[job_id]
