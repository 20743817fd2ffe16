"""A ledger as bytes: the content of a snapshot.

Only what events made is written; lanes, indexes and keys are rebuilt from the jobs, so that a snapshot cannot
disagree with itself. The chunks are canonical: equal states give equal bytes, and their hash is the full digest.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from holdfast.core.book import Book, unique_name
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import QUEUED, TERMINAL
from holdfast.core.model import Closure, Extra, Job, Lease, QueueMode, Result, Schedule, ScheduleSpec, Template
from holdfast.core.ready_queue import FRESH
from holdfast.core.unreadable import reading

_JOBS_PER_CHUNK = 2_000
#: Each may carry a payload of a megabyte.
_SCHEDULES_PER_CHUNK = 8
#: A chunk is held in memory whole, and payloads can be large.
_BYTES_PER_CHUNK = 4 * 1024 * 1024


class _Head(msgspec.Struct, frozen=True, array_like=True):
    position: int
    last_ms: int
    next_number: int
    next_token: int
    digest: int


class JobRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job, with an index into the templates beside it."""

    id: str
    template: int
    payload: bytes
    number: int
    created_ms: int
    not_before_ms: int
    extra: Extra | None
    state: int
    token: int
    grants: int
    failures: int
    losses: int
    started_ms: int
    finished_ms: int
    cancel_requested: bool
    result: Result | None
    cancel_reason: str
    lost_ms: int


class _LeaseRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    token: int
    job_id: str
    worker: str
    granted_ms: int
    lease_ms: int
    expires_ms: int


class _ModeRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    queue: str
    mode: QueueMode
    reason: str
    at_ms: int


class _ScheduleRow(msgspec.Struct, frozen=True, array_like=True):
    spec: ScheduleSpec
    created_ms: int
    next_ms: int
    last_tick_ms: int
    last_job_id: str
    fired: int
    skipped: int
    missed: int
    is_paused: bool


class _Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Exactly one part is filled, in the order head, modes, schedules, jobs, leases, finished.

    Parts are only ever added at the end, with a default, so that images of before can be read.
    """

    head: _Head | None = None
    templates: list[Template] = []
    jobs: list[JobRow] = []
    leases: list[_LeaseRow] = []
    finished: list[str] = []
    modes: list[_ModeRow] = []
    schedules: list[_ScheduleRow] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Chunk)


def dump(ledger: Ledger) -> Iterator[bytes]:
    """The state in chunks of bounded size."""
    book = ledger.book
    head = _Head(ledger.position, book.last_ms, book.next_number, book.next_token, book.digest)
    yield _encoder.encode(_Chunk(head=head))
    if book.modes:
        yield _encoder.encode(_Chunk(modes=[_ModeRow(queue, *book.modes[queue]) for queue in sorted(book.modes)]))
    names = iter(sorted(book.schedules))
    while named := list(islice(names, _SCHEDULES_PER_CHUNK)):
        rows_of = [_ScheduleRow(*msgspec.structs.astuple(book.schedules[name])) for name in named]
        yield _encoder.encode(_Chunk(schedules=rows_of))
    for templates, rows in dump_jobs(book):
        yield _encoder.encode(_Chunk(templates=templates, jobs=rows))
    leases = iter(book.leases.values())
    while held := list(islice(leases, _JOBS_PER_CHUNK)):
        yield _encoder.encode(_Chunk(leases=[_lease_row(lease) for lease in held]))
    finished = iter(book.finished)
    while ended := list(islice(finished, _JOBS_PER_CHUNK)):
        yield _encoder.encode(_Chunk(finished=[job.id for job in ended]))


def _batches(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    rows: list[Job] = []
    held = 0
    for job in jobs:
        rows.append(job)
        held += job.bytes_held
        if len(rows) == _JOBS_PER_CHUNK or held >= _BYTES_PER_CHUNK:
            yield rows
            rows, held = [], 0
    if rows:
        yield rows


def dump_jobs(book: Book) -> Iterator[tuple[list[Template], list[JobRow]]]:
    """All jobs of a book, in parts of bounded size, each with the templates that its rows name."""
    for jobs in _batches(book.jobs.values()):
        indexes: dict[Template, int] = {}
        rows = [_job_row(job, indexes.setdefault(job.template, len(indexes))) for job in jobs]
        yield list(indexes), rows


def _job_row(job: Job, template: int) -> JobRow:
    return JobRow(
        job.id,
        template,
        job.payload,
        job.number,
        job.created_ms,
        job.not_before_ms,
        job.extra,
        job.state,
        job.token,
        job.grants,
        job.failures,
        job.losses,
        job.started_ms,
        job.finished_ms,
        job.cancel_requested,
        job.result,
        job.cancel_reason,
        job.lost_ms,
    )


def _lease_row(lease: Lease) -> _LeaseRow:
    return _LeaseRow(lease.token, lease.job.id, lease.worker, lease.granted_ms, lease.lease_ms, lease.expires_ms)


@reading()
def load(chunks: Iterable[bytes], config: LedgerConfig) -> Ledger:
    """The ledger that `dump` was given; raises `msgspec.ValidationError` for bytes it never wrote."""
    book = Book(config.dedup_keys_max)
    head: _Head | None = None
    for data in chunks:
        chunk = _decoder.decode(data)
        head = chunk.head or head
        for row in chunk.modes:
            book.set_mode(row.queue, Closure(row.mode, row.reason, row.at_ms))
        for schedule in chunk.schedules:
            book.put_schedule(Schedule(*msgspec.structs.astuple(schedule)))
        for job in load_jobs(book, chunk.templates, chunk.jobs):
            assert head is not None
            if job.state == QUEUED:
                _load_waiting(book, job, head.last_ms)
        _load_leases(book, chunk.leases)
        for job_id in chunk.finished:
            book.finished.append(book.jobs[job_id])
    if head is None:
        raise msgspec.ValidationError("the image has no head")
    book.last_ms, book.next_number, book.next_token = head.last_ms, head.next_number, head.next_token
    if book.digest != head.digest:
        raise msgspec.ValidationError("the image does not give the state that it was made from")
    return Ledger(config, book, head.position)


def load_jobs(book: Book, templates: list[Template], rows: list[JobRow]) -> Iterator[Job]:
    """Puts jobs back into a book and yields them; where those wait that do is up to the caller."""
    known = [book.intern(template) for template in templates]
    for row in rows:
        if row.id in book.jobs:
            raise msgspec.ValidationError("the image has a job twice")
        job = _job(row, known[row.template], book.listing.chunk_for(row.created_ms))
        book.jobs[job.id] = job
        book.listing.jobs_in(job.chunk).append(job)
        book.touch(job)
        book.bytes_held += job.bytes_held
        if job.extra and job.extra.request_id:
            book.dedup.add(job.extra.request_id, job)
        if job.unique_key and job.state not in TERMINAL:
            book.unique[unique_name(job)] = job
        yield job


def _job(row: JobRow, template: Template, chunk: int) -> Job:
    return Job(
        row.id,
        template,
        row.payload,
        row.number,
        chunk,
        row.created_ms,
        row.not_before_ms,
        row.extra,
        row.state,
        0,
        row.token,
        row.grants,
        row.failures,
        row.losses,
        row.started_ms,
        row.finished_ms,
        row.cancel_requested,
        row.result,
        row.cancel_reason,
        row.lost_ms,
    )


def _load_waiting(book: Book, job: Job, last_ms: int) -> None:
    if job.not_before_ms > last_ms:
        book.ready.put_delayed(job)
        return
    lane = book.ready.lane_of(job)
    lane.fresh.append(job)
    job.place = FRESH
    lane.ready += 1


def _load_leases(book: Book, rows: list[_LeaseRow]) -> None:
    for row in rows:
        job = book.jobs[row.job_id]
        book.leases[row.token] = Lease(
            row.token, job, row.worker, row.granted_ms, row.lease_ms, row.expires_ms, row.expires_ms
        )
        book.tokens_of.setdefault(row.worker, {})[row.token] = None


def full_digest(ledger: Ledger) -> str:
    """SHA-256 over the whole state, for comparing two ledgers completely."""
    digest = hashlib.sha256()
    for chunk in dump(ledger):
        digest.update(chunk)
    return digest.hexdigest()
