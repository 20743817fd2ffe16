"""The commands of beanstalkd's text protocol that the comparison needs, over one blocking connection.

A command may be sent before the answer to the one before has come; beanstalkd answers in order.
"""

import re
import socket
from collections.abc import Sequence

from holdfast.errors import DeadlineExceededError, UnavailableError

#: Seconds that a worker has for a job, and a caller for a result, until it goes back into its tube.
_RESERVED_S = 3_600
_STATISTIC = re.compile(rb"^([\w-]+): (\d+)$", re.MULTILINE)


class BeanstalkdClient:
    """A connection that puts into one tube and reserves from another."""

    def __init__(self, address: str, *, puts_into: str, reserves_from: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        self._ask(b"use %b" % puts_into.encode(), b"USING")
        self._ask(b"watch %b" % reserves_from.encode(), b"WATCHING")

    def put(self, bodies: Sequence[bytes]) -> None:
        """Put jobs into the tube; all are synced when this returns, if the server syncs."""
        self._socket.sendall(b"".join(b"put 0 0 %d %d\r\n%b\r\n" % (_RESERVED_S, len(body), body) for body in bodies))
        for _ in bodies:
            self._answer(b"INSERTED")

    def reserve(self) -> tuple[bytes, bytes]:
        """Number and body of the next job; waits for one."""
        return self._reserved(b"reserve")

    def reserve_within(self, timeout_s: int) -> tuple[bytes, bytes]:
        """The same; `DeadlineExceededError` if there is none in time."""
        return self._reserved(b"reserve-with-timeout %d" % timeout_s)

    def delete(self, number: bytes) -> None:
        """Delete a reserved job."""
        self._ask(b"delete %b" % number, b"DELETED")

    def statistics_of(self, tube: str) -> dict[str, int]:
        """The counters of a tube; none if there is no such tube yet."""
        self._socket.sendall(b"stats-tube %b\r\n" % tube.encode())
        line = self._line()
        if line == [b"NOT_FOUND"]:
            return {}
        text = self._body(int(_arguments(line, b"OK")[0]))
        return {name.decode(): int(value) for name, value in _STATISTIC.findall(text)}

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def _reserved(self, command: bytes) -> tuple[bytes, bytes]:
        number, size = self._ask(command, b"RESERVED")
        return number, self._body(int(size))

    def _ask(self, command: bytes, expected: bytes) -> list[bytes]:
        self._socket.sendall(command + b"\r\n")
        return self._answer(expected)

    def _answer(self, expected: bytes) -> list[bytes]:
        return _arguments(self._line(), expected)

    def _line(self) -> list[bytes]:
        line = self._answers.readline()
        if not line:
            raise UnavailableError("beanstalkd has closed the connection")
        return line.split()

    def _body(self, size: int) -> bytes:
        return self._answers.read(size + 2)[:-2]


def _arguments(line: list[bytes], expected: bytes) -> list[bytes]:
    if line[:1] == [b"TIMED_OUT"]:
        raise DeadlineExceededError("no job could be reserved in time")
    if line[:1] != [expected]:
        raise UnavailableError(f"beanstalkd answered {b' '.join(line).decode()} instead of {expected.decode()}")
    return line[1:]
