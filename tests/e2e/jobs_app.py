"""An app with handlers for every misbehaviour that a worker must survive; the payload is a file path or empty.

Each function is registered as `thread.NAME` and as `process.NAME`, each coroutine as `async.NAME`.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE
from holdfast.ports import Assignment
from holdfast.worker.context import current
from holdfast.worker.executors.frames import OutcomeMessage, framed
from holdfast.worker.handlers import Handler, Mode

HOUR_S = 3_600.0


class UnshowableError(Exception):
    """An exception whose message cannot be formatted."""

    def __str__(self) -> str:
        raise ValueError("no words")


def echo(assignment: Assignment) -> bytes:
    return assignment.payload


def segfault(_: Assignment) -> bytes:
    return ctypes.string_at(0)


def leave(_: Assignment) -> bytes:
    os._exit(3)


def kill(_: Assignment) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def allocate(_: Assignment) -> bytes:
    return bytes(1 << 45)


def hoard(_: Assignment) -> bytes:
    """Allocates memory in small steps until it fails."""
    kept = []
    while True:
        kept.append(b"." * (8 << 20))


def close_everything(_: Assignment) -> bytes:
    """Closes the file descriptors 3 to 255, including those of the worker."""
    os.closerange(3, 256)
    return b""


def scribble(_: Assignment) -> bytes:
    """Writes garbage into every open file descriptor."""
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\xff" * 64)
    time.sleep(HOUR_S)
    return b""


def make_up(assignment: Assignment) -> bytes:
    """Sends the worker an outcome with an invalid runtime."""
    row = ReportRow(assignment.job_id, assignment.token, DONE, runtime_ms=1 << 60)
    os.write(int(sys.argv[1]), framed(OutcomeMessage(row, 0)))
    time.sleep(HOUR_S)
    return b""


def fork_and_leave(_: Assignment) -> bytes:
    """Exits but leaves a child process that keeps all file descriptors open."""
    if os.fork():
        os._exit(3)
    os.setsid()
    time.sleep(5)
    os._exit(0)


def fork_and_return(_: Assignment) -> bytes:
    """Forks, and lets the child return into the caller of the handler too."""
    child = os.fork()
    return str(os.waitpid(child, 0)[1]).encode() if child else b"of the child"


def fork_and_exit(_: Assignment) -> bytes:
    """Forks, and ends the child with `sys.exit`."""
    child = os.fork()
    if not child:
        sys.exit(5)
    return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode()


def large(_: Assignment) -> bytes:
    return bytes(limits.OUTPUT_BYTES_MAX + 1)


def text(_: Assignment) -> bytes:
    return "no bytes"  # type: ignore[return-value]


def bad(_: Assignment) -> bytes:
    raise ValueError("bad \udcff")


def unshowable(_: Assignment) -> bytes:
    raise UnshowableError


def leave_politely(_: Assignment) -> bytes:
    raise SystemExit(3)


def interrupt(_: Assignment) -> bytes:
    raise KeyboardInterrupt


def spin(assignment: Assignment) -> bytes:
    """Writes its pid and runs an endless loop."""
    _tell_pid(assignment)
    while True:
        pass


def stuck(assignment: Assignment) -> bytes:
    """Waits on a lock, which an asynchronous exception does not interrupt."""
    _tell_pid(assignment)
    threading.Event().wait(HOUR_S)
    return b""


def stubborn(assignment: Assignment) -> bytes:
    """Ignores SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _tell_pid(assignment)
    time.sleep(HOUR_S)
    return b""


def parent(assignment: Assignment) -> bytes:
    """Starts a child process and waits for it."""
    with subprocess.Popen(["/bin/sleep", "3600"]) as child:
        _tell(assignment, str(child.pid))
        child.wait()
    return b""


def hold(assignment: Assignment) -> bytes:
    """Runs until its file is removed; checks for cancellation."""
    file = _tell_pid(assignment)
    while file.exists():
        current().raise_if_canceled()
        time.sleep(0.01)
    return b"held"


def clean_up(assignment: Assignment) -> bytes:
    """Runs like `hold`, and writes `cleaned` into its file when it ends."""
    try:
        hold(assignment)
    finally:
        _tell(assignment, "cleaned")
    return b""


def say(_: Assignment) -> bytes:
    """Logs, reports progress, and prints bytes that must not be taken for a frame."""
    print("\x00\x00\x00\x04 not a frame", flush=True)  # noqa: T201 - the handler must print
    context = current()
    context.log("a line")
    context.progress(0.25, "a quarter")
    return context.type.encode()


def say_and_hold(assignment: Assignment) -> bytes:
    """Logs, reports progress, and runs until its file is removed."""
    current().log("under way")
    current().progress(0.5, "half")
    return hold(assignment)


def count(assignment: Assignment) -> bytes:
    """Appends one line per run to its file."""
    with Path(assignment.payload.decode()).open("a") as file:
        file.write(f"{assignment.job_id}\n")
    return str(os.getpid()).encode()


def nap(_: Assignment) -> bytes:
    time.sleep(0.3)
    return str(os.getpid()).encode()


def grow(_: Assignment) -> bytes:
    """Allocates memory and never frees it."""
    _KEPT.append(b"." * (32 << 20))
    return str(os.getpid()).encode()


async def ahold(assignment: Assignment) -> bytes:
    file = _tell_pid(assignment)
    while file.exists():  # noqa: ASYNC110 - another process removes the file
        await asyncio.sleep(0.01)
    return b"held"


async def swallow(assignment: Assignment) -> bytes:
    """Ignores cancellation until its file is removed."""
    file = _tell_pid(assignment)
    while file.exists():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return b""


async def block(_: Assignment) -> bytes:
    time.sleep(1.6)  # noqa: ASYNC251 - the handler must block the loop
    return b""


async def abad(_: Assignment) -> bytes:
    raise ValueError("bad")


def _tell_pid(assignment: Assignment) -> Path:
    return _tell(assignment, str(os.getpid()))


def _tell(assignment: Assignment, text: str) -> Path:
    """Writes the file atomically, so that no reader finds it empty."""
    file = Path(assignment.payload.decode())
    file.with_suffix(".new").write_text(text)
    file.with_suffix(".new").rename(file)
    return file


_KEPT: list[bytes] = []
_FUNCTIONS: tuple[Callable[[Assignment], bytes], ...] = (
    *(
        echo,
        segfault,
        leave,
        kill,
        allocate,
        hoard,
        close_everything,
        scribble,
        make_up,
        fork_and_leave,
        fork_and_return,
        fork_and_exit,
        large,
        text,
        bad,
        unshowable,
        leave_politely,
        interrupt,
    ),
    *(spin, stuck, stubborn, parent, hold, clean_up, say, say_and_hold, count, nap, grow),
)
_COROUTINES: tuple[Callable[[Assignment], Awaitable[bytes]], ...] = (ahold, swallow, block, abad)


class JobsApp:
    """The app for `holdfast worker -A`."""

    def handlers(self) -> dict[str, Handler]:
        found = {f"async.{function.__name__}": Handler(function, Mode.ASYNC) for function in _COROUTINES}
        for function in _FUNCTIONS:
            found[f"thread.{function.__name__}"] = Handler(function, Mode.THREAD)
            found[f"process.{function.__name__}"] = Handler(function, Mode.PROCESS)
        return found


app = JobsApp()
