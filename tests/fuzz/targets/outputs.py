"""What jobs leave behind: the output of a failed one, which whoever looks at it reads."""

import msgspec

from holdfast import limits
from holdfast.core.failure import Failure, bounded, failure_of, traceback_of
from holdfast.server.http.strict_json import is_json


def seeds() -> list[bytes]:
    """Failures as they are written, and others."""
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
    """Reads the bytes as what is known of a failure, and asks whether they can be shown."""
    failure = failure_of(data)
    assert failure_of(msgspec.json.encode(failure)) == failure
    assert len(bounded(data)) <= limits.FAILURE_BYTES_MAX
    assert len(traceback_of(data).encode()) <= limits.DETAIL_BYTES_MAX
    is_json(data)
