"""`JobService.Converse`: a conversation over one gRPC stream."""

import asyncio
from collections import deque

from holdfast.errors import HoldfastError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.auth.permissions import CallerSession
from holdfast.server.grpc.conversation import GrpcConversation
from holdfast.server.grpc.method_table import Table
from holdfast.server.grpc.status import Context, refuse_undecodable

#: Unsent replies above which no more calls are read, and streams wait.
_UNSENT_MAX = 256


class ConverseStream:
    """One conversation: a queue of replies, their writer, and a reader task."""

    def __init__(self, table: Table, context: Context, session: CallerSession) -> None:
        self._context = context
        self._conversation = GrpcConversation(table, self, context.peer(), session)
        self._unsent: deque[pb.Reply] = deque()
        self._wake = asyncio.Event()
        self._ready, self._unheld = asyncio.Event(), asyncio.Event()
        self._ready.set()
        self._unheld.set()
        self._ending: HoldfastError | None = None
        self._is_over = False

    async def serve(self) -> None:
        reader = asyncio.create_task(self._read())
        try:
            while not self._is_over or self._unsent:
                await self._wake.wait()
                self._wake.clear()
                await self._write()
        finally:
            reader.cancel()
            self._conversation.close()

    def stop(self) -> None:
        self._conversation.stop(self._finish)

    def send(self, reply: pb.Reply) -> None:
        self._unsent.append(reply)
        if len(self._unsent) > _UNSENT_MAX:
            self._ready.clear()
        self._wake.set()

    async def ready(self) -> None:
        await self._ready.wait()

    def hold(self, *, is_held: bool) -> None:
        if is_held:
            self._unheld.clear()
        else:
            self._unheld.set()

    async def _write(self) -> None:
        while self._unsent:
            await self._context.write(self._unsent.popleft())
            if len(self._unsent) <= _UNSENT_MAX:
                self._ready.set()
        if self._ending is not None:
            raise self._ending

    async def _read(self) -> None:
        try:
            while isinstance(call := await self._context.read(), pb.Call):
                self._conversation.take(call)
                await self._ready.wait()
                await self._unheld.wait()
            refuse_undecodable(call)
        except HoldfastError as error:
            self._ending = error
        finally:
            self._finish()

    def _finish(self) -> None:
        self._is_over = True
        self._wake.set()
