"""The line of jobs that wait: the state of the queue service.

Invariants:
- An id waits at most once. Who comes while it waits changes nothing.
- Order within a lane (one queue, one route, one priority) is the job's `order`, whenever it comes: a job that comes
  back takes its old place, and jobs may come out of order from several gateways. A job without one stands behind all
  that came before it. Between lanes the rule is the ledger's, `aging_ms` included.
- What left is forgotten: nothing is held but what waits, and two counters.
- Only `apply` changes a line; replay of the same events gives an equal one. `digest` is a sum over what waits of a hash
  that is equal in every process.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.core.digest import DIGEST_MASK, DIGEST_VERSION, terms_of
from holdfast.core.lane_order import Wanted
from holdfast.core.model import SIM_TYPE, Job, Template
from holdfast.core.ready_queue import ReadyQueue
from holdfast.core.unreadable import reading, unreadable
from holdfast.errors import Code

_ROWS_PER_CHUNK = 5_000
_TEMPLATES_MAX = 10_000
#: A place is the order in the high bits and the arrival in the low ones, so that no two jobs have the same.
_ARRIVAL_BITS = 64
_ARRIVAL_MASK = (1 << _ARRIVAL_BITS) - 1


class WaitingTicket(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job that is to wait. The defaults are those of a caller that knows only the frozen fields."""

    job_id: str
    queue: str = limits.QUEUE_DEFAULT
    #: What a worker must know to run it.
    route: str = SIM_TYPE
    priority: int = limits.PRIORITY_DEFAULT
    #: Its place among all jobs; 0: behind all that have come.
    order: int = 0
    not_before_ms: int = 0
    #: Since when its waiting counts; 0, or a time to come: from now on.
    since_ms: int = 0


# The tags and the order of fields are part of the format on disk, as in core/events.py.


class _Event(msgspec.Struct, frozen=True, array_like=True):
    at_ms: int


class Enqueued(_Event, frozen=True, tag=1):
    """A job waits from now on."""

    ticket: WaitingTicket


class Dequeued(_Event, frozen=True, tag=2):
    """A job was handed to the coordinator, for a worker, and waits no longer."""

    job_id: str
    worker: str


class Removed(_Event, frozen=True, tag=3):
    """A job waits no longer, and was handed to nobody."""

    job_id: str


LineEvent = Enqueued | Dequeued | Removed


class _Head(msgspec.Struct, frozen=True, array_like=True):
    arrivals: int
    highest_order: int
    digest: int


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    ticket: WaitingTicket
    arrival: int


class _Chunk(msgspec.Struct, frozen=True, array_like=True):
    """The head alone, or rows. Parts are only ever added at the end, with a default."""

    head: _Head | None = None
    rows: list[_Row] = []


_encoder = msgspec.msgpack.Encoder()
_event_decoder: msgspec.msgpack.Decoder[LineEvent] = msgspec.msgpack.Decoder(LineEvent)
_chunk_decoder = msgspec.msgpack.Decoder(_Chunk)


class WaitingJobs:
    """What waits, and who is next. `decide` methods change nothing and give the event to apply, or none."""

    __slots__ = (
        "_arrivals",
        "_highest_order",
        "_jobs",
        "_ready",
        "_sum",
        "_templates",
        "_terms",
        "aging_ms",
        "digest_version",
    )

    def __init__(self, aging_ms: int) -> None:
        self.aging_ms = aging_ms
        self.digest_version = DIGEST_VERSION
        self._terms = terms_of(DIGEST_VERSION)
        self._clear()

    def _clear(self) -> None:
        #: In the order of arrival, which is that of the image.
        self._jobs: dict[str, Job] = {}
        self._ready = ReadyQueue()
        self._arrivals = 0
        self._highest_order = 0
        self._sum = 0
        self._templates: dict[Template, Template] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    @property
    def digest(self) -> int:
        """A hash of the whole state, equal in every process."""
        return (self._sum + self._terms.arrivals(self._arrivals, self._highest_order)) & DIGEST_MASK

    def rehash(self, version: int) -> None:
        """Goes over to a version of the digest."""
        if version == self.digest_version:
            return
        self.digest_version = version
        self._terms = terms_of(version)
        for job in self._jobs.values():
            job.mark = self._terms.waiting(job)
        self._sum = sum(job.mark for job in self._jobs.values())

    # -- decisions

    def decide_enqueue(self, ticket: WaitingTicket, now_ms: int) -> Enqueued | Refusal | None:
        """None if it waits already."""
        if not 0 <= ticket.not_before_ms <= now_ms + 2 * limits.DELAY_MS_MAX:
            # Twice what its owner allows: the two clocks may differ, and the owner has decided.
            return Refusal(Code.INVALID_ARGUMENT, "DELAY_TOO_LONG", "expected the job to be due within a year")
        if ticket.job_id in self._jobs:
            return None
        if len(self._jobs) >= limits.JOBS_HELD_MAX:
            return _exhausted(f"the limit of {limits.JOBS_HELD_MAX} waiting jobs is reached; try again later")
        lanes = self._ready.lanes
        if len(lanes) >= limits.LANES_MAX and (ticket.queue, ticket.route, ticket.priority) not in lanes:
            return _exhausted(f"the limit of {limits.LANES_MAX} kinds of waiting jobs is reached; use fewer queues")
        since_ms = min(ticket.since_ms or now_ms, now_ms)
        return Enqueued(now_ms, msgspec.structs.replace(ticket, since_ms=since_ms))

    def decide_dequeue(self, worker: str, wanted: Wanted | None, now_ms: int) -> Dequeued | None:
        """The next job that fits and is due; whatever comes where nothing is said of what is wanted."""
        jobs = self._ready.choose(wanted, 1, self.aging_ms, now_ms)
        return Dequeued(now_ms, jobs[0].id, worker) if jobs else None

    def decide_remove(self, job_id: str, now_ms: int) -> Removed | None:
        """None if it does not wait."""
        return Removed(now_ms, job_id) if job_id in self._jobs else None

    # -- application

    def apply(self, event: LineEvent) -> None:
        """What was decided happens."""
        if isinstance(event, Enqueued):
            ticket = event.ticket
            self._arrivals += 1
            self._highest_order = max(self._highest_order, ticket.order)
            self._put(ticket, ticket.order or self._highest_order, self._arrivals, event.at_ms)
        else:
            job = self._jobs.pop(event.job_id)
            self._ready.take(job)
            self._sum -= job.mark

    def _put(self, ticket: WaitingTicket, order: int, arrival: int, now_ms: int) -> None:
        assert ticket.job_id not in self._jobs
        template = self._intern(Template(ticket.route, ticket.queue, ticket.priority))
        place = order << _ARRIVAL_BITS | arrival
        job = Job(ticket.job_id, template, b"", place, ticket.since_ms, ticket.not_before_ms)
        job.mark = self._terms.waiting(job)
        self._sum += job.mark
        self._jobs[job.id] = job
        self._ready.put_back(job, now_ms)

    def _intern(self, template: Template) -> Template:
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        return self._templates.setdefault(template, template)

    # -- bytes

    def encode(self, event: LineEvent) -> bytes:
        """An event for the journal."""
        return _encoder.encode(event)

    def decode(self, data: bytes) -> LineEvent:
        """Raises `msgspec.ValidationError` for what no version ever wrote."""
        try:
            return _event_decoder.decode(data)
        except (UnicodeDecodeError, RecursionError) as error:
            raise unreadable(error) from error

    def empty(self) -> "WaitingJobs":
        """Another one, without any event."""
        return WaitingJobs(self.aging_ms)

    def image(self) -> Iterator[bytes]:
        """The state in chunks of bounded size; equal states give equal bytes."""
        yield _encoder.encode(_Chunk(_Head(self._arrivals, self._highest_order, self.digest)))
        jobs = iter(self._jobs.values())
        while part := list(islice(jobs, _ROWS_PER_CHUNK)):
            yield _encoder.encode(_Chunk(rows=[_row(job) for job in part]))

    @reading()
    def restore(self, chunks: Iterable[bytes]) -> None:
        """The state becomes that of the image; raises `msgspec.ValidationError` for bytes it never wrote."""
        self._clear()
        head: _Head | None = None
        for data in chunks:
            chunk = _chunk_decoder.decode(data)
            head = chunk.head or head
            for row in chunk.rows:
                # What is due by now is moved to its lane by the next dequeue.
                self._put(row.ticket, row.ticket.order, row.arrival, 0)
        if head is None:
            raise msgspec.ValidationError("the image has no head")
        self._arrivals, self._highest_order = head.arrivals, head.highest_order
        if self.digest != head.digest:
            raise msgspec.ValidationError("the image does not give the state that it was made from")

    def audit(self) -> None:
        """Checks every cross-reference; slow, for tests."""
        self._ready.audit(len(self._jobs))
        assert self._sum == sum(self._terms.waiting(job) for job in self._jobs.values())
        assert all(job.id == job_id for job_id, job in self._jobs.items())


def _row(job: Job) -> _Row:
    template = job.template
    order, arrival = job.number >> _ARRIVAL_BITS, job.number & _ARRIVAL_MASK
    ticket = WaitingTicket(
        job.id, template.queue, template.route, template.priority, order, job.not_before_ms, job.created_ms
    )
    return _Row(ticket, arrival)


def _exhausted(message: str) -> Refusal:
    return Refusal(Code.RESOURCE_EXHAUSTED, "QUEUE_FULL", message)
