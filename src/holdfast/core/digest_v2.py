"""The terms of digest version 2, as docs/internals/journal-format.md specifies them.

A term is the first eight bytes, as a little-endian integer, of a BLAKE2s-256 hash. The input is a sequence of integers
modulo 2⁶⁴, each in eight little-endian bytes, followed by texts, each as its size in bytes (same encoding) and its
UTF-8. Each kind of term except the job's has its own personalization, so that equal inputs of different kinds give
different terms.

The job's term is computed on every transition. It is one block of BLAKE2s without personalization, because passing one
takes longer than the hash.
"""

import struct
from hashlib import blake2s
from zlib import crc32

from holdfast.core.model import Closure, JobRecord, Schedule

_U64_MASK = (1 << 64) - 1
_JOB = struct.Struct("<8Q")
_pack_job = _JOB.pack
_first = struct.Struct("<Q").unpack_from


def job(of: JobRecord, /) -> int:
    """See `DigestTerms`."""
    try:
        block = _pack_job(
            of.number,
            of.state,
            of.token,
            of.not_before_ms,
            of.failures,
            of.losses,
            of.cancel_requested,
            of.finished_ms,
        )
    except struct.error:
        times = of.not_before_ms, of.failures, of.losses, of.cancel_requested, of.finished_ms
        block = _words(of.number, of.state, of.token, *times)
    term: int = _first(blake2s(block).digest())[0]
    return term


def closure(queue: str, of: Closure, /) -> int:
    """See `DigestTerms`."""
    return _term(b"queue", _words(of.mode, of.at_ms), queue, of.reason)


def schedule(of: Schedule, /) -> int:
    """See `DigestTerms`."""
    times = of.created_ms, of.next_ms, of.last_tick_ms
    return _term(b"schedule", _words(*times, of.fired, of.skipped, of.missed, of.is_paused), of.spec.name)


def worker(number: int, name: str, /) -> int:
    """See `DigestTerms`."""
    return _term(b"worker", _words(number), name)


def shared(number: int, /) -> int:
    """See `DigestTerms`."""
    return _term(b"shared", _words(number))


def waiting(of: JobRecord, /) -> int:
    """See `DigestTerms`. The job's number is an order in the bits above 64, and an arrival below them."""
    template = of.template
    words = _words(of.number >> 64, of.number, template.priority, of.created_ms, of.not_before_ms)
    return _term(b"waiting", words, of.id, template.queue, template.route)


def arrivals(count: int, highest_order: int, /) -> int:
    """See `DigestTerms`."""
    return _term(b"arrivals", _words(count, highest_order))


def envelope(texts: tuple[str, str], output: bytes, numbers: tuple[int, int, int], /) -> int:
    """See `DigestTerms`. The output may be large, so only its size and CRC-32 are included."""
    return _term(b"envelope", _words(*numbers, len(output), crc32(output)), *texts)


def _words(*numbers: int) -> bytes:
    return b"".join((number & _U64_MASK).to_bytes(8, "little") for number in numbers)


def _term(kind: bytes, words: bytes, *texts: str) -> int:
    parts = [words]
    for text in texts:
        data = text.encode()
        parts += (_words(len(data)), data)
    term: int = _first(blake2s(b"".join(parts), person=kind).digest())[0]
    return term
