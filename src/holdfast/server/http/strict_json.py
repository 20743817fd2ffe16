"""Strict parser for JSON from untrusted clients: it refuses text that other parsers might read differently.

Refused are: text that is not UTF-8, a byte order mark, anything after the value, repeated names in an object, NaN and
infinities, lone surrogates, numbers beyond a float or 4,300 digits, and excessive depth.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError

_DECODER = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()
_HOLDERS = (dict, list)


def parse(body: bytes) -> object:
    """Parses the text; `InvalidArgumentError` says what is wrong with it."""
    try:
        value = _DECODER.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _malformed(str(error)) from None
    if body.count(b"[") + body.count(b"{") > limits.JSON_DEPTH_MAX:
        _check_depth(value)
    # Encoding drops repeated names, so equal text proves that there are none. Most clients write JSON as this encoder
    # does, so that few bodies are parsed a second time.
    if b"{" in body and msgspec.json.format(body, indent=-1) != _ENCODER.encode(value):
        _NAMES.decode(body.decode())
    return value


def encode(value: object) -> bytes:
    """Encodes a parsed value as the SDK does."""
    return _ENCODER.encode(value)


def is_json(data: bytes) -> bool:
    """Whether the bytes can be embedded in a response as they are."""
    try:
        _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _unique(pairs: Sequence[tuple[str, object]]) -> None:
    counts = Counter(name for name, _ in pairs)
    if len(counts) != len(pairs):
        twice = counts.most_common(1)[0][0]
        message = f"expected unique names in an object, got {twice[:80]!r} more than once"
        raise InvalidArgumentError(message, reason="JSON_DUPLICATE_NAME")


#: Checks names only; everything else was checked before.
_NAMES = json.JSONDecoder(object_pairs_hook=_unique, parse_int=len, parse_float=len)


def _check_depth(value: object) -> None:
    """Checks the depth level by level; the decoder's own limit depends on the stack of its caller."""
    level: list[Any] = [value] if type(value) in _HOLDERS else []
    for _ in range(limits.JSON_DEPTH_MAX):
        parts = [holder.values() if type(holder) is dict else holder for holder in level]
        level = [part for some in parts for part in some if type(part) in _HOLDERS]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> InvalidArgumentError:
    message = f"expected at most {limits.JSON_DEPTH_MAX} levels of arrays and objects"
    return InvalidArgumentError(message, reason="JSON_TOO_DEEP")


def _malformed(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the body must be JSON: {what}", reason="JSON_INVALID")
