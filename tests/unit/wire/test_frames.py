"""Frames assembled from arbitrary pieces of data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.frames import FrameReader, MalformedFrameError, framed


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=20))
def test_messages_survive_any_cut(messages: list[bytes], sizes: list[int]) -> None:
    """However the bytes are cut, the reader returns the same messages, and nothing is left over."""
    data, reader, got = b"".join(map(framed, messages)), FrameReader(100), []
    for size in sizes:
        got += reader.feed(data[:size])
        data = data[size:]
    got += reader.feed(data)
    assert got == messages
    assert reader.is_between


def test_half_a_message_is_noticed() -> None:
    """The reader reports whether a part of a message is pending."""
    reader = FrameReader(100)
    assert reader.feed(framed(b"abc")[:-1]) == []
    assert not reader.is_between


def test_message_may_be_as_long_as_the_limit_and_no_longer() -> None:
    """A message of the limit's size is accepted, and one more byte is refused before its body arrives."""
    assert FrameReader(10).feed(framed(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(MalformedFrameError, match="at most 10 bytes, got 11"):
        FrameReader(10).feed(framed(b"x" * 11)[:4])
