"""The session guard's program: closes the ZooKeeper session of a worker process that has died.

`SessionGuard` runs this file with `python -I -S`, so it may import a few small modules of the standard library and
nothing of ours.

Protocol on standard input, a pipe from the worker: one line for each session that the worker has had
(`GuardedSession`), and `RELEASE` once the worker has closed its session itself. The last complete line counts.

Invariants:
- The guard acts only when the worker process is gone: its pidfd says so, or the pipe has reached its end. The pipe
  alone is not enough, because a process that a job has forked holds it open; the pidfd alone is not enough, because a
  process that calls exec keeps its pid and loses its session. A worker that is merely stopped triggers neither.
- The guard ends: when it is released, when the session is closed, or when the session's timeout has passed.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import NamedTuple

RELEASE = b"release"
#: In place of a pidfd, on kernels that have none.
NO_PIDFD = -1

_READ_BYTES = 65_536
#: Timeout for connecting to a server, and for each of its replies.
_ANSWER_S = 2.0
#: Pause between two rounds over all servers.
_PAUSE_S = 0.2
#: The guard gives up after this time, even if the session timeout is longer.
_TRY_S_MAX = 60.0

# The ZooKeeper protocol: each message is preceded by its length; numbers are big-endian.
_LENGTH = struct.Struct(">i")
#: Protocol version, last transaction seen, timeout, session id, length of the password.
_CONNECT = struct.Struct(">iqiqi")
#: Protocol version, granted timeout (0: the session is over), session id.
_CONNECTED = struct.Struct(">iiq")
#: Request number, and type of the request.
_REQUEST = struct.Struct(">ii")
_CLOSE_SESSION = -11
_ANSWER_BYTES_MAX = 1_024


class GuardedSession(NamedTuple):
    """A session as the worker announces it."""

    #: `host:port,host:port`, as the client library takes them.
    hosts: str
    timeout_ms: int
    session_id: int
    password: bytes

    def line(self) -> bytes:
        """The session in the protocol of the pipe."""
        return f"{self.hosts} {self.timeout_ms} {self.session_id} {self.password.hex()}".encode()

    @classmethod
    def parse(cls, line: bytes) -> "GuardedSession":
        hosts, timeout_ms, session_id, password = line.decode().split(" ")
        return cls(hosts, int(timeout_ms), int(session_id), bytes.fromhex(password))

    def servers(self) -> list[tuple[str, int]]:
        """Host and port of each server; different sessions begin with different servers."""
        pairs = [host.rpartition(":") for host in self.hosts.split(",")]
        servers = [(host.strip("[]"), int(port)) for host, _, port in pairs]
        first = self.session_id % len(servers)
        return servers[first:] + servers[:first]


def main() -> None:
    """Waits for the end of the worker process, then closes its session if the worker has not done so itself."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    line = last_line(pipe=sys.stdin.fileno(), pidfd=int(sys.argv[1]))
    if line not in (b"", RELEASE):
        close_session(GuardedSession.parse(line))


def last_line(*, pipe: int, pidfd: int) -> bytes:
    """Returns the last complete line in the pipe, once the worker has died or has released the guard."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    if pidfd != NO_PIDFD:
        poll.register(pidfd, select.POLLIN)
    last, rest = b"", b""
    while last != RELEASE:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if pipe not in ready:  # only the pidfd is: the worker is dead, and all that it wrote has been read
            break
        data = os.read(pipe, _READ_BYTES)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        last = lines[-1] if lines else last
    return last


def close_session(session: GuardedSession) -> None:
    """Tries the servers in turn until one closes the session, for at most the session timeout."""
    deadline_s = time.monotonic() + min(session.timeout_ms / 1_000, _TRY_S_MAX)
    while True:
        for server in session.servers():
            with contextlib.suppress(OSError):
                _close_at(server, session)
                return
            if time.monotonic() >= deadline_s:
                return
        time.sleep(_PAUSE_S)


def _close_at(server: tuple[str, int], session: GuardedSession) -> None:
    """Resumes the session at a server, and closes it; `OSError` if the server does not answer."""
    with socket.create_connection(server, timeout=_ANSWER_S) as connection:
        start = _CONNECT.pack(0, 0, session.timeout_ms, session.session_id, len(session.password))
        _send(connection, start + session.password + b"\0")  # the last byte: not read-only
        _, granted_ms, _ = _CONNECTED.unpack_from(_receive(connection, least=_CONNECTED.size))
        if granted_ms <= 0:
            return
        _send(connection, _REQUEST.pack(1, _CLOSE_SESSION))
        _receive(connection, least=0)


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(message)) + message)


def _receive(connection: socket.socket, *, least: int) -> bytes:
    (length,) = _LENGTH.unpack(_receive_bytes(connection, _LENGTH.size))
    if not least <= length <= _ANSWER_BYTES_MAX:
        raise ConnectionError(f"expected a reply of {least} to {_ANSWER_BYTES_MAX} bytes, got {length}")
    return _receive_bytes(connection, length)


def _receive_bytes(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return data


if __name__ == "__main__":
    main()
