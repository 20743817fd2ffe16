"""The digest that the journal stores with every frame."""

import pytest

from holdfast.core.book import fingerprint
from holdfast.core.model import Job, Template

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


def test_fingerprint_is_pinned() -> None:
    """The value is part of the on-disk format: changing it means a new DIGEST_VERSION."""
    assert fingerprint(Job("a", Template("echo"), b"", 3, 1, 10)) == hash((3, 1, 0, 0, 0, 0, False, 0))
