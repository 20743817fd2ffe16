"""The protocols of a connection on the Unix socket: a conversation, or a worker's session."""

import asyncio
from typing import Protocol

from holdfast.ledger.work_api import LedgerWork
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.frames import FramedProtocol
from holdfast.server.calls import Table
from holdfast.server.conversation import Conversation
from holdfast.server.refusal_log import SOCKET_PEER, log_refusal
from holdfast.server.work_session import ServedSession


class Talk(Protocol):
    """The server's side of one connection."""

    def take(self, message: bytes) -> None:
        """Handles one message; raises if it cannot be decoded."""
        ...

    def stop(self) -> None:
        """Notifies the client that the server is stopping, and closes the connection as soon as possible."""
        ...

    def lose(self) -> None:
        """Handles the loss of the connection."""
        ...


class CallTalk:
    """A conversation; frames are `Call` and `Reply`."""

    def __init__(self, table: Table, line: FramedProtocol) -> None:
        self._line = line
        self._conversation = Conversation(table, self, SOCKET_PEER)

    def take(self, message: bytes) -> None:
        """Starts or cancels a call."""
        self._conversation.take(pb.Call.FromString(message))

    def stop(self) -> None:
        """Refuses new calls, and closes the connection once those in progress are answered."""
        self._conversation.stop(self._line.close)

    def lose(self) -> None:
        """Cancels every call."""
        self._conversation.close()

    def send(self, reply: pb.Reply) -> None:
        """Sends a reply to the client."""
        self._line.send(reply.SerializeToString())

    async def ready(self) -> None:
        """Waits until the client accepts more replies."""
        await self._line.writable()

    def hold(self, *, is_held: bool) -> None:
        """Stops reading calls, or resumes it."""
        self._line.hold("calls under way", is_held=is_held)


class WorkTalk:
    """A worker's session; frames are `WorkerMessage` and `CoordinatorMessage`, and an error is the last of them."""

    def __init__(self, work: LedgerWork, welcome: pb.Welcome, line: FramedProtocol) -> None:
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._session = ServedSession(work, welcome, self._wake)

    def take(self, message: bytes) -> None:
        """Passes the message to the session."""
        self._session.take(pb.WorkerMessage.FromString(message))

    def stop(self) -> None:
        """Notifies the worker."""
        self._session.stop()

    def lose(self) -> None:
        """Ends the session."""
        self._session.leave()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._is_due = False
        error = self._session.ending
        if not self._line.is_open:
            return
        if error is not None:
            log_refusal(error, "Work", SOCKET_PEER)
            ending = pb.Ending(code=error.code.value, reason=error.reason, message=error.message)
            self._line.send(pb.CoordinatorMessage(ending=ending).SerializeToString())
        else:
            for message in self._session.messages():
                self._line.send(message.SerializeToString())
        if error is not None or self._session.is_stopping:
            self._line.close()
