"""The session guard beside one connection: its input, its work when the pipe closes, and its end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.topologies.zookeeper.backend.connection import SessionPhase
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.session_guard import SessionGuard
from holdfast.topologies.zookeeper.backend.session_guard_program import NO_PIDFD, RELEASE, GuardedSession, last_line
from tests.e2e.app_jobs import is_gone
from tests.e2e.fleet import stable_port
from tests.integration.zookeeper.faults import Bidding, FaultyConnection, until
from tests.integration.zookeeper.test_races import expire, submit

SESSION = GuardedSession("zk1:2181,[::1]:2182,zk3:2183", 10_000, 4, b"\x01" * 16)


def cut(guard: SessionGuard) -> None:
    """Closes the guard's pipe without releasing it, as the end of the worker process would."""
    assert guard._process is not None
    assert guard._process.stdin is not None
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, guard._process.stdin.fileno(), inheritable=False)
    os.close(nowhere)


def lost(connection: FaultyConnection) -> asyncio.Event:
    """An event that is set when the session of a connection is lost."""
    event = asyncio.Event()
    connection.when_changed.append(lambda phase: event.set() if phase is SessionPhase.LOST else None)
    return event


def held_by(pid: int) -> list[str]:
    """The kinds of descriptors that a guard holds, once its program runs."""
    targets = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return sorted(target.partition(":")[0] for target in targets if target != os.devnull)


def shown_by(pid: int) -> str:
    """The command line and environment of a process, which other processes can read."""
    return "".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ"))


async def guarded(bidding: Bidding) -> tuple[FaultyConnection, SessionGuard]:
    connection = await bidding.client()
    connection.guard()
    assert connection._guard is not None
    return connection, connection._guard


async def test_guard_closes_the_newest_session(bidding: Bidding) -> None:
    """After a session has expired, the guard closes its successor when the pipe closes."""
    connection, guard = await guarded(bidding)
    first = connection.session_id
    await expire(connection)
    await connection.connected()
    assert connection.session_id != first
    over = lost(connection)
    cut(guard)
    await over.wait()


async def test_guard_asks_another_server_if_one_is_down(bidding: Bidding) -> None:
    """The guard tries the next server if one refuses the connection."""
    connection = await bidding.client()
    down = ",".join(f"127.0.0.1:{stable_port()}" for _ in range(2))
    identity = connection._client.client_id
    over, guard = lost(connection), SessionGuard.start()
    guard.watch(GuardedSession(f"{down},{connection.hosts}", connection.session_ms, *identity))
    cut(guard)
    await over.wait()
    await asyncio.to_thread(guard.release)


async def test_guard_ends_although_no_server_answers() -> None:
    """A guard that reaches no server ends when the session must have timed out."""
    guard = SessionGuard.start()
    guard.watch(GuardedSession(f"127.0.0.1:{stable_port()}", 100, 1, b"\0" * 16))
    cut(guard)
    await until(lambda: is_gone(guard.pid))
    await asyncio.to_thread(guard.release)


async def test_guard_of_a_closed_connection_is_gone(bidding: Bidding) -> None:
    """The guard has ended when `close` returns, and has held only its pipe and the pidfd."""
    connection, guard = await guarded(bidding)
    pid = guard.pid
    await until(lambda: held_by(pid) == ["anon_inode", "pipe"])
    password = connection._client.client_id[1].hex()
    assert password not in shown_by(pid)
    await connection.close()
    assert is_gone(pid)


@pytest.mark.parametrize("program", ["/nowhere/python", ""])
async def test_worker_without_a_guard_works(bidding: Bidding, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that cannot be started is logged once, and the session continues without it."""
    monkeypatch.setattr(sys, "executable", program)
    with capture_logs() as lines:
        connection, guard = await guarded(bidding)
        await expire(connection)
        await connection.connected()
        await submit(NodeJobs(connection))
        await connection.close()
    assert guard.pid == 0
    assert [line["log_level"] for line in lines if line["event"] == "session_guard_missing"] == ["warning"]


async def test_guard_that_was_killed_is_missed_once(bidding: Bidding) -> None:
    """A connection whose guard has died logs this once, at its next session, and continues."""
    connection, guard = await guarded(bidding)
    os.kill(guard.pid, signal.SIGKILL)
    await until(lambda: is_gone(guard.pid))
    with capture_logs() as lines:
        for _ in range(2):
            await expire(connection)
            await connection.connected()
        await connection.close()
    assert [line["event"] for line in lines if line["event"] == "session_guard_missing"] == ["session_guard_missing"]


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (b"", b""),
        (b"one\n", b"one"),
        (b"one\ntwo\nthr", b"two"),
        (b"one\nrelease\n", RELEASE),
    ],
)
@pytest.mark.parametrize("ends", ["pipe", "process"])
def test_last_complete_line_counts(written: bytes, line: bytes, ends: str) -> None:
    """The guard uses the last complete line, whether the pipe or the pidfd shows the worker's end."""
    reading, writing = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, reading)
        os.write(writing, written)
        pidfd = NO_PIDFD
        if ends == "process":
            stack.callback(os.close, writing)
            pidfd = os.pidfd_open(stack.enter_context(subprocess.Popen([sys.executable, "-I", "-c", ""])).pid)
            stack.callback(os.close, pidfd)
        else:
            os.close(writing)
        assert last_line(pipe=reading, pidfd=pidfd) == line


def test_release_is_heard_while_the_pipe_is_open() -> None:
    """A guard that is released ends, although a forked process holds its pipe open."""
    reading, writing = os.pipe()
    try:
        os.write(writing, SESSION.line() + b"\n" + RELEASE + b"\n")
        assert last_line(pipe=reading, pidfd=NO_PIDFD) == RELEASE
    finally:
        os.close(reading)
        os.close(writing)


def test_session_survives_its_line() -> None:
    """A session is parsed as it was written, and its servers are rotated by its id."""
    assert GuardedSession.parse(SESSION.line()) == SESSION
    assert SESSION.servers() == [("::1", 2182), ("zk3", 2183), ("zk1", 2181)]
