"""The terms of digest version 1: CPython's `hash` of a tuple of integers. Only files of format version 1 have them.

CPython does not guarantee this hash function, and a 32-bit interpreter computes other values; version 2 exists for this
reason. Texts are included by their CRC-32, because `hash` of a text depends on the hash seed of the process.
"""

from zlib import crc32

from holdfast.core.model import Closure, JobRecord, Schedule


def job(of: JobRecord, /) -> int:
    """See `DigestTerms`."""
    return hash(
        (
            of.number,
            of.state,
            of.token,
            of.not_before_ms,
            of.failures,
            of.losses,
            of.cancel_requested,
            of.finished_ms,
        )
    )


def closure(queue: str, of: Closure, /) -> int:
    """See `DigestTerms`."""
    return hash((crc32(queue.encode()), of.mode, crc32(of.reason.encode()), of.at_ms))


def schedule(of: Schedule, /) -> int:
    """See `DigestTerms`."""
    name = crc32(of.spec.name.encode())
    counters = of.fired, of.skipped, of.missed
    return hash((name, of.created_ms, of.next_ms, of.last_tick_ms, *counters, of.is_paused))


def worker(number: int, name: str, /) -> int:
    """See `DigestTerms`."""
    return hash((number, 1, crc32(name.encode())))


def shared(number: int, /) -> int:
    """See `DigestTerms`."""
    return hash((number, 2))


def waiting(of: JobRecord, /) -> int:
    """See `DigestTerms`."""
    template = of.template
    lane = crc32(f"{template.queue} {template.route}".encode())
    return hash((crc32(of.id.encode()), of.number, lane, template.priority, of.created_ms, of.not_before_ms))


def arrivals(count: int, highest_order: int, /) -> int:
    """See `DigestTerms`."""
    return hash((count, highest_order))


def envelope(texts: tuple[str, str], output: bytes, numbers: tuple[int, int, int], /) -> int:
    """See `DigestTerms`."""
    return hash((*(crc32(text.encode()) for text in texts), crc32(output), len(output), *numbers))
