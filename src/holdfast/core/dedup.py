"""Which job a request key stands for.

First in, first out: looking a key up changes nothing, so a read needs no event. A key goes with its job; where
`keys_max` is set (storage in memory), the oldest key goes when a new one needs its place.
"""

from holdfast.core.model import Job


class Dedup:
    """Request keys and their jobs, oldest first."""

    __slots__ = ("_jobs", "keys_max")

    def __init__(self, keys_max: int = 0) -> None:
        self._jobs: dict[str, Job] = {}
        self.keys_max = keys_max

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, key: str) -> Job | None:
        """The job that this key stands for, as long as the key is kept."""
        return self._jobs.get(key)

    def add(self, key: str, job: Job) -> None:
        """From now on the key stands for this job."""
        self._jobs[key] = job
        if self.keys_max and len(self._jobs) > self.keys_max:
            del self._jobs[next(iter(self._jobs))]

    def remove(self, key: str, job: Job) -> None:
        """The job is gone and takes its key along, unless the key stands for a newer one."""
        if self._jobs.get(key) is job:
            del self._jobs[key]
