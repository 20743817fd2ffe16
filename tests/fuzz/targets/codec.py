"""Payloads and outputs of jobs: arguments that fit the function, or an error that names the wrong part."""

# ruff: noqa: ARG001 - these functions are never called, only read

import datetime as dt
import enum
import uuid
from typing import Annotated, Any

import msgspec

from holdfast.sdk.codec import Codec, decode_any
from holdfast.sdk.errors import ArgumentsError, ResultTypeError
from tests.fuzz.source import Source


class _Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class _Point(msgspec.Struct):
    x: float
    y: float = 0.0
    name: str | None = None


def _plain(text: str, count: int = 1, *, is_loud: bool = False) -> str:
    return text * count if is_loud else text


def _rich(
    points: list[_Point], colour: _Colour, at: dt.datetime, key: uuid.UUID | None = None, data: bytes = b""
) -> dict[str, _Point]:
    return {}


def _spread(first: int, /, *args: float, tags: tuple[str, ...] = (), **more: Any) -> list[int]:  # noqa: ANN401
    return []


def _bounded(percent: Annotated[int, msgspec.Meta(ge=0, le=100)], what: int | str | None = None) -> bytes:
    return b""


def _nothing() -> None:
    return None


_CODECS = tuple(Codec(function) for function in (_plain, _rich, _spread, _bounded, _nothing))


def seeds() -> list[bytes]:
    """Payloads that fit, and some that do not."""
    texts = (
        *('{"text":"a","count":3,"is_loud":true}', '["a",3]', '{"text":"a","more":1}', "", "[]", "{}", "null", '"a"'),
        '{"points":[{"x":1.5,"name":"n"}],"colour":"red","at":"2040-01-31T09:00:00Z","data":"AAE="}',
        '{"first":1,"args":[1,2.5],"tags":["t"],"more":{"a":[1,{"b":null}]}}',
        *(
            '{"percent":101}',
            '{"percent":1,"what":"x"}',
            '{"percent":1e400}',
            '{"text":"\\ud800"}',
            '{"text":' + "1" * 4_301,
        ),
    )
    deep = b'{"first":1,"more":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    bodies = [*(text.encode() for text in texts), b'{"text":"\xff"}', b"[" * 100_000, deep, b'["\xff"]']
    return [bytes([number]) + body for number in range(len(_CODECS)) for body in bodies]


def fuzz(data: bytes) -> None:
    """Reads a payload of a function, then the same bytes as its output."""
    source = Source(data)
    codec = source.pick(_CODECS)
    body = source.rest()
    decode_any(body)
    try:
        codec.decode_result(body)
    except ResultTypeError as error:
        assert "result" in str(error)
    try:
        found = codec.decode(body)
    except ArgumentsError as error:
        assert error.reason == "ARGUMENTS_INVALID"
        return
    try:
        again = codec.encode(found.args, found.kwargs)
    except ArgumentsError as error:
        # Values read from JSON may be too large to send, or not finite.
        assert "JSON" in error.message, error
        return
    assert codec.decode(again) == found
