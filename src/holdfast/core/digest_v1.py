"""The terms of digest version 1: CPython's `hash` of a tuple of integers. Only files of format version 1 have them.

CPython promises this function to nobody, and an interpreter of 32 bits computes another one. That is why there is a
version 2. Texts go in by their CRC-32, because their own hash depends on the process's seed.
"""

from zlib import crc32

from holdfast.core.model import Closure, Job, Schedule


def job(of: Job, /) -> int:
    """See `Terms`."""
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
    """See `Terms`."""
    return hash((crc32(queue.encode()), of.mode, crc32(of.reason.encode()), of.at_ms))


def schedule(of: Schedule, /) -> int:
    """See `Terms`."""
    name = crc32(of.spec.name.encode())
    counters = of.fired, of.skipped, of.missed
    return hash((name, of.created_ms, of.next_ms, of.last_tick_ms, *counters, of.is_paused))


def worker(number: int, name: str, /) -> int:
    """See `Terms`."""
    return hash((number, 1, crc32(name.encode())))


def shared(number: int, /) -> int:
    """See `Terms`."""
    return hash((number, 2))


def waiting(of: Job, /) -> int:
    """See `Terms`."""
    template = of.template
    lane = crc32(f"{template.queue} {template.route}".encode())
    return hash((crc32(of.id.encode()), of.number, lane, template.priority, of.created_ms, of.not_before_ms))


def arrivals(count: int, highest_order: int, /) -> int:
    """See `Terms`."""
    return hash((count, highest_order))


def envelope(texts: tuple[str, str], output: bytes, numbers: tuple[int, int, int], /) -> int:
    """See `Terms`."""
    return hash((*(crc32(text.encode()) for text in texts), crc32(output), len(output), *numbers))
