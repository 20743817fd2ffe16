"""What is said on the socket of a directory: answered, or its connection is dropped, and no other one notices.

An input is what one client sends: a first byte, then frames with calls or with a worker's messages, well formed or
not, in pieces of any size. Another client asks before and after, and is answered.
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
    """Lets one client talk."""
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
        # Of a long one the rest comes together, so that no input takes for ever.
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
    """Nothing is the server's fault."""
    codes = {code.value for code in Code} - {Code.INTERNAL.value}
    if isinstance(message, pb.Reply):
        assert not message.code or message.code in codes, message
    elif isinstance(message, pb.CoordinatorMessage) and message.HasField("ending"):
        assert message.ending.code in codes, message


async def _submitted(client: "_Client") -> list[str]:
    """The ids of two jobs that a client submits, which shows that it is served."""
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
    """One message as it travels; at times longer or shorter than it says."""
    message = message_bytes(source, pb.WorkerMessage if kind == WORKER else pb.Call, ids)
    data = framed(message if kind == WORKER else call_bytes(source, message, ids))
    if source.is_one_in(16):
        return source.take(4) + data[4:]
    return data


class _Client(asyncio.Transport):
    """One client's end, which takes everything at once."""

    def __init__(self, server: SocketServer) -> None:
        super().__init__()
        self._connection = _Connection(server)
        self._written = bytearray()
        self._reader = FrameReader(limits.MESSAGE_BYTES_MAX)
        self.is_over = self.has_begun = False
        self._connection.connection_made(self)

    def send(self, data: bytes) -> None:
        """Some bytes arrive."""
        if data and not self.is_over:
            self.has_begun = True
            self._connection.data_received(data)

    @property
    def is_answered(self) -> bool:
        """Whether something came since the last time."""
        return bool(self._written)

    def answers(self, kind: type[Message]) -> list[Message]:
        """What was answered since the last time."""
        data, self._written = bytes(self._written), bytearray()
        return [kind.FromString(message) for message in self._reader.feed(data)]

    def leave(self) -> None:
        """It closes the connection, unless that has happened."""
        if not self.is_over:
            self._connection.eof_received()
        self._connection.connection_lost(None)

    def write(self, data: Any) -> None:  # noqa: ANN401 - as its port says
        self._written += data

    def pause_reading(self) -> None:
        """Nothing arrives meanwhile, because nothing is sent."""

    def resume_reading(self) -> None:
        """And again."""

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True
