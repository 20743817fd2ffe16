"""The record of a job, as stored in its node.

Invariants:
- A record holds everything that a client can query about a job except its payload and output, which have nodes of their
  own.
- A record is written as a whole, by a transaction that checks the version that was read.
- The token of a running job is the id of the transaction that took it. That transaction cannot know its own id, so it
  writes 0, which means "the id of the transaction that wrote this record"; later writes store the id itself.
"""

from typing import TypeVar

import msgspec

from holdfast import limits
from holdfast.core.lifecycle import QUEUED, RUNNING, State
from holdfast.core.model import Extra, Result, Template
from holdfast.errors import InternalError
from holdfast.ports import JobView
from holdfast.topologies.zookeeper.backend.paths import NodeLane, lane_of
from holdfast.topologies.zookeeper.backend.transactions import ReadNode

T = TypeVar("T")

_VERSION = b"\x01"
#: In place of a bucket number: the job is not due yet.
DELAYED = -2


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One job at one instant."""

    id: str
    template: Template
    created_ms: int
    extra: Extra | None = None
    payload_bytes: int = 0
    state: int = QUEUED
    not_before_ms: int = 0
    #: The bucket in which it waits.
    bucket: int = 0
    #: Its place among the waiting jobs when it was taken.
    place: tuple[int, int] = (0, 0)
    token: int = 0
    grants: int = 0
    failures: int = 0
    losses: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    cancel_requested: bool = False
    cancel_reason: str = ""
    worker: str = ""
    failure_reason: str = ""
    #: Whether a worker's report ended it; then its last attempt counts.
    is_reported: bool = False
    #: Time of the first cancel request; 0 if there was none, or if it predates this field.
    cancel_ms: int = 0
    #: The worker whose attempt ended the job; empty if no attempt did, or if the end predates this field.
    ended_by: str = ""

    @property
    def lane(self) -> NodeLane:
        return lane_of(self.template)

    @property
    def attempts(self) -> int:
        """Number of attempts, as far as known."""
        return self.failures + self.losses + (self.state == RUNNING or self.is_reported)


class Execution(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attempt that did not end its job: it failed and is retried, or its lease was lost or handed back."""

    token: int
    worker: str
    started_ms: int
    ended_ms: int
    is_failure: bool
    #: Whether a lost or handed back lease counts as a loss.
    is_spent: bool
    reason: str = ""
    #: The traceback of a failure.
    detail: str = ""


class NodeRetention(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Retention times of ended jobs."""

    retain_ms: int = limits.RETAIN_MS_DEFAULT
    retain_failed_ms: int = limits.RETAIN_FAILED_MS_DEFAULT


class VersionedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as it was read, and the version that a change must check."""

    record: Record
    version: int


_STATES = frozenset(State)
_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(Record)
_result_decoder = msgspec.msgpack.Decoder(Result)
_retention_decoder = msgspec.msgpack.Decoder(NodeRetention)
_executions_decoder = msgspec.msgpack.Decoder(list[Execution])


def encode(value: Record | Result | NodeRetention | list[Execution]) -> bytes:
    return _VERSION + _encoder.encode(value)


def kept_of(node: ReadNode) -> VersionedRecord:
    """Returns the record in a node, with its token."""
    record = decoded(_record_decoder, _body(node.data))
    if record.state not in _STATES:
        raise InternalError(f"a node holds a job in the unknown state {record.state}", reason="RECORD_DAMAGED")
    if record.state == RUNNING and record.token == 0:
        record = msgspec.structs.replace(record, token=node.stat.changed_id)
    return VersionedRecord(record, node.stat.version)


def result_of(node: ReadNode) -> Result:
    return decoded(_result_decoder, _body(node.data))


def executions_of(node: ReadNode | None) -> list[Execution]:
    """Returns the executions in a node, oldest first; none if there is no node."""
    return decoded(_executions_decoder, _body(node.data)) if node is not None else []


def retention_of(node: ReadNode | None) -> NodeRetention:
    """Returns the retention in a node; the default one if there is no node."""
    return decoded(_retention_decoder, _body(node.data)) if node is not None else NodeRetention()


def decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    """Decodes the data of a node; `InternalError` for data that Holdfast never wrote."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InternalError(f"a node holds data that Holdfast never wrote: {error}", reason="RECORD_DAMAGED") from error


def _body(data: bytes) -> bytes:
    if data[:1] != _VERSION:
        raise InternalError("a node was written by another version of Holdfast", reason="RECORD_VERSION")
    return data[1:]


def view_of(record: Record) -> JobView:
    """Returns the record as a view for clients."""
    return JobView(
        id=record.id,
        template=record.template,
        state=State(record.state),
        created_ms=record.created_ms,
        started_ms=record.started_ms,
        finished_ms=record.finished_ms,
        not_before_ms=record.not_before_ms,
        cancel_requested=record.cancel_requested,
        failure_reason=record.failure_reason,
        attempts=record.attempts,
        extra=record.extra,
        failures=record.failures,
        losses=record.losses,
        token=record.token,
        worker=record.worker,
    )
