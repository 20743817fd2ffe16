"""Outputs of failed jobs, which clients and the dashboard read as failure descriptions."""

import msgspec

from holdfast import limits
from holdfast.core.failure import Failure, bounded, failure_of, traceback_of
from holdfast.server.http.strict_json import is_json


def seeds() -> list[bytes]:
    """A valid failure description, and invalid ones."""
    good = msgspec.json.encode(Failure("ValueError", "no", "Traceback"))
    return [
        good,
        b"",
        b"{}",
        b'{"type":"\xff"}',
        b'{"x":' + b"[" * 100_000,
        b'{"message":"\\ud800"}',
    ]


def fuzz(data: bytes) -> None:
    """Reads the bytes as a failure description, and checks whether they are JSON."""
    failure = failure_of(data)
    assert failure_of(msgspec.json.encode(failure)) == failure
    assert len(bounded(data)) <= limits.FAILURE_BYTES_MAX
    assert len(traceback_of(data).encode()) <= limits.DETAIL_BYTES_MAX
    is_json(data)
