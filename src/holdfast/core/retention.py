"""The finished jobs in the order of their ends, and the rule for removing them.

Invariants:
- Failed jobs have an age limit of their own. The limits of number and bytes apply to all finished jobs together.
- Above a limit of number or bytes, the oldest jobs that did not fail are removed first, because failures are what users
  look up later. Failed jobs are removed first if they take more than half of the limit, so that many failures do not
  displace all other results.
- The order over all finished jobs is kept, because events of earlier versions remove the oldest job whatever its state.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.core.commands import Evict
from holdfast.core.footprint import held_bytes
from holdfast.core.lifecycle import FAILED
from holdfast.core.model import JobRecord

#: One event removes at most this many jobs, because other commands wait for it.
EVICT_JOBS_MAX = 1_000


class FinishedJobs:
    """Two lines of finished jobs, failed ones and others, each in the order of their ends."""

    __slots__ = ("_others_ever", "bytes_held", "failed", "failed_bytes", "others")

    def __init__(self) -> None:
        self.others: deque[JobRecord] = deque()
        #: Each with the number of other jobs that had ended before it: its place in the order over all.
        self.failed: deque[tuple[int, JobRecord]] = deque()
        self._others_ever = 0
        self.bytes_held = 0
        self.failed_bytes = 0

    def __len__(self) -> int:
        return len(self.others) + len(self.failed)

    def __iter__(self) -> Iterator[JobRecord]:
        """All finished jobs, in the order of their ends."""
        place = self._others_ever - len(self.others)
        failed = iter(self.failed)
        before, waiting = next(failed, (0, None))
        for job in self.others:
            while waiting is not None and before <= place:
                yield waiting
                before, waiting = next(failed, (0, None))
            yield job
            place += 1
        while waiting is not None:
            yield waiting
            before, waiting = next(failed, (0, None))

    def append(self, job: JobRecord) -> None:
        """Adds a job that has just ended."""
        job.bytes_held = size = held_bytes(job)
        self.bytes_held += size
        if job.state == FAILED:
            self.failed.append((self._others_ever, job))
            self.failed_bytes += size
        else:
            self.others.append(job)
            self._others_ever += 1

    def pop_other(self) -> JobRecord:
        """Removes the oldest job that did not fail."""
        job = self.others.popleft()
        self.bytes_held -= job.bytes_held
        return job

    def pop_failed(self) -> JobRecord:
        """Removes the oldest failed job."""
        _, job = self.failed.popleft()
        self.bytes_held -= job.bytes_held
        self.failed_bytes -= job.bytes_held
        return job

    def pop_oldest(self) -> JobRecord:
        """Removes the oldest job."""
        place = self._others_ever - len(self.others)
        is_failed = bool(self.failed) and (not self.others or self.failed[0][0] <= place)
        return self.pop_failed() if is_failed else self.pop_other()

    def remove(self, job: JobRecord) -> None:
        """Removes any job; slow, for rare cases."""
        kept = FinishedJobs()
        for one in self:
            if one is not job:
                kept.append(one)
        assert len(kept) < len(self)
        self.others, self.failed, self._others_ever = kept.others, kept.failed, kept._others_ever
        self.bytes_held, self.failed_bytes = kept.bytes_held, kept.failed_bytes

    def audit(self) -> None:
        """Checks that every job is in the right line, and that the bytes add up; slow, for tests."""
        assert all(job.state != FAILED for job in self.others)
        assert all(job.state == FAILED for _, job in self.failed)
        assert self.bytes_held == sum(job.bytes_held for job in self)
        assert self.failed_bytes == sum(job.bytes_held for _, job in self.failed)


class RetentionLine:
    """One line of finished jobs, oldest first: the remaining number and bytes during a decision."""

    __slots__ = ("_ends", "_head", "_retain_ms", "bytes_left", "left", "taken")

    def __init__(self, ends: Iterable[tuple[int, int]], *, left: int, bytes_left: int, retain_ms: int) -> None:
        """`ends` are pairs of an end time and the bytes that the job holds."""
        self._ends = iter(ends)
        self._retain_ms = retain_ms
        self._head = next(self._ends, None)
        self.left, self.bytes_left, self.taken = left, bytes_left, 0

    def is_old(self, now_ms: int) -> bool:
        """Whether the oldest remaining job is past its age limit."""
        return self._head is not None and self._head[0] + self._retain_ms <= now_ms

    def take(self) -> None:
        """Counts the oldest remaining job as removed."""
        assert self._head is not None
        self.left, self.bytes_left, self.taken = self.left - 1, self.bytes_left - self._head[1], self.taken + 1
        self._head = next(self._ends, None)


class RetentionLimits(msgspec.Struct, frozen=True):
    """The limits of number and bytes for both lines together."""

    jobs: int
    bytes: int


def take_from(others: RetentionLine, failed: RetentionLine, room: RetentionLimits, now_ms: int, at_most: int) -> None:
    """Takes jobs from both lines while they exceed a limit of age, number or bytes."""
    while others.taken + failed.taken < at_most:
        line = _next_to_go(others, failed, room, now_ms)
        if line is None:
            break
        line.take()


def _next_to_go(
    others: RetentionLine, failed: RetentionLine, room: RetentionLimits, now_ms: int
) -> RetentionLine | None:
    for line in (others, failed):
        if line.is_old(now_ms):
            return line
    left, bytes_left = others.left + failed.left, others.bytes_left + failed.bytes_left
    if not left or (left <= room.jobs and bytes_left <= room.bytes):
        return None
    is_flood = 2 * failed.left > room.jobs or 2 * failed.bytes_left > room.bytes
    return failed if failed.left and (is_flood or not others.left) else others


def to_forget(finished: FinishedJobs, retention: Evict, now_ms: int) -> tuple[int, int]:
    """The numbers of oldest jobs to remove now: of those that did not fail, and of those that failed."""
    others = RetentionLine(
        ((job.finished_ms, job.bytes_held) for job in finished.others),
        left=len(finished.others),
        bytes_left=finished.bytes_held - finished.failed_bytes,
        retain_ms=retention.retain_ms,
    )
    failed = RetentionLine(
        ((job.finished_ms, job.bytes_held) for _, job in finished.failed),
        left=len(finished.failed),
        bytes_left=finished.failed_bytes,
        retain_ms=retention.retain_failed_ms,
    )
    take_from(others, failed, RetentionLimits(retention.retain_jobs, retention.retain_bytes), now_ms, EVICT_JOBS_MAX)
    return others.taken, failed.taken


def wait_ms(finished: FinishedJobs, retention: Evict, now_ms: int) -> int | None:
    """The time until jobs may have to be removed: 0 or less for now, None if there are no finished jobs."""
    others, failed = finished.others, finished.failed
    if len(others) + len(failed) > retention.retain_jobs or finished.bytes_held > retention.retain_bytes:
        return 0
    other_ms = others[0].finished_ms + retention.retain_ms - now_ms if others else None
    if not failed:
        return other_ms
    failed_ms = failed[0][1].finished_ms + retention.retain_failed_ms - now_ms
    return failed_ms if other_ms is None else min(other_ms, failed_ms)
