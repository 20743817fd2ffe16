"""Messages of any type, filled from the bytes of an input: often with valid values, else with odd ones."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fuzz.source import Source

#: The descriptor of a field; protobuf has two types for it.
Field = Any

_DEPTH_MAX = 4
_FLOATS = (0.0, -1.0, 1.5, 1e308, float("inf"), float("nan"))
_BITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), 1 << 31),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1 << 32),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), 1 << 63),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1 << 64),
    FieldDescriptor.CPPTYPE_ENUM: (-(1 << 31), 1 << 31),
}
#: Valid values by field name; fields with a job id get ids of existing jobs.
_IDS = {"job_id", "retry_of"}
_SENSE: dict[str, tuple[object, ...]] = {
    "type": ("echo", "sleep"),
    "types": ("echo", "sim"),
    "routes": ("sim",),
    "job_type": ("sleep", "echo"),
    "queue": ("default", "other", ""),
    "queues": ("default",),
    "name": ("nightly", "hourly"),
    "worker_id": ("w1", "w2"),
    "cron": ("0 3 * * *", "*/5 2 * * 1-5", ""),
    "timezone": ("UTC", "Europe/Paris", ""),
    "catch_up": ("", "none", "latest", "all"),
    "overlap": ("", "allow", "skip", "cancel_running"),
    "id": ("", "8d3b1c62-9d0e-4f0a-8b51-0d3f5a5f0c11"),
    "request_id": ("", "key"),
    "client_request_id": ("", "key"),
    "unique_key": ("", "u"),
    "cursor": ("",),
    "page_token": ("", "1"),
    "count": (1, 3, 100),
    "template": (0, 1),
    "max_attempts": (1, 3, 100),
    "after_ms": (0, 1_700_000_000_000),
    "every_ms": (0, 60_000),
    "at_ms": (0, 1_800_000_000_000),
    "jitter_ms": (0, 10),
    "checksum": ("",),
    "summary": ("", "fine"),
}
#: Fields that are filled more often, because most messages need them.
_NEEDED = {
    *_IDS,
    "type",
    "job_type",
    "name",
    "worker_id",
    "templates",
    "jobs",
    "template",
    "spec",
    "count",
    "hello",
    "queue",
    "mode",
}
_USUAL: dict[int, tuple[object, ...]] = {
    FieldDescriptor.CPPTYPE_STRING: ("", "why"),
    FieldDescriptor.CPPTYPE_ENUM: (1, 2, 3, 4, 5),
    **dict.fromkeys(set(_BITS) - {FieldDescriptor.CPPTYPE_ENUM}, tuple(range(6))),
}


def filled(source: Source, kind: type[Message], ids: list[str]) -> Message:
    """A message; `ids` are those of existing jobs."""
    message = kind()
    _fill(source, message, ids, 0)
    return message


def _fill(source: Source, message: Message, ids: list[str], depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if source.is_over or source.below(8) < (1 if field.name in _NEEDED else 4):
            continue
        if field.is_repeated:
            _fill_repeated(source, message, field, ids, depth)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            if depth < _DEPTH_MAX:
                part = getattr(message, field.name)
                part.SetInParent()
                _fill(source, part, ids, depth + 1)
        else:
            setattr(message, field.name, _value(source, field, ids))


def _fill_repeated(source: Source, message: Message, field: Field, ids: list[str], depth: int) -> None:
    holder: Any = getattr(message, field.name)
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    entry = field.message_type if is_message and field.message_type.GetOptions().map_entry else None
    for _ in range((1, 2, 1, 3, 0)[source.below(5)]):
        if entry is not None:
            key = _value(source, entry.fields_by_name["key"], ids)
            holder[key] = _value(source, entry.fields_by_name["value"], ids)
        elif not is_message:
            holder.append(_value(source, field, ids))
        elif depth < _DEPTH_MAX:
            _fill(source, holder.add(), ids, depth + 1)


def _value(source: Source, field: Field, ids: list[str]) -> Any:  # noqa: ANN401 - of the field's type
    if source.below(8):
        sense = _sense(field, ids)
        if sense:
            return source.pick(sense)
    kind = field.cpp_type
    if field.type == FieldDescriptor.TYPE_BYTES:
        return source.take(source.below(64))
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return source.text(ids).encode("utf-8", "replace").decode()
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return source.below(2) == 1
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return source.pick(_FLOATS)
    low, end = _BITS[kind]
    return min(max(source.integer(), low), end - 1)


def _sense(field: Field, ids: list[str]) -> Sequence[object]:
    """Valid values of the field; empty if none are known."""
    if field.name in _IDS and ids:
        return ids
    if field.type == FieldDescriptor.TYPE_BYTES:
        return (b'{"a":1}', b"")
    known, is_text = _SENSE.get(field.name), field.cpp_type == FieldDescriptor.CPPTYPE_STRING
    if known is not None and isinstance(known[0], str) == is_text:
        return known
    return _USUAL.get(field.cpp_type, ())
