"""The preloaded program: forks one process for every command that it receives.

A request arrives over the socket on standard input, with three standard streams and a socket for the reply. The reply
is the pid, followed by the exit status. The program exits when the other end of its socket is closed.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import socket
import sys
import threading
import time
from typing import Any, NoReturn, TextIO

from holdfast.cli import main

#: Modules that commands import at run time; none of them starts a thread, because a fork does not copy threads.
MODULES = (
    *("asyncio", "rich.console", "rich.live", "rich.progress", "rich.text", "uuid", "tempfile"),
    *("rich.cells", "holdfast.client.blocking_client", "holdfast.client.remote", "holdfast.client.routed_jobs"),
    *("holdfast.client.wire_transport", "holdfast.server.auth.tokens", "holdfast.topologies.backup"),
    *("holdfast.topologies.backup_restore", "holdfast.topologies.embedded.served_ledger", "holdfast.worker.failures"),
    *("holdfast.client.routed_work", "holdfast.client.wire_work", "holdfast.observe.log_stream"),
    *(
        "holdfast.topologies.embedded.up",
        "holdfast.topologies.monolith.node",
        "holdfast.topologies.microservices.process",
    ),
    *(
        "holdfast.topologies.pipeline.gateway",
        "holdfast.topologies.pipeline.process",
        "holdfast.topologies.worker_process",
    ),
    *("holdfast.topologies.zookeeper.gateway", "holdfast.worker.builtin", "holdfast.worker.app_loader"),
)
_REQUEST_BYTES = 1 << 17
#: Three standard streams and the socket for the reply.
_DESCRIPTORS = 4
_ERRORS = 2


def serve(line: socket.socket) -> int:
    """Forks for each command until the socket is closed; in the child, runs the command."""
    for name in MODULES:
        importlib.import_module(name)
    assert threading.active_count() == 1
    gc.freeze()  # The garbage collector of a child must not touch the shared pages.
    while True:
        asked, descriptors, _, _ = socket.recv_fds(line, _REQUEST_BYTES, _DESCRIPTORS)
        if not asked:
            return 0
        if os.fork() == 0:
            line.close()
            return answer(json.loads(asked), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # reap children that have replied
                pass


def answer(request: dict[str, Any], descriptors: list[int]) -> int:
    """Forks the process of the command, and sends its pid and later its exit status."""
    *streams, back = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(back)
        become(request, streams)
        end(main())
    for stream in (*streams, *range(len(streams))):
        os.close(stream)
    os.write(back, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(back, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Sets session, streams, working directory, environment and arguments of the command."""
    if request["has_session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv[1:] = request["arguments"]
    sys.orig_argv[:] = [sys.executable, "-m", "holdfast", *request["arguments"]]  # for a restart of itself
    sys.path[:1] = [request["folder"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.stdin = _opened(0, sys.__stdin__)
    sys.stdout = _opened(1, sys.__stdout__)
    sys.stderr = _opened(_ERRORS, sys.__stderr__)


def end(status: int) -> NoReturn:
    """Exits like Python, but without the slow teardown of the loaded modules."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _opened(number: int, like: TextIO | None) -> TextIO:
    """Opens a standard stream with the same settings as Python."""
    assert like is not None
    stream = open(number, "r" if number == 0 else "w", encoding=like.encoding, errors=like.errors, closefd=False)  # noqa: SIM115
    if number > 0:
        is_prompt = number == _ERRORS or stream.isatty()
        stream.reconfigure(line_buffering=is_prompt, write_through=bool(os.environ.get("PYTHONUNBUFFERED")))
    return stream


if __name__ == "__main__":
    sys.exit(serve(socket.socket(fileno=os.dup(0))))
