"""The worker's side of the session guard: a child process that closes the session if this process dies.

Invariants:
- The guard is spawned, never forked, and inherits two descriptors: the pipe on which it receives sessions, and a pidfd
  of this process. It leads a session of its own, so signals of the terminal and of the process group do not reach it.
- The password of a session goes through the pipe, never on a command line.
- A guard that cannot start is logged at once; one that has died is logged when the next session begins. Without a guard
  the session ends by its timeout.
"""

import os
import subprocess
import sys

from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.backend import session_guard_program
from holdfast.topologies.zookeeper.backend.session_guard_program import NO_PIDFD, RELEASE, GuardedSession

#: A released guard that does not end within this time is killed.
_END_S = 10.0


class SessionGuard:
    """One guard process. Made by `start`."""

    def __init__(self, process: "subprocess.Popen[bytes] | None") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """The pid of the guard process; 0 if there is none."""
        return self._process.pid if self._process else 0

    @classmethod
    def start(cls) -> "SessionGuard":
        """Spawns the guard process; without one the session ends by its timeout."""
        pidfd = _pidfd()
        try:
            return cls(_spawn(pidfd))
        except OSError as error:
            _log_missing(f"it could not be started: {error}")
            return cls(None)
        finally:
            if pidfd != NO_PIDFD:
                os.close(pidfd)

    def watch(self, session: GuardedSession) -> None:
        """Sets the session to close."""
        if self._process is not None and not self._write(session.line()):
            _log_missing("it has died")
            self._end()

    def release(self) -> None:
        """Ends the guard, after the session was closed. Blocks until it has ended."""
        if self._process is not None:
            self._write(RELEASE)
            self._end()

    def _write(self, line: bytes) -> bool:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
        except OSError:
            return False
        return True

    def _end(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _pidfd() -> int:
    """Returns a descriptor that signals the end of this process, even if its pid is reused."""
    try:
        return os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return NO_PIDFD


def _spawn(pidfd: int) -> "subprocess.Popen[bytes]":
    assert session_guard_program.__file__ is not None
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-I", "-S", session_guard_program.__file__, str(pidfd)],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[] if pidfd == NO_PIDFD else [pidfd],
        cwd="/",
        start_new_session=True,
    )


def _log_missing(why: str) -> None:
    message = f"the session guard is missing ({why}); if this process dies, its jobs wait for the session timeout"
    get_logger().warning("session_guard_missing", message=message)
