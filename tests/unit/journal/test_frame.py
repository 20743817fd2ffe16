"""The layout of one frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.journal.frame import (
    FRAME_OVERHEAD,
    HEADER_BYTES,
    MAGIC,
    SECTOR_BYTES,
    TRAILER,
    EncodedFrame,
    decode_header,
    encode,
    find_header,
    stored_body,
    unmask,
)

SALT = 77


def encoded(body: bytes, offset: int = SECTOR_BYTES) -> EncodedFrame:
    return encode(body, first_position=5, count=2, digest=9, link=3, salt=SALT, offset=offset)


@given(st.binary(min_size=1, max_size=2_000), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_decoded_frame_equals_the_encoded_one(body: bytes, digest: int, link: int) -> None:
    """Decoding returns every field and the body as encoded."""
    data = encode(body, first_position=5, count=2, digest=digest, link=link, salt=SALT, offset=0).data
    header = decode_header(data, 0, SALT)
    assert header is not None
    masked = stored_body(data, 0, header)
    assert masked is not None
    assert (header.first_position, header.count, header.digest, header.link) == (5, 2, digest, link)
    assert unmask(masked, header) == body


def test_overhead_is_exact() -> None:
    """The size of a frame is the size of its body plus FRAME_OVERHEAD."""
    assert len(encoded(b"x" * 100).data) == 100 + FRAME_OVERHEAD


@pytest.mark.parametrize(("body", "count"), [(b"", 1), (b"x", 0)])
def test_empty_frame_is_a_bug(body: bytes, count: int) -> None:
    """Encoding a frame without a body or without events raises AssertionError."""
    with pytest.raises(AssertionError):
        encode(body, first_position=1, count=count, digest=0, link=0, salt=0, offset=0)


def test_header_of_another_segment_is_not_one() -> None:
    """A header with the salt of another segment is not accepted."""
    assert decode_header(encoded(b"x").data, 0, SALT + 1) is None


def test_payload_that_looks_like_a_frame_is_not_found() -> None:
    """A search finds no header inside a body, even if the masked body looks like one."""
    inner = encode(b"y", first_position=6, count=1, digest=0, link=0, salt=0, offset=0).data
    disguised = bytes(value ^ 0xC1 for value in inner)
    data = encoded(disguised).data
    assert MAGIC in data[1:]
    assert find_header(data, 1, SALT) == -1


def _parts(data: bytes, offset: int) -> list[bytes]:
    """Split a frame at `offset` at sector boundaries."""
    first = SECTOR_BYTES - offset % SECTOR_BYTES
    starts = [0, *range(first, len(data), SECTOR_BYTES)]
    return [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]


def _bits(data: bytes) -> int:
    return int.from_bytes(data, "big").bit_count()


RUNS = st.lists(
    st.tuples(st.sampled_from([0x00, 0xC1, 0x01, 0x02, 0xC0, 0x03]), st.integers(1, 1_600)),
    min_size=1,
    max_size=4,
)


@given(RUNS, st.integers(0, SECTOR_BYTES - 1))
def test_no_part_of_a_frame_in_one_sector_is_nearly_zeros(runs: list[tuple[int, int]], shift: int) -> None:
    """Each sector of a frame has at least two bits set, for any offset and contents."""
    body = b"".join(bytes([value]) * length for value, length in runs)
    offset = SECTOR_BYTES + shift
    data = encoded(body, offset).data
    assert min(_bits(part) for part in _parts(data, offset)) >= 2
    header = decode_header(data, 0, SALT)
    assert header is not None
    assert unmask(stored_body(data, 0, header) or b"", header) == body


def test_end_of_a_header_does_not_stand_in_for_the_body() -> None:
    """If only the last byte of the header is in a sector, it may be zero, so the body in that sector must not be."""
    offset = 2 * SECTOR_BYTES - HEADER_BYTES + 1
    for digest in range(1_500):
        data = encode(b"\xc1" * 600, first_position=1, count=1, digest=digest, link=0, salt=SALT, offset=offset).data
        assert min(_bits(part) for part in _parts(data, offset)) >= 2


@pytest.mark.parametrize("value", [*MAGIC, *TRAILER])
def test_ends_of_a_frame_survive_one_flipped_bit(value: int) -> None:
    """Each byte of magic and trailer has two bits set, because it may be alone in its sector."""
    assert value.bit_count() >= 2
