"""A byte stream written by a thread: whoever logs never waits for a slow or stuck reader.

The descriptor is written to directly: behind a buffer of Python's, a write that is stuck holds a lock that
the end of the process waits for. What waits is bounded: beyond that, whole lines are dropped and counted, and
the count is said once there is room.
"""

import os
import threading
import time
from queue import SimpleQueue

import msgspec

_WAITING_BYTES_MAX = 16 << 20


class BackgroundStream:
    """Takes whole lines; a `ByteStream` for the loggers of this process."""

    def __init__(self, descriptor: int, *, waiting_bytes_max: int = _WAITING_BYTES_MAX) -> None:
        self._descriptor = descriptor
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting_bytes = 0
        self._dropped = 0
        self._lock = threading.Lock()
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="holdfast-stream", daemon=True)
        self._thread.start()

    def write(self, data: bytes, /) -> int:
        """Hands the lines over; never waits, and never fails."""
        with self._lock:
            if self._waiting_bytes + len(data) > self._waiting_bytes_max:
                self._dropped += data.count(b"\n")
                return len(data)
            dropped, self._dropped = self._dropped, 0
            self._waiting_bytes += len(data)
        self._queue.put(_confession(dropped) + data if dropped else data)
        return len(data)

    def flush(self) -> None:
        """Nothing: the thread is as quick as the reader lets it be."""

    def isatty(self) -> bool:
        """Whether people read it."""
        return os.isatty(self._descriptor)

    def close(self, timeout_s: float = 1.0) -> None:
        """Writes what waits, unless the reader is stuck."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _serve(self) -> None:
        while (data := self._queue.get()) is not None:
            self._write(data)
            with self._lock:
                self._waiting_bytes = max(0, self._waiting_bytes - len(data))

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return  # nobody reads the logs any more: that must not stop the jobs


def _confession(dropped: int) -> bytes:
    fields = {
        "ts_ms": time.time_ns() // 1_000_000,
        "level": "warning",
        "service": "log",
        "method": "",
        "event": "log_lines_dropped",
        "message": "the reader of the logs is too slow",
        "dropped": dropped,
    }
    return msgspec.json.encode(fields) + b"\n"
