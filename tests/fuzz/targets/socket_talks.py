"""Bytes on the socket of a directory: answered, or the connection is dropped, and no other connection is affected.

An input is the data of one client: a first byte, then frames with calls or with a worker's messages, valid or not, in
pieces of any size. Another client makes a call before and after, and is answered.
"""

import asyncio
import random
from typing import Any

from google.protobuf.message import Message

from holdfast import limits
from holdfast.errors import Code
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.frames import CONVERSATION, WORKER, FrameReader, framed
from holdfast.server.unix_socket import SocketServer, _Connection
from tests.fuzz.rpc_requests import call_bytes, message_bytes
from tests.fuzz.source import Source
from tests.fuzz.world import LOOKS, World, run, settle

EXAMPLES = 80
IS_GUIDED = False

_KINDS = (CONVERSATION, WORKER, CONVERSATION, WORKER, b"X", b"")
_MESSAGES_MAX = 6


def seeds() -> list[bytes]:
    """Conversations and workers, in pieces of several sizes."""
    rng = random.Random(0)
    return [
        bytes([kind, *sizes, 5]) + rng.randbytes(250) for kind in range(6) for sizes in ((255, 255), (0, 9), (3, 40))
    ]


def fuzz(data: bytes) -> None:
    """Sends the data of one client."""
    run(_fuzz(Source(data)))


async def _fuzz(source: Source) -> None:
    world = World()
    await world.begin()
    server = SocketServer(world.backend, world.welcome)
    asker, talker = _Client(server), _Client(server)
    ids = await _submitted(asker)
    kind = source.pick(_KINDS)
    sizes = [1 + source.below(256) for _ in range(2)]
    answers = pb.CoordinatorMessage if kind == WORKER else pb.Reply
    stream = kind + b"".join(_frame(source, kind, ids) for _ in range(1 + source.below(_MESSAGES_MAX)))
    at = number = 0
    while at < len(stream) and not talker.is_over:
        # The rest of a long stream is one piece, which bounds the time of an input.
        size = sizes[number % 2] if number < 200 else len(stream)
        talker.send(stream[at : at + size])
        at, number = at + size, number + 1
        await settle()
    for _ in range(3):
        await settle()
    for message in talker.answers(answers):
        _check(message)
    await _submitted(asker)
    for client in (talker, asker):
        client.leave()
    await settle()
    assert not server._connections, "a connection that is over is still known"
    await world.end()


def _check(message: Message) -> None:
    """Checks that the message reports no server error."""
    codes = {code.value for code in Code} - {Code.INTERNAL.value}
    if isinstance(message, pb.Reply):
        assert not message.code or message.code in codes, message
    elif isinstance(message, pb.CoordinatorMessage) and message.HasField("ending"):
        assert message.ending.code in codes, message


async def _submitted(client: "_Client") -> list[str]:
    """Submits two jobs, to show that the client is served; returns their ids."""
    request = pb.SubmitJobsRequest(templates=[pb.JobTemplate(type="echo")], jobs=[pb.NewJob(), pb.NewJob()])
    call = pb.Call(id=1, method="JobService/SubmitJobs", body=request.SerializeToString())
    client.send(b"" if client.has_begun else CONVERSATION)
    client.send(framed(call.SerializeToString()))
    for _ in range(LOOKS):
        if client.is_answered:
            break
        await asyncio.sleep(0.001)
    (reply,) = client.answers(pb.Reply)
    assert isinstance(reply, pb.Reply)
    assert not reply.code, reply
    return list(pb.SubmitJobsResponse.FromString(reply.body).job_ids)


def _frame(source: Source, kind: bytes, ids: list[str]) -> bytes:
    """One message with its length, which is sometimes wrong."""
    message = message_bytes(source, pb.WorkerMessage if kind == WORKER else pb.Call, ids)
    data = framed(message if kind == WORKER else call_bytes(source, message, ids))
    if source.is_one_in(16):
        return source.take(4) + data[4:]
    return data


class _Client(asyncio.Transport):
    """The client's end of a connection; it accepts all data at once."""

    def __init__(self, server: SocketServer) -> None:
        super().__init__()
        self._connection = _Connection(server)
        self._written = bytearray()
        self._reader = FrameReader(limits.MESSAGE_BYTES_MAX)
        self.is_over = self.has_begun = False
        self._connection.connection_made(self)

    def send(self, data: bytes) -> None:
        """Delivers bytes to the server."""
        if data and not self.is_over:
            self.has_begun = True
            self._connection.data_received(data)

    @property
    def is_answered(self) -> bool:
        """Whether data has come since the last call of `answers`."""
        return bool(self._written)

    def answers(self, kind: type[Message]) -> list[Message]:
        """The responses since the last call."""
        data, self._written = bytes(self._written), bytearray()
        return [kind.FromString(message) for message in self._reader.feed(data)]

    def leave(self) -> None:
        """Closes the connection, unless the server has closed it."""
        if not self.is_over:
            self._connection.eof_received()
        self._connection.connection_lost(None)

    def write(self, data: Any) -> None:  # noqa: ANN401 - as its port says
        self._written += data

    def pause_reading(self) -> None:
        """Does nothing: the test decides when bytes arrive."""

    def resume_reading(self) -> None:
        """Does nothing, like `pause_reading`."""

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True
