"""Requests of every method of a gateway as bytes, valid or not, chosen by the bytes of an input."""

from google.protobuf.message import Message

from holdfast.proto import holdfast_pb2 as pb
from tests.fuzz.messages import filled
from tests.fuzz.rpc import Called, methods
from tests.fuzz.source import Source

METHODS = methods()
#: The message types of client streams.
STREAMS: dict[str, type[Message]] = {"Work": pb.WorkerMessage, "Converse": pb.Call}
#: The methods that can be called within a conversation.
_INNER = [called for called in METHODS if called.path.startswith("/holdfast.v1.") and called.name not in STREAMS]


def requests_of(source: Source, called: Called, ids: list[str]) -> list[bytes]:
    """The requests of one call; `ids` are those of existing jobs."""
    kind = STREAMS.get(called.name)
    if kind is None:
        return [message_bytes(source, called.request, ids)]
    requests = [message_bytes(source, kind, ids) for _ in range(1 + source.below(4))]
    return requests if kind is pb.WorkerMessage else [call_bytes(source, request, ids) for request in requests]


def call_bytes(source: Source, request: bytes, ids: list[str]) -> bytes:
    """A message of a conversation: mostly a call of an existing method, else the request unchanged."""
    if source.is_one_in(4):
        return request
    called = source.pick(_INNER)
    name = called.path.rpartition(".")[2]
    call = pb.Call(id=source.below(4), method=name, body=message_bytes(source, called.request, ids))
    return call.SerializeToString()


def message_bytes(source: Source, kind: type[Message], ids: list[str]) -> bytes:
    """A message, sometimes with a flipped bit, or random bytes."""
    if source.below(8) == 0:
        return source.take(source.below(64))
    message = bytearray(filled(source, kind, ids).SerializeToString())
    if message and source.is_one_in(8):
        message[source.below(len(message))] ^= 1 << source.below(8)
    return bytes(message)
