"""JSON from strangers, read so that every reader would read the same, or refused.

Refused are: text that is not UTF-8, a byte order mark, anything after the value, names that an object has twice, NaN
and infinities, halves of surrogate pairs, numbers beyond what a float or 4,300 digits hold, and absurd depth.
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
    """The value that the text stands for; `InvalidArgumentError` says what is wrong with it."""
    try:
        value = _DECODER.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _malformed(str(error)) from None
    if body.count(b"[") + body.count(b"{") > limits.JSON_DEPTH_MAX:
        _check_depth(value)
    # Written as it was read, an object has every name once. Most texts are written the way they are written here, so
    # that few are read a second time.
    if b"{" in body and msgspec.json.format(body, indent=-1) != _ENCODER.encode(value):
        _NAMES.decode(body.decode())
    return value


def encode(value: object) -> bytes:
    """A value that was read here as the SDK would write it."""
    return _ENCODER.encode(value)


def is_json(data: bytes) -> bool:
    """Whether the bytes can stand inside an answer as they are."""
    try:
        _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _unique(pairs: Sequence[tuple[str, object]]) -> None:
    counts = Counter(name for name, _ in pairs)
    if len(counts) != len(pairs):
        twice = counts.most_common(1)[0][0]
        message = f"expected every name once in an object, got {twice[:80]!r} more than once"
        raise InvalidArgumentError(message, reason="JSON_DUPLICATE_NAME")


#: Looks at names alone; everything else was looked at before.
_NAMES = json.JSONDecoder(object_pairs_hook=_unique, parse_int=len, parse_float=len)


def _check_depth(value: object) -> None:
    """Level by level; the decoder's own bound depends on who calls it, and this one does not."""
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
    return InvalidArgumentError(f"expected the body to be JSON: {what}", reason="JSON_INVALID")
