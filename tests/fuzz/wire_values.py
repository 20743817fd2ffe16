"""Requests and messages of the wire as bytes, filled from the bytes of an input: often with valid values.

The shape comes from the types that the wire itself decodes; a value may be of another type, missing, or one too many.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import inspect as types

from holdfast.wire import methods
from holdfast.wire.methods import WireMethod
from tests.fuzz.depth import deepened
from tests.fuzz.source import Source

#: Every method of the wire, by name.
METHODS: tuple[WireMethod[Any, Any], ...] = tuple(
    sorted((one for one in vars(methods).values() if isinstance(one, WireMethod)), key=lambda method: method.name)
)
_LOW, _END = -(1 << 63), 1 << 64
_DEPTH_MAX = 6
#: First bytes of short texts in MessagePack.
_TEXT, _TEXT_MAX = 0xA0, 0xBF
#: Values of other types than expected.
_ODD: tuple[object, ...] = (None, True, -1, _END - 1, 1.5, float("nan"), "", "x", b"", b"\xff", [], [[]], {}, {"a": 1})
_IDS = ("job_id", "retry_of")
#: Valid values by field name.
_SENSE: dict[str, tuple[object, ...]] = {
    "type": ("echo", "sleep"),
    "types": ("echo", "sim"),
    "queue": ("default", "other"),
    "queues": ("default",),
    "name": ("nightly", "hourly"),
    "worker_id": ("w1", "w2"),
    "cron": ("0 3 * * *", "*/5 2 * * 1-5", ""),
    "timezone": ("UTC", "Europe/Paris"),
    "catch_up": ("none", "latest", "all"),
    "overlap": ("allow", "skip", "cancel_running"),
    "id": ("", "8d3b1c62-9d0e-4f0a-8b51-0d3f5a5f0c11"),
    "request_id": ("", "key"),
    "unique_key": ("", "u"),
    "cursor": ("",),
    "reason": ("", "why"),
    "size": (1, 50, 200),
    "count": (1, 3, 100),
    "template": (0, 1),
    "priority": (0, 5, 9),
    "max_attempts": (1, 3, 100),
    "after_ms": (0, 1_700_000_000_000),
    "every_ms": (0, 60_000),
    "at_ms": (0, 1_800_000_000_000),
    "not_before_ms": (0, 1_700_000_000_000),
    "max_ms": (1_000, 3_600_000),
    "token": (1, 2, 3),
    "state": (3, 4, 5),
    "slots": (1, 2, 1_000),
    "credits": (0, 1, 10),
    "kind": (0, 1, 2),
    "version_min": (1,),
    "version_max": (1, 2),
}


def request_bytes(source: Source, kind: Any, ids: Sequence[str]) -> bytes:  # noqa: ANN401 - a type expression
    """A message of this type; `ids` are those of existing jobs.

    Sometimes it has a flipped bit, text that is not UTF-8 or very deep nesting, or is random bytes.
    """
    if source.is_one_in(12):
        return source.take(source.below(64))
    message = bytearray(msgspec.msgpack.encode(_value(source, types.type_info(kind), "", ids, 0)))
    if source.is_one_in(8):
        message[source.below(len(message))] ^= 1 << source.below(8)
    elif source.is_one_in(8):
        _spoil_text(source, message)
    return deepened(bytes(message)) if source.is_one_in(40) else bytes(message)


def _spoil_text(source: Source, message: bytearray) -> None:
    """Replaces the first byte of one short text by a byte that UTF-8 does not have."""
    texts = [at for at, byte in enumerate(message[:-1]) if _TEXT < byte <= _TEXT_MAX]
    if texts:
        message[source.pick(texts) + 1] = 0xFF


def request_of(method: WireMethod[Any, Any]) -> Any:  # noqa: ANN401 - a type expression
    """The type of a method's requests."""
    return _type_of(method.decode_request)


def response_of(method: WireMethod[Any, Any]) -> Any:  # noqa: ANN401 - a type expression
    """The type of a method's responses."""
    return _type_of(method.decode_response)


def _type_of(decode: Any) -> Any:  # noqa: ANN401 - the method of a decoder, and a type expression
    return decode.__self__.type


def _value(source: Source, kind: types.Type, name: str, ids: Sequence[str], depth: int) -> object:  # noqa: PLR0911 - one for each type
    if source.is_one_in(40) or depth > _DEPTH_MAX:
        return source.pick(_ODD)
    match kind:
        case types.StructType():
            return _struct(source, kind, ids, depth)
        case types.UnionType():
            return _value(source, source.pick(kind.types), name, ids, depth)
        case types.ListType() | types.SetType() | types.FrozenSetType() | types.VarTupleType():
            return [_value(source, kind.item_type, name, ids, depth + 1) for _ in range(source.pick((1, 2, 0, 3)))]
        case types.TupleType():
            return [_value(source, item, name, ids, depth + 1) for item in kind.item_types]
        case types.DictType():
            pairs = range(source.pick((0, 1, 2)))
            return {
                _key(_value(source, kind.key_type, "", ids, depth + 1)): _value(source, kind.value_type, "", ids, depth)
                for _ in pairs
            }
        case types.EnumType():
            return source.pick([item.value for item in kind.cls]) if source.below(8) else source.below(256)
        case _:
            return _plain(source, kind, name, ids)


def _struct(source: Source, kind: types.StructType, ids: Sequence[str], depth: int) -> object:
    """An array or a map; an array may end early or have an element too many."""
    values: dict[str, object] = {}
    for field in kind.fields:
        if not field.required and (source.is_over or source.is_one_in(12)):
            if kind.array_like:
                break
            continue
        is_default = not field.required and source.below(2)
        values[field.encode_name] = (
            _default(field) if is_default else _value(source, field.type, field.name, ids, depth + 1)
        )
    if source.is_one_in(24):
        values["later"] = source.pick(_ODD)
    return list(values.values()) if kind.array_like else values


def _default(field: types.Field) -> object:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _plain(source: Source, kind: types.Type, name: str, ids: Sequence[str]) -> object:  # noqa: PLR0911 - one for each type
    sense = [value for value in _sense(name, ids) if isinstance(value, _python_type(kind))]
    if sense and source.below(8):
        return source.pick(sense)
    match kind:
        case types.IntType():
            return min(max(source.integer(), _LOW), _END - 1) if source.below(4) == 0 else source.below(6)
        case types.StrType():
            return source.text(ids).encode("utf-8", "replace").decode()
        case types.BytesType():
            return source.pick((b'{"a":1}', b"")) if source.below(4) else source.take(source.below(64))
        case types.BoolType():
            return source.below(2) == 1
        case types.FloatType():
            return source.pick((0.0, -1.0, 1.5, 1e308, float("inf"), float("nan")))
        case types.RawType() | types.AnyType():
            return source.pick(_ODD)
        case _:
            return None


def _sense(name: str, ids: Sequence[str]) -> Sequence[object]:
    return ids if name in _IDS and ids else _SENSE.get(name, ())


def _python_type(kind: types.Type) -> type[object]:
    return {types.IntType: int, types.StrType: str}.get(type(kind), type(None))


def _key(value: object) -> object:
    """The value as a key of a map."""
    return value if isinstance(value, int | str | bytes | None) else str(value)
