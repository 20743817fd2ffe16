"""The messages of the wire, as msgpack arrays."""

from typing import Final

import msgspec

from holdfast.core.commands import ReportRow
from holdfast.core.model import Note
from holdfast.errors import Code, HoldfastError, UnavailableError, error_class
from holdfast.ports import Introduction

#: No HTTP request begins with a zero byte, so HTTP and the wire can share a port.
MAGIC: Final = b"\0HFW"
VERSION: Final = 1
#: The limit of `Opening`, which is read before its sender is known.
OPENING_BYTES_MAX: Final = 4_096

#: The limit of `Opened`: a longer first message is not from a server of the wire. gRPC sends such a one.
OPENED_BYTES_MAX: Final = 2_560
#: The limit of the text in `Opened`; a character takes up to four bytes.
OPENED_CHARS_MAX: Final = 500

CALLS: Final = "calls"
WORK: Final = "work"

LAST, MORE, ERROR = 0, 1, 2


#: The connection concerns no particular shard of a cluster.
NO_SHARD: Final = -1
#: The reason of the refusal of a node that does not lead the shard.
NOT_LEADER: Final = "NOT_LEADER"
#: The reason of the refusal of a worker that names no shard.
SHARD_NEEDED: Final = "SHARD_NEEDED"


class NotLeaderError(UnavailableError):
    """The node does not lead the shard; `leader` is the address of the node that does, "" if there is none."""

    def __init__(self, message: str, leader: str) -> None:
        super().__init__(message, reason=NOT_LEADER)
        self.leader = leader


class Opening(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of a client: the versions that it knows, its purpose, its token, and its program."""

    version_min: int
    version_max: int
    purpose: str
    token: str = ""
    program: str = ""
    #: The shard of a cluster that the connection concerns; only the node that leads it accepts the connection.
    shard: int = NO_SHARD


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of a server: the version that both use from now on, or an error."""

    version: int = 0
    code: str = ""
    reason: str = ""
    message: str = ""
    #: The version of the server's program.
    program: str = ""
    #: Of a node of a cluster: the number of shards; otherwise 0.
    shards: int = 0
    #: With the refusal NOT_LEADER: the address of the leader, "" if there is none at the moment.
    leader: str = ""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A request; `id` is chosen by the client and unique among its calls in progress."""

    id: int
    method: str
    body: msgspec.Raw = msgspec.Raw(b"\xc0")


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """A response, an item of a stream, or an error."""

    id: int
    kind: int
    body: msgspec.Raw


class WireFailure(msgspec.Struct, frozen=True, array_like=True):
    """An error."""

    code: str
    reason: str
    message: str

    @classmethod
    def of(cls, error: HoldfastError) -> "WireFailure":
        """Returns the message for an error."""
        return cls(error.code.value, error.reason, error.message)

    def error(self) -> HoldfastError:
        """Returns the exception that the server's own process would have raised."""
        return error_named(self.code, self.reason, self.message)


class WorkerMessage(msgspec.Struct, array_like=True):
    """A message of a worker; the fields of several calls travel together."""

    #: Only in the first message.
    introduction: Introduction | None = None
    #: The number of leases that the server may send in addition.
    credits: int = 0
    outcomes: list[ReportRow] = []
    #: Increases with each message with outcomes; `Directive.reported` acknowledges it.
    report_id: int = 0
    is_heartbeat: bool = False
    #: Tokens of leases that the worker hands back.
    released: list[int] = []
    is_draining: bool = False
    notes: list[Note] = []
    #: Takes back all unused credits; `Directive.is_recalled` confirms it.
    is_recalling: bool = False
    #: The worker ends the session and does not return: its leases are granted to other workers at once.
    is_leaving: bool = False


class Push(msgspec.Struct, frozen=True, array_like=True):
    """A message to a worker: a directive, or the error that ends the session."""

    kind: int
    body: msgspec.Raw


def error_named(code: str, reason: str, message: str) -> HoldfastError:
    """Returns the exception for an error from the wire; an unknown code becomes INTERNAL."""
    known = Code(code) if code in Code.__members__ else Code.INTERNAL
    return error_class(known)(message, reason=reason)


#: The errors of the decoders below. Text that is not UTF-8 and very deep nesting have errors of their own in msgspec.
MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

encode = msgspec.msgpack.Encoder().encode
decode_opening = msgspec.msgpack.Decoder(Opening).decode
decode_opened = msgspec.msgpack.Decoder(Opened).decode
decode_call = msgspec.msgpack.Decoder(Call).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
decode_failure = msgspec.msgpack.Decoder(WireFailure).decode
decode_worker_message = msgspec.msgpack.Decoder(WorkerMessage).decode
decode_push = msgspec.msgpack.Decoder(Push).decode
