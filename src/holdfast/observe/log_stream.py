"""A byte stream that a thread writes, so that logging never waits for a slow or blocked reader.

The thread writes to the descriptor directly: a blocked write through a Python buffer would hold a lock that the exit of
the process waits for. The waiting data is bounded: above the limit, whole lines are dropped and counted, and the count
is logged once there is space again.
"""

import os
import threading
import time
from queue import SimpleQueue

import msgspec

_WAITING_BYTES_MAX = 16 << 20


class BackgroundStream:
    """A `ByteStream` of whole lines for the loggers of this process."""

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
        """Queues the lines for the thread; never waits, and never fails."""
        with self._lock:
            if self._waiting_bytes + len(data) > self._waiting_bytes_max:
                self._dropped += data.count(b"\n")
                return len(data)
            dropped, self._dropped = self._dropped, 0
            self._waiting_bytes += len(data)
        self._queue.put(_confession(dropped) + data if dropped else data)
        return len(data)

    def flush(self) -> None:
        """Does nothing: the thread writes as fast as the reader reads."""

    def isatty(self) -> bool:
        """Returns whether the stream is a terminal."""
        return os.isatty(self._descriptor)

    def close(self, timeout_s: float = 1.0) -> None:
        """Writes the waiting lines, unless the reader is blocked."""
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
            return  # the reader of the logs is gone: that must not stop the jobs


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
