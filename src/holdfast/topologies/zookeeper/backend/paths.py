"""The paths of all nodes: the layout of decision 0013, as functions.

Invariants: only this module builds and parses names; names sort in the order in which they are processed.
"""

import hashlib
from typing import NamedTuple

from holdfast import limits
from holdfast.core.model import Template

#: Version of the layout; changes with the layout or with the format of a record.
LAYOUT = b"1"

_MINUTE_MS = 60_000
_ID_CHARS = 36
_SEQUENCE_CHARS = 10
#: The first bucket of every lane: jobs that were taken and returned.
BACK = "back"
_SHARDS = [f"{number:02x}" for number in range(256)]


class NodeLane(NamedTuple):
    """The queue, route and priority that waiting jobs have in common."""

    queue: str
    route: str
    priority: int

    @property
    def name(self) -> str:
        """The name of the node; more urgent lanes of a queue and a route sort first."""
        return f"{self.queue}:{self.route}:{limits.PRIORITY_MAX - self.priority:02d}"


def lane_of(template: Template) -> NodeLane:
    return NodeLane(template.queue, template.route, template.priority)


def lane_named(name: str) -> NodeLane:
    queue, route, rank = name.split(":")
    return NodeLane(queue, route, limits.PRIORITY_MAX - int(rank))


class Posting(NamedTuple):
    """A waiting job, as parsed from the name of its node."""

    #: Its first place: the number of the bucket, and the sequence number in it.
    place: tuple[int, int]
    job_id: str
    bucket: str
    name: str


def bucket_name(number: int) -> str:
    return f"b-{number:010d}"


def bucket_number(name: str) -> int:
    return -1 if name == BACK else int(name[2:])


def posting_named(bucket: str, name: str) -> Posting:
    job_id = name[-_ID_CHARS - 1 - _SEQUENCE_CHARS : -1 - _SEQUENCE_CHARS]
    if bucket == BACK:
        first, _, second = name[: 2 * _SEQUENCE_CHARS + 1].partition(".")
        place = (int(first), int(second))
    else:
        place = (bucket_number(bucket), sequence_of(name))
    return Posting(place, job_id, bucket, name)


def sequence_of(name: str) -> int:
    return int(name[-_SEQUENCE_CHARS:])


def minute_of(at_ms: int) -> str:
    return f"{at_ms // _MINUTE_MS:010d}"


def minute_start_ms(minute: str) -> int:
    return int(minute) * _MINUTE_MS


def due_of(name: str) -> tuple[int, str]:
    """Returns the time and the job id in a name that `dated` has made."""
    at_ms, _, job_id = name.partition("-")
    return int(at_ms), job_id


def dated(at_ms: int, job_id: str) -> str:
    """Returns a name that sorts by time; `due_of` parses it."""
    return f"{at_ms:015d}-{job_id}"


class Paths:
    """Builds all paths below one root."""

    def __init__(self, root: str) -> None:
        self.root = "/" + root.strip("/")
        base = "" if self.root == "/" else self.root
        self.layout, self.clock = f"{base}/layout", f"{base}/clock"
        self._jobs, self._keys, self._unique = f"{base}/jobs", f"{base}/keys", f"{base}/unique"
        self.waiting, self.delayed, self.ended = f"{base}/waiting", f"{base}/delayed", f"{base}/ended"
        self.held, self.asked, self.workers = f"{base}/held", f"{base}/asked", f"{base}/workers"
        #: FAILED jobs by the time of their end; `ended` has all other ended jobs.
        self.failed = f"{base}/failed"
        #: Retention of both; created by the first gateway.
        self.retention = f"{base}/retention"
        self.lines, self.stewards, self.index = f"{base}/lines", f"{base}/stewards", f"{base}/index"

    def fixed(self) -> list[str]:
        """Returns the nodes that always exist, parents first."""
        tops = [self._jobs, self._keys, self._unique, self.waiting, self.delayed, self.ended]
        tops += [self.held, self.asked, self.workers, self.lines, self.stewards, self.index, self.clock, self.failed]
        shards = [f"{top}/{shard}" for top in (self._jobs, self._keys, self._unique) for shard in _SHARDS]
        return [*tops, *shards]

    def parents(self) -> list[str]:
        """Returns the root and its ancestors, topmost first."""
        parts = [part for part in self.root.split("/") if part]
        return ["/" + "/".join(parts[: number + 1]) for number in range(len(parts))]

    def record(self, job_id: str) -> str:
        return f"{self._jobs}/{job_id[:2]}/{job_id}"

    def payload(self, job_id: str) -> str:
        return f"{self.record(job_id)}/payload"

    def bid(self, job_id: str) -> str:
        return f"{self.record(job_id)}/bid"

    def executions(self, job_id: str) -> str:
        return f"{self.record(job_id)}/executions"

    def result(self, job_id: str) -> str:
        return f"{self.record(job_id)}/result"

    def key(self, request_id: str) -> str:
        return _hashed(self._keys, request_id)

    def unique(self, job_type: str, unique_key: str) -> str:
        return _hashed(self._unique, f"{job_type}\0{unique_key}")

    def lane(self, lane: NodeLane) -> str:
        return f"{self.waiting}/{lane.name}"

    def bucket(self, lane: NodeLane, bucket: str) -> str:
        return f"{self.waiting}/{lane.name}/{bucket}"

    def posting(self, lane: NodeLane, posting: Posting) -> str:
        return f"{self.bucket(lane, posting.bucket)}/{posting.name}"

    def delayed_job(self, due_ms: int, job_id: str) -> str:
        return f"{self.delayed}/{minute_of(due_ms)}/{dated(due_ms, job_id)}"

    def indexed(self, created_ms: int, job_id: str) -> str:
        return f"{self.index}/{minute_of(created_ms)}/{dated(created_ms, job_id)}"

    def ended_job(self, ended_ms: int, job_id: str) -> str:
        return f"{self.ended}/{minute_of(ended_ms)}/{dated(ended_ms, job_id)}"

    def failed_job(self, ended_ms: int, job_id: str) -> str:
        return f"{self.failed}/{minute_of(ended_ms)}/{dated(ended_ms, job_id)}"

    # The prefix is needed because "." and ".." are valid worker ids, but not valid node names.

    def worker(self, worker_id: str) -> str:
        return f"{self.workers}/w:{worker_id}"

    def held_by(self, worker_id: str) -> str:
        return f"{self.held}/w:{worker_id}"

    def asked_of(self, worker_id: str) -> str:
        return f"{self.asked}/w:{worker_id}"

    def line(self, kind: str) -> str:
        return f"{self.lines}/{kind}"


def worker_named(name: str) -> str:
    return name.removeprefix("w:")


def _hashed(top: str, key: str) -> str:
    digest = hashlib.sha256(key.encode()).hexdigest()[:40]
    return f"{top}/{digest[:2]}/{digest}"
