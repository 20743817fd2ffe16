"""The child: `python -m holdfast.worker.executors.child FD APP MEMORY_BYTES`. Runs one attempt at a time.

The main thread runs job code, so that signals reach it; a second thread receives messages from the parent. Standard
output belongs to job code; child and parent use a separate socket.
"""

import asyncio
import inspect
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Awaitable
from contextlib import suppress
from io import TextIOWrapper
from queue import SimpleQueue
from time import monotonic
from types import FrameType
from typing import assert_never

from holdfast.core.commands import ReportRow
from holdfast.core.model import SIM_TYPE
from holdfast.errors import HoldfastError
from holdfast.observe.tracing import adopt
from holdfast.ports import Assignment
from holdfast.process.lifeline import die_with_parent
from holdfast.process.memory import resident_bytes
from holdfast.worker.app_loader import load_app
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.context import CURRENT, CancelInterrupt, JobContext, JobInterrupt, TimeoutInterrupt
from holdfast.worker.executors.frames import (
    LENGTH_BYTES,
    TO_CHILD,
    FromChild,
    Interrupt,
    Leave,
    NoteMessage,
    OutcomeMessage,
    Ready,
    Run,
    ToChild,
    framed,
)
from holdfast.worker.handlers import AttemptFailedError, Handler, Mode
from holdfast.worker.outcomes import failed, interrupted, succeeded

#: Minimum interval between notes to the parent, which sends them on with its heartbeats.
_NOTES_S = 0.1


class Child:
    """Runs the attempts that the parent sends."""

    def __init__(self, parent: socket.socket) -> None:
        self._parent = parent
        self._sending = threading.Lock()
        self._orders: SimpleQueue[Run | Leave] = SimpleQueue()
        self._context: JobContext | None = None
        self._flush: threading.Timer | None = None

    def work(self, handlers: dict[str, Handler]) -> None:
        """Runs attempts until the parent sends `Leave`. After an interrupted attempt the process is not reused."""
        signal.signal(signal.SIGTERM, self._on_term)
        threading.Thread(target=self._listen, name="holdfast-parent", daemon=True).start()
        self._send(Ready())
        while isinstance(order := self._orders.get(), Run):
            context = JobContext(order.assignment, _handler(handlers, order.assignment), monotonic(), self._noted)
            if order.trace is not None:
                adopt(order.trace)
            row = self._run(context)
            note = context.take_note()
            if note is not None:
                self._send(NoteMessage(note))
            self._send(OutcomeMessage(row, resident_bytes()))
            if context.interrupt is not None:
                return

    def _run(self, context: JobContext) -> ReportRow:
        try:
            self._context = context
            row = _outcome(context)
            self._context = None
        except JobInterrupt:  # raised just before or after the handler
            self._context = None
            context.interrupt = context.interrupt or CancelInterrupt
            row = interrupted(context)
        return row

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        """Raises the interrupt in the running attempt; does nothing between two attempts."""
        if self._context is not None:
            self._context.interrupt = self._context.interrupt or CancelInterrupt
            raise self._context.interrupt

    def _listen(self) -> None:
        """Receives messages; when the parent is gone, kills this process and all others of its group."""
        with suppress(OSError):
            while order := self._receive():
                self._obey(order)
        os.killpg(0, signal.SIGKILL)

    def _obey(self, order: ToChild) -> None:
        match order:
            case Run() | Leave():
                self._orders.put(order)
            case Interrupt():
                context = self._context
                if context is not None:
                    context.interrupt = TimeoutInterrupt if order.is_timeout else CancelInterrupt
            case _:
                assert_never(order)

    def _receive(self) -> ToChild | None:
        length = self._read(LENGTH_BYTES)
        body = self._read(int.from_bytes(length, "big")) if length else b""
        return TO_CHILD.decode(body) if body else None

    def _read(self, size: int) -> bytes:
        """Reads exactly `size` bytes; returns none if the parent is gone."""
        parts = bytearray()
        while len(parts) < size:
            part = self._parent.recv(size - len(parts))
            if not part:
                return b""
            parts += part
        return bytes(parts)

    def _send(self, message: FromChild) -> None:
        with self._sending:
            self._parent.sendall(framed(message))

    def _noted(self, context: JobContext) -> None:
        if self._flush is None:
            self._flush = threading.Timer(_NOTES_S, self._send_note, [context])
            self._flush.daemon = True
            self._flush.start()

    def _send_note(self, context: JobContext) -> None:
        self._flush = None
        note = context.take_note()
        if note is not None and context is self._context:
            with suppress(OSError):
                self._send(NoteMessage(note))


def _handler(handlers: dict[str, Handler], assignment: Assignment) -> Handler:
    handler = handlers.get(assignment.type) or (handlers.get(SIM_TYPE) if assignment.simulated else None)
    return handler or Handler(_no_handler, Mode.PROCESS)


def _no_handler(_: Assignment) -> bytes:
    raise AttemptFailedError("NO_HANDLER", is_retryable=False)


def _outcome(context: JobContext) -> ReportRow:
    context.started_s = monotonic()
    CURRENT.set(context)
    try:
        output = context.handler.run(context.assignment)
        return succeeded(context, asyncio.run(_awaited(output)) if inspect.isawaitable(output) else output)
    except BaseException as error:  # noqa: BLE001 - the parent must receive an outcome, whatever was raised
        return failed(context, error)


async def _awaited(output: Awaitable[bytes]) -> bytes:
    return await output


def main(descriptor: str, app_path: str, memory_bytes: str) -> int:
    """Runs the child until it exits; returns its exit status."""
    die_with_parent()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a child that is killed flushes nothing
    parent = socket.socket(fileno=int(descriptor))
    parent.set_inheritable(False)
    if int(memory_bytes):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (int(memory_bytes), hard))
    try:
        handlers = {**BUILTIN, **load_app(app_path).handlers()}
    except HoldfastError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    Child(parent).work(handlers)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
