"""Every request and every job of a trial: columns of numbers, about thirty bytes a row.

Times are nanoseconds of the machine's monotonic clock, which all processes share, so that the rows of several client
processes can be concatenated.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import msgspec

OK = 0


class Request(NamedTuple):
    """One call. `intended` is when it should have begun; in a closed loop that is when it began."""

    method: int
    code: int
    node: int
    intended: int
    start: int
    end: int


class JobRun(NamedTuple):
    """One life cycle. `finished` is the time that the topology reported, on the same clock; 0 without a known end."""

    intended: int
    accepted: int
    finished: int
    seen: int
    #: A status of the contract, GIVEN_UP or LOST.
    status: int
    node: int


#: The job had not ended when the load ended.
GIVEN_UP = 100
#: The job was accepted, and later its owner did not know it.
LOST = 101

_REQUEST_TYPES = "BBBqqq"
_JOB_TYPES = "qqqqBB"


class Packed(msgspec.Struct, frozen=True):
    """Rows on the wire and on disk: one byte string for each column."""

    requests: list[bytes]
    jobs: list[bytes]


class Records:
    """Rows, stored as columns."""

    def __init__(self) -> None:
        self._requests = [array(code) for code in _REQUEST_TYPES]
        self._jobs = [array(code) for code in _JOB_TYPES]

    def add_request(self, request: Request) -> None:
        for column, value in zip(self._requests, request, strict=True):
            column.append(value)

    def add_job(self, job: JobRun) -> None:
        for column, value in zip(self._jobs, job, strict=True):
            column.append(value)

    def requests(self) -> Iterator[Request]:
        return map(Request._make, zip(*self._requests, strict=True))

    def jobs(self) -> Iterator[JobRun]:
        return map(JobRun._make, zip(*self._jobs, strict=True))

    def pack(self) -> Packed:
        return Packed([column.tobytes() for column in self._requests], [column.tobytes() for column in self._jobs])

    @classmethod
    def merged(cls, parts: Iterable[Packed]) -> Self:
        """The rows of all parts."""
        records = cls()
        for part in parts:
            for column, data in zip(records._requests, part.requests, strict=True):
                column.frombytes(data)
            for column, data in zip(records._jobs, part.jobs, strict=True):
                column.frombytes(data)
        return records
