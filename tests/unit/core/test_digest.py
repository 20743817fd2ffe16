"""The digest that the journal stores with every frame."""

import struct
from hashlib import blake2s
from zlib import crc32

import pytest

from holdfast.core import digest_v1, digest_v2
from holdfast.core.digest import DIGEST_VERSION, terms_of
from holdfast.core.model import Closure, JobRecord, QueueMode, Schedule, ScheduleSpec, Template
from holdfast.core.state import LedgerState
from holdfast.journal import version

COVERED = [
    "number",
    "state",
    "token",
    "not_before_ms",
    "failures",
    "losses",
    "cancel_requested",
    "finished_ms",
]
MODULES = [digest_v1, digest_v2]


def new_job() -> JobRecord:
    return JobRecord("a", Template("echo", "q"), b"", 3, 10, chunk=1)


def specified(kind: bytes, *parts: int | bytes) -> int:
    """Computes a term as the format document specifies: eight-byte numbers, texts with their size, little-endian."""
    data = b"".join(
        struct.pack("<Q", part) if isinstance(part, int) else struct.pack("<Q", len(part)) + part for part in parts
    )
    return int.from_bytes(blake2s(data, person=kind).digest()[:8], "little")


@pytest.mark.parametrize("terms", MODULES, ids=["v1", "v2"])
@pytest.mark.parametrize("field", COVERED)
def test_term_covers_each_field_that_can_change(field: str, terms: type) -> None:
    """Two jobs that differ in only one of these fields have different terms."""
    job = new_job()
    before = terms.job(job)  # type: ignore[attr-defined]
    setattr(job, field, getattr(job, field) + 1)
    assert terms.job(job) != before  # type: ignore[attr-defined]


def test_journal_and_core_agree_on_the_version() -> None:
    """The journal writes the digest version that the core computes into its headers."""
    assert DIGEST_VERSION == version.DIGEST_VERSION
    assert terms_of(DIGEST_VERSION) is digest_v2


def test_terms_are_those_of_the_document() -> None:
    """Each kind of term equals a second computation that follows the document on the format."""
    closure = Closure(QueueMode.PAUSED, "why", 7)
    schedule = Schedule(ScheduleSpec("nightly", Template("echo")), 1, 2, 3, "a", 4, 5, 6, is_paused=True)
    job = new_job()
    waiting = JobRecord("a", Template("r", "q", 4), b"", (9 << 64) + 8, 10, 11)
    assert digest_v2.job(job) == specified(b"", 3, 1, 0, 0, 0, 0, 0, 0)
    assert digest_v2.closure("q", closure) == specified(b"queue", 2, 7, b"q", b"why")
    assert digest_v2.schedule(schedule) == specified(b"schedule", 1, 2, 3, 4, 5, 6, 1, b"nightly")
    assert digest_v2.worker(3, "w") == specified(b"worker", 3, b"w")
    assert digest_v2.shared(3) == specified(b"shared", 3)
    assert digest_v2.waiting(waiting) == specified(b"waiting", 9, 8, 4, 10, 11, b"a", b"q", b"r")
    assert digest_v2.arrivals(5, 6) == specified(b"arrivals", 5, 6)
    expected = specified(b"envelope", 3, 5, 8, 1, crc32(b"o"), b"a", b"s")
    assert digest_v2.envelope(("a", "s"), b"o", (3, 5, 8)) == expected


def test_job_term_is_pinned() -> None:
    """The term of a job is part of the format on disk, so that another value needs a new version of both."""
    assert digest_v2.job(new_job()) == 11_910_701_731_704_306_713


def test_numbers_wrap_at_64_bits() -> None:
    """Numbers count modulo 2⁶⁴, so that an event with any number can be applied."""
    job = new_job()
    job.not_before_ms, job.finished_ms = -1, 1 << 64
    assert digest_v2.job(job) == specified(b"", 3, 1, 0, (1 << 64) - 1, 0, 0, 0, 0)


def test_terms_of_version_1_are_as_they_were() -> None:
    """Files of format version 1 are compared by the function that wrote them."""
    assert digest_v1.job(new_job()) == hash((3, 1, 0, 0, 0, 0, False, 0))
    closure = Closure(QueueMode.PAUSED, "why", 7)
    assert digest_v1.closure("q", closure) == hash((crc32(b"q"), 2, crc32(b"why"), 7))


def test_rehash_gives_the_digest_that_the_other_version_has() -> None:
    """A state that changes to another digest version has the same digest as a state that always had that version."""
    books = LedgerState(digest_version=1), LedgerState(digest_version=2)
    for state in books:
        state.set_mode("q", Closure(QueueMode.PAUSED, "why", 7))
        state.put_schedule(Schedule(ScheduleSpec("nightly", Template("echo")), 1, 2))
        job = new_job()
        state.jobs[job.id] = job
        job.chunk = state.listing.chunk_for(10)
        state.touch(job)
    old, new = books
    assert old.digest != new.digest
    old.rehash(2)
    assert (old.digest, old.jobs["a"].mark) == (new.digest, new.jobs["a"].mark)
