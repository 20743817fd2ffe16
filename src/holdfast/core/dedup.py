"""The jobs of request ids, for deduplication of submissions.

Keys are kept in insertion order, and a lookup changes nothing, so a read needs no event. A key is removed together with
its job. If `keys_max` is set (storage in memory), the oldest key is removed when there are more than `keys_max`.
"""

from holdfast.core.model import JobRecord


class Dedup:
    """Request ids and their jobs, oldest first."""

    __slots__ = ("_jobs", "keys_max")

    def __init__(self, keys_max: int = 0) -> None:
        self._jobs: dict[str, JobRecord] = {}
        self.keys_max = keys_max

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, key: str) -> JobRecord | None:
        """The job with this request id, as long as the key is kept."""
        return self._jobs.get(key)

    def add(self, key: str, job: JobRecord) -> None:
        """Maps the key to this job."""
        self._jobs[key] = job
        if self.keys_max and len(self._jobs) > self.keys_max:
            del self._jobs[next(iter(self._jobs))]

    def remove(self, key: str, job: JobRecord) -> None:
        """Removes the key of a removed job, unless the key now belongs to a newer job."""
        if self._jobs.get(key) is job:
            del self._jobs[key]
