"""One child process, seen from the worker: start, messages, kill with all its descendants, and reap.

The child leads its own process group. The worker detects its death by a pidfd and not only by the end of its socket,
which a grandchild may hold open. The group is killed before the child is reaped, while its id cannot be reused.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess

from holdfast.process.child_command import child_command
from holdfast.worker.executors.frames import FRAME_BYTES_MAX, LENGTH_BYTES, FromChild, ToChild, framed, said_by_child

#: How long to wait for the last bytes of a dead child.
_LINGER_S = 1.0


class ChildProcess:
    """The process and the socket of a child."""

    def __init__(self, app_path: str, memory_bytes: int) -> None:
        self._arguments = (app_path, str(memory_bytes))
        self._popen: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._pidfd = -1
        self._died = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process id; 0 before the start."""
        return self._popen.pid if self._popen else 0

    async def start(self) -> None:
        """Spawns the child; `OSError` if no process can be created."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                command = child_command("holdfast.worker.executors.child", str(theirs.fileno()), *self._arguments)
                # This blocks the loop for a few milliseconds, until the child has begun.
                self._popen = subprocess.Popen(  # noqa: ASYNC220, S603 - asyncio's own needs a watcher; our program
                    command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
                )
            except BaseException:
                ours.close()
                raise
        try:
            self._pidfd = os.pidfd_open(self._popen.pid)
        except OSError:
            ours.close()
            self._popen.kill()
            self._popen.wait()
            raise
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_death)
        ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._reader, self._writer = await asyncio.open_connection(sock=ours)

    def send(self, message: ToChild) -> None:
        """Sends a message; does nothing if the connection is closed."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(framed(message))

    async def receive(self) -> FromChild | None:
        """Waits for the next message; None at the end of the stream and for an invalid message."""
        assert self._reader is not None
        try:
            size = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
            return said_by_child(await self._reader.readexactly(size)) if size <= FRAME_BYTES_MAX else None
        except (asyncio.IncompleteReadError, OSError):
            return None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the child and to all processes of its group."""
        if self._popen is not None and self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number)

    async def end(self) -> int:
        """Kills the process group, reaps the child, and returns its exit status (negative: a signal number)."""
        if self._popen is None:
            return 0
        self.signal(signal.SIGKILL)
        await self._died.wait()
        status = self._popen.wait()
        if self._writer is not None:
            self._writer.close()
        return status

    def _on_death(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.signal(signal.SIGKILL)  # for the grandchildren: the child itself is a zombie until it is reaped
        self._died.set()
        # The last messages are read to the end of the stream. The timeout is for a grandchild that keeps it open.
        loop.call_later(_LINGER_S, self._close)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def how_it_ended(status: int) -> str:
    """Describes an exit status in words."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        return f"killed by signal {-status}"
    return f"killed by signal {-status} ({name})"
