"""Strict JSON: only documents that every parser reads the same way."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.server.http.strict_json import encode, parse

NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('abé"\\', max_size=3), inner, max_size=4),
)


def reason(body: bytes) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        parse(body)
    return caught.value.reason


@given(VALUES, st.booleans())
def test_json_of_the_standard_library_is_parsed_to_the_same_value(value: object, is_ascii: bool) -> None:  # noqa: FBT001
    """JSON of the standard library, with or without escapes, is parsed to the same value."""
    body = json.dumps(value, ensure_ascii=is_ascii).encode()
    assert parse(body) == json.loads(body)
    assert json.loads(encode(parse(body))) == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"b":{"c":1,"c":2}}',
        b'[{"x":[{"a":1,"a":2}]}]',
        b'{"a":1,"\\u0061":2}',
        '{"é":1,"\\u00e9":2}'.encode(),
    ],
)
def test_name_said_twice_is_refused(body: bytes) -> None:
    """A repeated name is refused at any depth and in any spelling."""
    assert reason(body) == "JSON_DUPLICATE_NAME"


def test_names_may_come_again_elsewhere() -> None:
    """Two objects may have the same names, and a string may look like a name."""
    assert parse(b'[{"a":1},{"a":2}, "a", "\\"a\\":1,\\"a\\":1"]') == [{"a": 1}, {"a": 2}, "a", '"a":1,"a":1']


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"{} x",
        b"{}{}",
        b"NaN",
        b"[Infinity]",
        b'{"a":-Infinity}',
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"{'a':1}",
        b"[1,]",
        b"01",
        b"+1",
        b"1e400",
        b'"\x01"',
        b'"\n"',
        b"9" * 4_301,
        b"[" + b"9" * 4_301 + b"]",
        b"\x00",
        "{}".encode("utf-16"),
    ],
)
def test_malformed_json_is_refused(body: bytes) -> None:
    """Truncated, extended or malformed JSON, and numbers out of range, are refused."""
    assert reason(body) == "JSON_INVALID"


@pytest.mark.parametrize("shape", [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_has_one_limit_wherever_it_is_read(shape: tuple[bytes, bytes]) -> None:
    """JSON is parsed at the depth limit and refused one level deeper, even at a hundred thousand levels."""
    opening, closing = shape

    def nested(depth: int) -> bytes:
        return opening * depth + b"1" + closing * depth

    parse(nested(limits.JSON_DEPTH_MAX))
    for depth in (limits.JSON_DEPTH_MAX + 1, 500, 5_000, 100_000):
        assert reason(nested(depth)) == "JSON_TOO_DEEP"
    assert reason(opening * 100_000) in {"JSON_TOO_DEEP", "JSON_INVALID"}


def test_wide_is_not_deep() -> None:
    """Many objects side by side do not count as depth."""
    body = b"[" + b",".join([b'{"a":[{}]}'] * 5_000) + b"]"
    assert len(parse(body)) == 5_000  # type: ignore[arg-type]


def test_brackets_in_strings_open_nothing() -> None:
    """Brackets inside strings do not count as depth."""
    assert parse(json.dumps("[{" * 1_000).encode()) == "[{" * 1_000
