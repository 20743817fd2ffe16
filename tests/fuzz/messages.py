"""Messages of any type, filled as the bytes of an input say: often as people would, else as nobody should."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fuzz.source import Source

#: Of one field; protobuf has two types for it.
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
#: What makes sense somewhere.
_WORDS = ("echo", "default", "nightly", "0 3 * * *", "*/5 2 * * 1-5", "UTC", "Europe/Paris", "w1", "latest", "skip")


def filled(source: Source, kind: type[Message], ids: list[str]) -> Message:
    """A message; `ids` are those of jobs that there are."""
    message = kind()
    _fill(source, message, [*ids, *_WORDS], 0)
    return message


def _fill(source: Source, message: Message, words: list[str], depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if source.is_over or source.below(4) == 0:
            continue
        if field.is_repeated:
            _fill_repeated(source, message, field, words, depth)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            if depth < _DEPTH_MAX:
                part = getattr(message, field.name)
                part.SetInParent()
                _fill(source, part, words, depth + 1)
        else:
            setattr(message, field.name, _value(source, field, words))


def _fill_repeated(source: Source, message: Message, field: Field, words: list[str], depth: int) -> None:
    holder: Any = getattr(message, field.name)
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    entry = field.message_type if is_message and field.message_type.GetOptions().map_entry else None
    for _ in range((1, 2, 1, 3, 0)[source.below(5)]):
        if entry is not None:
            key = _value(source, entry.fields_by_name["key"], words)
            holder[key] = _value(source, entry.fields_by_name["value"], words)
        elif not is_message:
            holder.append(_value(source, field, words))
        elif depth < _DEPTH_MAX:
            _fill(source, holder.add(), words, depth + 1)


def _value(source: Source, field: Field, words: list[str]) -> Any:  # noqa: ANN401 - of the field's type
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return source.take(source.below(64)) if source.below(2) else b'{"a":1}'
        return source.text(words).encode("utf-8", "replace").decode()
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return source.below(2) == 1
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return source.pick(_FLOATS)
    if kind == FieldDescriptor.CPPTYPE_ENUM and source.below(4):
        return source.below(8)
    low, end = _BITS[kind]
    return min(max(source.integer(), low), end - 1)
