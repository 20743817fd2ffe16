"""JSON from clients: a value on which every parser agrees, or the documented error."""

import json
import math

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.server.http.strict_json import encode, is_json, parse

_TEXTS = (
    *(
        '{"a":1,"b":[true,null,1.5e3,"\\u00e9\\ud83d\\ude00"],"c":{}}',
        "[]",
        '{"a":1,"a":2}',
        "NaN",
        "[1e999]",
        '"\\ud800"',
    ),
    *(
        "-0",
        "1" * 4_301,
        '{"\\u0061":1,"a":2}',
        '{"a":{"b":1,"b":2}}',
        "[" * 40 + "]" * 40,
        "\ufeff{}",
        '{"":1} x',
        "-0.0",
    ),
)


def seeds() -> list[bytes]:
    """Valid JSON, and some invalid texts."""
    deep = b"[" * 100_000 + b"]" * 100_000
    return [*(text.encode() for text in _TEXTS), b'"\xff"', deep, b'{"a":' * 2_000 + b"1" + b"}" * 2_000]


def fuzz(data: bytes) -> None:
    """Parses a text and compares the value with that of Python's own parser."""
    try:
        value = parse(data)
    except InvalidArgumentError as error:
        assert error.reason.startswith("JSON_")
        return
    assert is_json(data)
    expected = json.loads(data, object_pairs_hook=_unique)
    assert _same(value, expected), f"read as {value!r}, expected {expected!r}"
    assert _same(parse(encode(value)), value)
    assert _depth(value) <= limits.JSON_DEPTH_MAX


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len(dict(pairs)) == len(pairs), "a name stands in an object twice"
    return dict(pairs)


def _same(one: object, other: object) -> bool:
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
        case list(), list():
            return len(one) == len(other) and all(map(_same, one, other))
        case float(), float() | int():
            return math.isfinite(one) and one == other
    return type(one) is type(other) and one == other


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0
