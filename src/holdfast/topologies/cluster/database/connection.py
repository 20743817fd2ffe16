"""A connection whose calls end at a deadline, and the thread that opens it.

The resolution of host names cannot be interrupted, so a thread connects and the caller waits for it until its deadline.
A later call goes on waiting for the same thread: with several hosts, each gets its time.
"""

import threading
import time
from concurrent.futures import Future
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import Diagnostic
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

T = TypeVar("T")
_INTERVAL_S = 0.1


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up waiting at its deadline, and notices warnings."""

    #: A reading of the steady clock.
    deadline_s = 0.0
    #: Whether the server has sent a warning since `begin`.
    was_warned = False

    def begin(self, deadline_s: float) -> None:
        """Sets the deadline of the calls that follow."""
        self.deadline_s, self.was_warned = deadline_s, False

    def wait(self, gen: PQGen[T], interval: float = _INTERVAL_S, timeout: float | None = None) -> T:
        """Waits for the server; after the deadline it raises, and the connection must be closed."""
        del timeout
        return super().wait(gen, interval, timeout=max(0.0, self.deadline_s - time.monotonic()))

    def notice(self, diagnostic: Diagnostic) -> None:
        """Remembers a warning, in whatever language the server has."""
        if diagnostic.severity_nonlocalized == "WARNING":
            self.was_warned = True


class ConnectionAttempt:
    """Opens one connection in a thread."""

    def __init__(self, conninfo: str) -> None:
        self._future: Future[BoundedConnection] = Future()
        threading.Thread(target=self._run, args=(conninfo,), name="holdfast-connect", daemon=True).start()

    def _run(self, conninfo: str) -> None:
        try:
            self._future.set_result(_connect(conninfo))
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self._future.set_exception(error)

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended, with a connection or an error."""
        return self._future.done()

    def connection(self, deadline_s: float) -> BoundedConnection:
        """Returns the connection; raises psycopg's error, or ConnectionTimeout at the deadline."""
        try:
            return self._future.result(max(0.0, deadline_s - time.monotonic()))
        except TimeoutError:
            raise psycopg.errors.ConnectionTimeout("the connection was not established in time") from None

    def abandon(self) -> None:
        """Closes the connection as soon as there is one."""
        self._future.add_done_callback(_close)


def _connect(conninfo: str) -> BoundedConnection:
    connection = BoundedConnection.connect(conninfo, autocommit=True, prepare_threshold=0)
    # Every integer is sent as bigint, so that a statement is prepared only once.
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.add_notice_handler(connection.notice)
    return connection


def _close(future: Future[BoundedConnection]) -> None:
    if future.exception() is None:
        future.result().close()
