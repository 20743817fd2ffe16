"""The digests that the journal stores, by version.

A digest is the sum, modulo 2⁶⁴, of one term for each item of a state. The version defines the terms:

- 2, of format version 2: `core/digest_v2.py`, specified byte by byte in docs/internals/journal-format.md.
- 1, of format version 1: `core/digest_v1.py`. It is computed only while files of that version are read.

A state computes one version at a time. `rehash` of a state or of a machine switches to another version, at the cost of
one term for each item. This happens when a replay passes from files of one version to files of the next.
"""

from typing import Protocol

from holdfast.core import digest_v1, digest_v2
from holdfast.core.model import Closure, JobRecord, Schedule

#: The version that is written. A new digest version requires a new format version: see journal/version.py.
DIGEST_VERSION = 2
DIGEST_MASK = (1 << 64) - 1


class DigestTerms(Protocol):
    """The terms of one version. A term has the same value in every process."""

    def job(self, job: JobRecord, /) -> int:
        """The mutable fields of a job."""
        ...

    def closure(self, queue: str, closure: Closure, /) -> int:
        """A queue that is not open."""
        ...

    def schedule(self, schedule: Schedule, /) -> int:
        """The mutable fields of a schedule."""
        ...

    def worker(self, number: int, worker: str, /) -> int:
        """The worker that runs the job with this number."""
        ...

    def shared(self, number: int, /) -> int:
        """A job that a second submission has matched."""
        ...

    def waiting(self, job: JobRecord, /) -> int:
        """A job that waits in the queue service."""
        ...

    def arrivals(self, count: int, highest_order: int, /) -> int:
        """The two counters of the queue service."""
        ...

    def envelope(self, texts: tuple[str, str], output: bytes, numbers: tuple[int, int, int], /) -> int:
        """An envelope. Texts: job id and summary. Numbers: state, runtime and time of storing."""
        ...


_TERMS: dict[int, DigestTerms] = {1: digest_v1, 2: digest_v2}


def terms_of(version: int) -> DigestTerms:
    """The terms of a digest version."""
    return _TERMS[version]
