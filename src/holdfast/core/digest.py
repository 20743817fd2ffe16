"""The hash behind the digests that the journal stores, by version.

A digest is a sum, modulo 2⁶⁴, of one term for each thing that a state holds. A version says what the terms are:

- 2, of format version 2: `core/digest_v2.py`, specified byte by byte in docs/internals/journal-format.md.
- 1, of format version 1: `core/digest_v1.py`. It is computed only while files of that version are read.

A state computes one version at a time. `rehash` of a book or of a machine goes over to another one, at the cost of one
term for each thing held; that happens where a replay crosses from files of one version into those of the next.
"""

from typing import Protocol

from holdfast.core import digest_v1, digest_v2
from holdfast.core.model import Closure, Job, Schedule

#: What is written. A new version of the digest is a new version of the format: see journal/version.py.
DIGEST_VERSION = 2
DIGEST_MASK = (1 << 64) - 1


class DigestTerms(Protocol):
    """The terms of one version, each equal in every process."""

    def job(self, job: Job, /) -> int:
        """What can change about a job of a book."""
        ...

    def closure(self, queue: str, closure: Closure, /) -> int:
        """A queue that is not open."""
        ...

    def schedule(self, schedule: Schedule, /) -> int:
        """What can change about a schedule."""
        ...

    def worker(self, number: int, worker: str, /) -> int:
        """The worker that runs the job with this number."""
        ...

    def shared(self, number: int, /) -> int:
        """A job that a second submission has found."""
        ...

    def waiting(self, job: Job, /) -> int:
        """A job that waits in a line."""
        ...

    def arrivals(self, count: int, highest_order: int, /) -> int:
        """The two counters of a line."""
        ...

    def envelope(self, texts: tuple[str, str], output: bytes, numbers: tuple[int, int, int], /) -> int:
        """An envelope: its job's id and its summary, its output, its state, runtime and the time of its storing."""
        ...


_TERMS: dict[int, DigestTerms] = {1: digest_v1, 2: digest_v2}


def terms_of(version: int) -> DigestTerms:
    """The terms of a version of which there are files."""
    return _TERMS[version]
