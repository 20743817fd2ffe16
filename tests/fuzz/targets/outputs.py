"""What jobs and their processes leave behind: the output of a failed one, and messages of a child; both are hostile."""

import msgspec

from holdfast.gateway.http.strict_json import is_json
from holdfast.worker.executors.frames import FROM_CHILD, TO_CHILD
from holdfast.worker.failures import Failure, failure_of


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
        b"\x93\x01\xa1\xff",
    ]


def fuzz(data: bytes) -> None:
    """Reads the bytes as each of them."""
    failure = failure_of(data)
    assert failure_of(msgspec.json.encode(failure)) == failure
    is_json(data)
    for decoder in (FROM_CHILD, TO_CHILD):
        try:
            decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):  # what their readers take for an end
            continue
