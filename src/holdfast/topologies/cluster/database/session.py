"""A session with the database: one connection that is opened when it is needed, and again after a failure.

Invariants:
- Every statement is its own transaction: a client that is stopped cannot keep one open between two statements.
- No call waits longer than the limit of the address. The server's own timeout is shorter, so that its answer usually
  arrives before the client gives up. It does not end the wait of a commit for a synchronous standby: that commit keeps
  its locks until the standby is back, and a takeover waits for it.
- A commit counts as confirmed only if the server sent no warning with it: a warning is the only sign that it gave up
  waiting for a synchronous standby.
"""

import time
from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg

from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.connection import BoundedConnection, ConnectionAttempt
from holdfast.topologies.cluster.database.failures import is_refusal, lost, meaning_of, pooler_found, too_old

_SQL = statements(__package__, "session")

#: The server's timeout of a statement, as a share of the limit.
_SERVER_SHARE = 0.7


class StatementReply(msgspec.Struct, frozen=True):
    """The rows of a statement whose transaction has ended."""

    rows: list[tuple[Any, ...]]
    #: False if the server reports that the commit may not have been replicated.
    is_confirmed: bool


class DatabaseSession:
    """Runs statements, one at a time. One thread at a time uses it."""

    def __init__(self, address: DatabaseAddress, *, replans: bool = False) -> None:
        """`replans`: statements are planned for their arguments, so that unused partitions are not locked."""
        self._address = address
        self._plans = "force_custom_plan" if replans else "auto"
        self._connection: BoundedConnection | None = None
        self._attempt: ConnectionAttempt | None = None

    def ask(self, statement: bytes, arguments: Mapping[str, object] | None = None) -> StatementReply:
        """Runs one statement. Raises `DatabaseLostError`, or psycopg's error if the server refused it."""
        deadline_s = time.monotonic() + self._address.limit_ms / 1_000
        try:
            connection = self._open_connection(deadline_s)
            connection.begin(deadline_s)
            cursor = connection.execute(statement, arguments, binary=True)
            rows = cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            if self._connection is not None and not self._connection.closed and is_refusal(error):
                raise
            self.close()
            raise meaning_of(error) from error
        return StatementReply(rows, not connection.was_warned)

    def read(self, statement: bytes, arguments: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        """Runs a statement that changes nothing, and returns its rows."""
        try:
            return self.ask(statement, arguments).rows
        except psycopg.Error as error:
            raise meaning_of(error) from error

    def change(self, statement: bytes, arguments: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        """Runs a statement that must be confirmed; otherwise its outcome is unknown."""
        try:
            reply = self.ask(statement, arguments)
        except psycopg.Error as error:
            raise meaning_of(error) from error
        if not reply.is_confirmed:
            raise lost("the commit may not have been replicated")
        return reply.rows

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
        if self._attempt is not None:
            self._attempt.abandon()
        self._connection = self._attempt = None

    def _open_connection(self, deadline_s: float) -> BoundedConnection:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect(deadline_s)
        return self._connection

    def _connect(self, deadline_s: float) -> BoundedConnection:
        if self._attempt is None:
            self._attempt = ConnectionAttempt(self._address.conninfo())
        attempt = self._attempt
        try:
            connection = attempt.connection(deadline_s)
        except psycopg.Error as error:
            if attempt.is_over:
                self._attempt = None
                raise
            raise lost(str(error)) from error  # the next call waits for the same attempt
        self._attempt = None
        try:
            self._prepare(connection, deadline_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: BoundedConnection, deadline_s: float) -> None:
        """Makes the settings of the session, and checks that they are kept."""
        if problem := too_old(connection.info.server_version):
            raise problem
        connection.begin(deadline_s)
        timeout_ms = str(round(self._address.limit_ms * _SERVER_SHARE))
        arguments = {"timeout_ms": timeout_ms, "plans": self._plans}
        (first,) = connection.execute(_SQL["open"], arguments, prepare=False).fetchall()
        (second,) = connection.execute(_SQL["check"], prepare=False).fetchall()
        pid = connection.pgconn.backend_pid
        if first[0] != pid or second != (pid, timeout_ms):
            raise pooler_found()
