"""Log lines written by a thread, so that a slow or stuck reader of the logs never holds the coordinator up.

What waits is bounded: when too much does, new lines are dropped and counted, and the count is said once there is room.
"""

import contextlib
import threading
from collections.abc import Iterable
from queue import SimpleQueue

import msgspec

from holdfast.observe.logging import LineWriter

#: How long lines are collected before they are written together.
_COLLECT_S = 0.05


class DroppedLine(msgspec.Struct, frozen=True):
    """How many lines could not be written in time."""

    dropped: int
    level: str = "warning"
    event: str = "log_lines_dropped"
    message: str = "the reader of the logs is too slow"


class BackgroundLines:
    """A line writer in front of another."""

    def __init__(self, writer: LineWriter, *, waiting_max: int = 200_000) -> None:
        self._writer = writer
        self._waiting_max = waiting_max
        self._waiting = 0
        self._dropped = 0
        self._closing = threading.Event()
        self._queue: SimpleQueue[list[msgspec.Struct] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="holdfast-log", daemon=True)
        self._thread.start()

    def write(self, records: Iterable[msgspec.Struct]) -> None:
        """Hands the records over; never waits."""
        batch = list(records)
        if self._waiting > self._waiting_max:
            self._dropped += len(batch)
            return
        if self._dropped:
            batch.insert(0, DroppedLine(self._dropped))
            self._dropped = 0
        self._waiting += len(batch)
        self._queue.put(batch)

    def close(self, timeout_s: float = 2.0) -> None:
        """Writes what waits, unless the reader is stuck."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _serve(self) -> None:
        is_open = True
        while is_open:
            records = self._queue.get()
            is_open = records is not None
            # Woken for every frame, this thread would cost the coordinator more than the lines do.
            self._closing.wait(_COLLECT_S)
            while is_open and not self._queue.empty():
                more = self._queue.get()
                is_open = more is not None
                records = records + (more or [])  # type: ignore[operator]
            if records:
                self._write(records)

    def _write(self, records: list[msgspec.Struct]) -> None:
        with contextlib.suppress(OSError):  # nobody reads the logs any more: that must not stop the jobs
            self._writer.write(records)
        self._waiting -= len(records)
