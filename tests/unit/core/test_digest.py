"""The digest that the journal stores with every frame."""

from zlib import crc32

import pytest

from holdfast.core.book import closure_fingerprint, fingerprint
from holdfast.core.model import Closure, Job, QueueMode, Template

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


@pytest.mark.parametrize("field", COVERED)
def test_fingerprint_covers_what_can_change(field: str) -> None:
    """Two jobs that differ in one of these fields alone have different fingerprints."""
    job = Job("a", Template("echo"), b"", 3, 1, 10)
    before = fingerprint(job)
    setattr(job, field, getattr(job, field) + 1)
    assert fingerprint(job) != before


def test_fingerprint_of_a_mode_is_pinned() -> None:
    """The same in every process, whatever its hash seed: texts go in by their checksum."""
    closure = Closure(QueueMode.PAUSED, "why", 7)
    assert closure_fingerprint("q", closure) == hash((crc32(b"q"), 2, crc32(b"why"), 7))


def test_fingerprint_is_pinned() -> None:
    """The value is part of the on-disk format: changing it means a new DIGEST_VERSION."""
    assert fingerprint(Job("a", Template("echo"), b"", 3, 1, 10)) == hash((3, 1, 0, 0, 0, 0, False, 0))
