"""A ledger as bytes: the content of a snapshot.

An image contains only state that events made. Lanes, indexes and keys are rebuilt from the jobs, so an image cannot
contradict itself. The chunks are canonical: equal states give equal bytes, and the hash of the chunks is the full
digest.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.core.decode_errors import reading, unreadable
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.footprint import held_bytes
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import Closure, Extra, JobRecord, Lease, QueueMode, Result, Schedule, ScheduleSpec, Template
from holdfast.core.state import LedgerState

AnyJob = TypeVar("AnyJob")

_JOBS_PER_CHUNK = 2_000
#: A schedule may carry a payload of one megabyte.
_SCHEDULES_PER_CHUNK = 8
#: A chunk is held in memory as a whole, and payloads can be large.
_BYTES_PER_CHUNK = 4 * 1024 * 1024


class ImageHead(msgspec.Struct, frozen=True, array_like=True):
    """The journal position of the state, and the values that belong to no job."""

    position: int
    last_ms: int
    next_number: int
    next_token: int
    digest: int
    process: str = ""


class JobRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job as it is written, with the index of its template; `JobRecord` begins with the same fields."""

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


class LeaseRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A lease, with the id of its job."""

    token: int
    job_id: str
    worker: str
    granted_ms: int
    lease_ms: int
    expires_ms: int
    restarts: int = 0
    host: str = ""


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


class ImageChunk(msgspec.Struct, Generic[AnyJob], frozen=True, array_like=True):
    """Exactly one part is filled, in the order head, modes, schedules, jobs, leases, finished.

    Jobs are written as rows and decoded as `JobRecord`, so that no row is copied.

    New parts are added only at the end, with a default, so that older images stay readable.
    """

    head: ImageHead | None = None
    templates: list[Template] = []
    jobs: list[AnyJob] = []
    leases: list[LeaseRow] = []
    finished: list[str] = []
    modes: list[_ModeRow] = []
    schedules: list[_ScheduleRow] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ImageChunk[JobRecord])


def dump(ledger: Ledger) -> Iterator[bytes]:
    """Encodes the state in chunks of bounded size."""
    state = ledger.state
    return dump_parts(ledger, state.jobs.values(), (job.id for job in state.finished))


def dump_parts(ledger: Ledger, jobs: Iterable[JobRecord], ended: Iterable[str]) -> Iterator[bytes]:
    """Like `dump`, with jobs in submit order and ids of finished jobs in order of their ends, from iterables."""
    state = ledger.state
    head = ImageHead(ledger.position, state.last_ms, state.next_number, state.next_token, state.digest, state.process)
    yield _encoder.encode(ImageChunk(head=head))
    if state.modes:
        yield _encoder.encode(ImageChunk(modes=[_ModeRow(queue, *state.modes[queue]) for queue in sorted(state.modes)]))
    names = iter(sorted(state.schedules))
    while named := list(islice(names, _SCHEDULES_PER_CHUNK)):
        rows_of = [_ScheduleRow(*msgspec.structs.astuple(state.schedules[name])) for name in named]
        yield _encoder.encode(ImageChunk(schedules=rows_of))
    for templates, rows in dump_jobs(jobs):
        yield _encoder.encode(ImageChunk(templates=templates, jobs=rows))
    leases = iter(state.leases.values())
    while held := list(islice(leases, _JOBS_PER_CHUNK)):
        yield _encoder.encode(ImageChunk(leases=[_lease_row(lease) for lease in held]))
    ended = iter(ended)
    while ids := list(islice(ended, _JOBS_PER_CHUNK)):
        yield _encoder.encode(ImageChunk(finished=ids))


def _batches(jobs: Iterable[JobRecord]) -> Iterator[list[JobRecord]]:
    rows: list[JobRecord] = []
    held = 0
    for job in jobs:
        rows.append(job)
        held += held_bytes(job)
        if len(rows) == _JOBS_PER_CHUNK or held >= _BYTES_PER_CHUNK:
            yield rows
            rows, held = [], 0
    if rows:
        yield rows


def dump_jobs(jobs: Iterable[JobRecord]) -> Iterator[tuple[list[Template], list[JobRow]]]:
    """Jobs in parts of bounded size, each with the templates of its rows."""
    for part in _batches(jobs):
        indexes: dict[Template, int] = {}
        rows = [_job_row(job, indexes.setdefault(job.template, len(indexes))) for job in part]
        yield list(indexes), rows


def _job_row(job: JobRecord, template: int) -> JobRow:
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


def _lease_row(lease: Lease) -> LeaseRow:
    return LeaseRow(
        lease.token,
        lease.job.id,
        lease.worker,
        lease.granted_ms,
        lease.lease_ms,
        lease.expires_ms,
        lease.restarts,
        lease.host,
    )


def decode_chunks(chunks: Iterable[bytes]) -> Iterator[ImageChunk[JobRecord]]:
    """Decodes the parts of an image one at a time; their jobs have the indexes of their templates."""
    return map(_decoder.decode, chunks)


def read_chunks(chunks: Iterable[bytes]) -> Iterator[ImageChunk[JobRecord]]:
    """Decodes the parts of an image one at a time; their jobs have their templates."""
    for chunk in decode_chunks(chunks):
        by_index: Any = chunk.templates
        try:
            for job in chunk.jobs:
                job.template = by_index[job.template]
        except TypeError as error:
            raise unreadable(error) from error
        yield chunk


@reading()
def load(
    chunks: Iterable[bytes], config: LedgerConfig, digest_version: int = DIGEST_VERSION, *, proves_digest: bool = True
) -> Ledger:
    """Decodes the ledger that `dump` encoded; raises `ValidationError` for any other bytes.

    Without `proves_digest` the digest is read from the image's head instead of being computed. That is safe: the bytes
    have checksums, and the snapshot writer proves every file that it writes, and the file that it starts from.
    """
    state = LedgerState(config.dedup_keys_max, digest_version)
    head: ImageHead | None = None
    for chunk in decode_chunks(chunks):
        head = chunk.head or head
        load_settings(state, chunk)
        if chunk.jobs:
            assert head is not None
            load_jobs(state, chunk.jobs, chunk.templates, head.last_ms)
        load_leases(state, chunk.leases)
        for job_id in chunk.finished:
            state.finished.append(state.jobs[job_id])
    ledger = load_head(state, head, config)
    if proves_digest:
        prove(state)
    return ledger


def prove(state: LedgerState) -> None:
    """Compares the digest with one that is computed from the whole state."""
    claimed = state.digest
    state.prove()
    if state.digest != claimed:
        raise msgspec.ValidationError("the content of the image does not match its digest")


def load_head(state: LedgerState, head: ImageHead | None, config: LedgerConfig) -> Ledger:
    """Returns the ledger of a state whose parts are loaded."""
    if head is None:
        raise msgspec.ValidationError("the image has no head")
    state.last_ms, state.next_number, state.next_token = head.last_ms, head.next_number, head.next_token
    state.process, state.digest = head.process, head.digest
    return Ledger(config, state, head.position)


def load_settings(state: LedgerState, chunk: ImageChunk[JobRecord]) -> None:
    """Loads queue modes and schedules into a state."""
    for row in chunk.modes:
        state.set_mode(row.queue, Closure(row.mode, row.reason, row.at_ms))
    for schedule in chunk.schedules:
        state.put_schedule(Schedule(*msgspec.structs.astuple(schedule)))


def load_jobs(
    state: LedgerState, jobs: list[JobRecord], templates: list[Template], last_ms: int = 0, *, into_lanes: bool = True
) -> None:
    """Loads decoded jobs into a state, the queued ones into their lanes."""
    count = len(state.jobs) + len(jobs)
    try:
        state.load(jobs, list(map(state.intern, templates)), last_ms, into_lanes=into_lanes)
    except TypeError as error:
        raise unreadable(error) from error
    if len(state.jobs) != count:
        raise msgspec.ValidationError("the image contains a job id twice")


def load_leases(state: LedgerState, rows: list[LeaseRow]) -> None:
    """Loads leases into a state that has their jobs."""
    for row in rows:
        job = state.jobs[row.job_id]
        state.leases[row.token] = Lease(
            row.token,
            job,
            row.worker,
            row.granted_ms,
            row.lease_ms,
            row.expires_ms,
            row.expires_ms,
            row.restarts,
            row.host,
        )
        state.tokens_of.setdefault(row.worker, {})[row.token] = None


def full_digest(ledger: Ledger) -> str:
    """SHA-256 over the whole state, for an exact comparison of two ledgers."""
    digest = hashlib.sha256()
    for chunk in dump(ledger):
        digest.update(chunk)
    return digest.hexdigest()
