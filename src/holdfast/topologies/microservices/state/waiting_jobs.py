"""The waiting jobs: the state of the queue service.

Invariants:
- An id waits at most once: enqueue is idempotent per job id.
- Within a lane (one queue, one route, one priority) jobs are sorted by `order`, whenever they arrive: a returned job
  takes its old place, and jobs may arrive out of order from several gateways. A job without an order is placed behind
  all that arrived before it. Between lanes the ledger's rule applies, including `aging_ms`.
- The state holds only waiting jobs and two counters; a job that has left is forgotten.
- Only `apply` changes the state; replay of the same events gives an equal one. `digest` is the sum of a hash of each
  waiting job that is equal in every process.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.core.decode_errors import reading, unreadable
from holdfast.core.digest import DIGEST_MASK, DIGEST_VERSION, terms_of
from holdfast.core.lane_order import RouteFilter
from holdfast.core.model import SIM_TYPE, JobRecord, Template
from holdfast.core.ready_queue import ReadyQueue
from holdfast.errors import Code

_ROWS_PER_CHUNK = 5_000
_TEMPLATES_MAX = 10_000
#: A place has the order in its high bits and the arrival number in its low bits, so that it is unique.
_ARRIVAL_BITS = 64
_ARRIVAL_MASK = (1 << _ARRIVAL_BITS) - 1


class WaitingTicket(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job to enqueue. The defaults are for callers that know only the frozen fields."""

    job_id: str
    queue: str = limits.QUEUE_DEFAULT
    #: The type that a worker must know to run it.
    route: str = SIM_TYPE
    priority: int = limits.PRIORITY_DEFAULT
    #: Its place among all jobs; 0: behind all that have arrived.
    order: int = 0
    not_before_ms: int = 0
    #: Start of its waiting time; 0, or a future time: now.
    since_ms: int = 0


# The tags and the order of fields are part of the format on disk, as in core/events.py.


class _WaitingEvent(msgspec.Struct, frozen=True, array_like=True):
    at_ms: int


class Enqueued(_WaitingEvent, frozen=True, tag=1):
    """A job was added."""

    ticket: WaitingTicket


class Dequeued(_WaitingEvent, frozen=True, tag=2):
    """A job was handed to the coordinator, for a worker, and waits no longer."""

    job_id: str
    worker: str


class Removed(_WaitingEvent, frozen=True, tag=3):
    """A job was removed without being handed to a worker."""

    job_id: str


LineEvent = Enqueued | Dequeued | Removed


class _WaitingHead(msgspec.Struct, frozen=True, array_like=True):
    arrivals: int
    highest_order: int
    digest: int


class _WaitingRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    ticket: WaitingTicket
    arrival: int


class _WaitingChunk(msgspec.Struct, frozen=True, array_like=True):
    """The head alone, or rows. Fields are only added at the end, with a default."""

    head: _WaitingHead | None = None
    rows: list[_WaitingRow] = []


_encoder = msgspec.msgpack.Encoder()
_event_decoder: msgspec.msgpack.Decoder[LineEvent] = msgspec.msgpack.Decoder(LineEvent)
_chunk_decoder = msgspec.msgpack.Decoder(_WaitingChunk)


class WaitingJobs:
    """The waiting jobs and their order. `decide` methods change nothing, and return the event to apply, or None."""

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
        #: In the order of arrival, which is also the order of the image.
        self._jobs: dict[str, JobRecord] = {}
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
        """Switches to a version of the digest."""
        if version == self.digest_version:
            return
        self.digest_version = version
        self._terms = terms_of(version)
        for job in self._jobs.values():
            job.mark = self._terms.waiting(job)
        self._sum = sum(job.mark for job in self._jobs.values())

    # -- decisions

    def decide_enqueue(self, ticket: WaitingTicket, now_ms: int) -> Enqueued | Refusal | None:
        """Decides to enqueue a job; None if it waits already."""
        if not 0 <= ticket.not_before_ms <= now_ms + 2 * limits.DELAY_MS_MAX:
            # Twice the limit of the job service, which has checked it already: the two clocks may differ.
            return Refusal(Code.INVALID_ARGUMENT, "DELAY_TOO_LONG", "the job must be due within a year")
        if ticket.job_id in self._jobs:
            return None
        if len(self._jobs) >= limits.JOBS_HELD_MAX:
            return _exhausted(f"the limit of {limits.JOBS_HELD_MAX} waiting jobs is reached; try again later")
        lanes = self._ready.lanes
        if len(lanes) >= limits.LANES_MAX and (ticket.queue, ticket.route, ticket.priority) not in lanes:
            return _exhausted(f"the limit of {limits.LANES_MAX} kinds of waiting jobs is reached; use fewer queues")
        since_ms = min(ticket.since_ms or now_ms, now_ms)
        return Enqueued(now_ms, msgspec.structs.replace(ticket, since_ms=since_ms))

    def decide_dequeue(self, worker: str, wanted: RouteFilter | None, now_ms: int) -> Dequeued | None:
        """Decides on the next job that matches and is due; `wanted` None matches every job."""
        jobs = self._ready.choose(wanted, 1, self.aging_ms, now_ms)
        return Dequeued(now_ms, jobs[0].id, worker) if jobs else None

    def decide_remove(self, job_id: str, now_ms: int) -> Removed | None:
        """Decides to remove a job; None if it does not wait."""
        return Removed(now_ms, job_id) if job_id in self._jobs else None

    # -- application

    def apply(self, event: LineEvent) -> None:
        """Applies an event."""
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
        job = JobRecord(ticket.job_id, template, b"", place, ticket.since_ms, ticket.not_before_ms)
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
        """Encodes an event for the journal."""
        return _encoder.encode(event)

    def decode(self, data: bytes) -> LineEvent:
        """Decodes an event; `msgspec.ValidationError` for bytes that no version ever wrote."""
        try:
            return _event_decoder.decode(data)
        except (UnicodeDecodeError, RecursionError) as error:
            raise unreadable(error) from error

    def empty(self) -> "WaitingJobs":
        """Returns another instance, without any event."""
        return WaitingJobs(self.aging_ms)

    def image(self) -> Iterator[bytes]:
        """Yields the state in chunks of bounded size; equal states give equal bytes."""
        yield _encoder.encode(_WaitingChunk(_WaitingHead(self._arrivals, self._highest_order, self.digest)))
        jobs = iter(self._jobs.values())
        while part := list(islice(jobs, _ROWS_PER_CHUNK)):
            yield _encoder.encode(_WaitingChunk(rows=[_row(job) for job in part]))

    @reading()
    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replaces the state by that of the image; `msgspec.ValidationError` for bytes it never wrote."""
        self._clear()
        head: _WaitingHead | None = None
        for data in chunks:
            chunk = _chunk_decoder.decode(data)
            head = chunk.head or head
            for row in chunk.rows:
                # The next dequeue moves jobs that are due by now to their lanes.
                self._put(row.ticket, row.ticket.order, row.arrival, 0)
        if head is None:
            raise msgspec.ValidationError("the image has no head")
        self._arrivals, self._highest_order = head.arrivals, head.highest_order
        if self.digest != head.digest:
            raise msgspec.ValidationError("the content of the image does not match its digest")

    def audit(self) -> None:
        """Checks every cross-reference; slow, for tests."""
        self._ready.audit(len(self._jobs))
        assert self._sum == sum(self._terms.waiting(job) for job in self._jobs.values())
        assert all(job.id == job_id for job_id, job in self._jobs.items())


def _row(job: JobRecord) -> _WaitingRow:
    template = job.template
    order, arrival = job.number >> _ARRIVAL_BITS, job.number & _ARRIVAL_MASK
    ticket = WaitingTicket(
        job.id, template.queue, template.route, template.priority, order, job.not_before_ms, job.created_ms
    )
    return _WaitingRow(ticket, arrival)


def _exhausted(message: str) -> Refusal:
    return Refusal(Code.RESOURCE_EXHAUSTED, "QUEUE_FULL", message)
