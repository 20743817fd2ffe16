"""Builds the next image of a ledger from the previous image and later events, without loading all jobs.

A part is a ledger that contains only the jobs that the events can change: those that the events name, running jobs, and
as many of the oldest finished jobs as the events remove. Everything else is complete: leases, modes, schedules, and the
digest, which covers all jobs. So the digest can be checked at every frame. The other jobs are copied from image to
image, one chunk in memory at a time.

Invariants:
- The chunks of `ImagePart.dump` are, byte for byte, those of a ledger with all jobs.
- A part does not hold data that no event changes (payload, labels, headers, the result of a finished job). It is copied
  from the previous image when the next one is written. Data in the events themselves is held.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from holdfast.core import events
from holdfast.core.decode_errors import reading
from holdfast.core.digest import DIGEST_MASK, terms_of
from holdfast.core.events import AnyEvent
from holdfast.core.footprint import JOB_BYTES, job_bytes, result_bytes
from holdfast.core.image import (
    ImageHead,
    decode_chunks,
    dump_parts,
    load_head,
    load_jobs,
    load_leases,
    load_settings,
    read_chunks,
)
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import FAILED, RUNNING, TERMINAL
from holdfast.core.model import JobRecord
from holdfast.core.state import LedgerState

#: Returns the chunks of one image from the start, on every call.
Source = Callable[[], Iterable[bytes]]


class NeededJobs:
    """The jobs that events need from the previous image, and the memory that applying the events takes."""

    __slots__ = ("bytes", "evicted", "job_ids", "retired_failed", "retired_others")

    def __init__(self) -> None:
        self.job_ids: set[str] = set()
        self.evicted = 0
        self.retired_others = 0
        self.retired_failed = 0
        self.bytes = 0

    def add(self, event: AnyEvent) -> None:
        """Counts one event. Jobs of leases are not recorded here: every part contains all running jobs."""
        match event:
            case events.Created():
                self.bytes += sum(job_bytes(job.id, job.payload, job.extra) for job in event.jobs)
            case events.Granted() | events.QueuedCanceled():
                self._name(event.job_ids)
            case events.CancelAccepted():
                self._name([event.job_id])
            case events.Reported():
                self.bytes += sum(map(result_bytes, event.results))
            case events.Ticked():
                self._name([event.canceled] if event.canceled else [])
                self.bytes += job_bytes(event.job.id, event.job.payload, event.job.extra) if event.job else 0
            case events.Evicted():
                self.evicted += event.count
                self.bytes += JOB_BYTES * event.count
            case events.Retired():
                self.retired_others += event.others
                self.retired_failed += event.failed
                self.bytes += JOB_BYTES * (event.others + event.failed)

    def _name(self, job_ids: Sequence[str]) -> None:
        self.job_ids.update(job_ids)
        self.bytes += JOB_BYTES * len(job_ids)


class _RowHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first fields of a job's row, up to its state; the other fields are skipped."""

    id: str
    template: msgspec.Raw
    payload: msgspec.Raw
    number: msgspec.Raw
    created_ms: msgspec.Raw
    not_before_ms: msgspec.Raw
    extra: msgspec.Raw
    state: int


class _StateChunk(msgspec.Struct, frozen=True, array_like=True):
    head: msgspec.Raw
    templates: msgspec.Raw
    jobs: list[_RowHead] = []


class _EndChunk(msgspec.Struct, frozen=True, array_like=True):
    head: msgspec.Raw
    templates: msgspec.Raw
    jobs: msgspec.Raw
    leases: msgspec.Raw
    finished: list[str] = []


_states = msgspec.msgpack.Decoder(_StateChunk)
_ends = msgspec.msgpack.Decoder(_EndChunk)


def _ended(source: Source) -> Iterator[str]:
    """The ids of finished jobs, in the order of their ends."""
    return chain.from_iterable(_ends.decode(data).finished for data in source())


def _ended_first(source: Source, *, others: int, failed: int) -> Iterator[str]:
    """The ids of the first `others` finished jobs that did not fail, and of the first `failed` failed ones."""
    if not others and not failed:
        return
    rows = chain.from_iterable(_states.decode(data).jobs for data in source())
    have_failed = {row.id for row in rows if row.state == FAILED}
    for job_id in _ended(source):
        if job_id in have_failed and failed:
            failed -= 1
            yield job_id
        elif job_id not in have_failed and others:
            others -= 1
            yield job_id
        if not others and not failed:
            return


class ImagePart:
    """A ledger with the jobs that some events can change, at the position of the image it was loaded from."""

    def __init__(self, ledger: Ledger, source: Source = tuple, loaded: dict[str, int] | None = None) -> None:
        """Without a source there is no previous image: the ledger is empty, and the part is complete."""
        self.ledger = ledger
        self._source = source
        #: The loaded jobs of the previous image: id to number. The number tells apart two jobs with the same id.
        self._loaded = loaded or {}
        self._first_new = ledger.state.next_number

    @classmethod
    @reading()
    def load(cls, source: Source, needs: NeededJobs, facts: "ImageFacts", config: LedgerConfig) -> "ImagePart":
        """Loads the part of an image that the events need; `facts` are those of the whole image."""
        ended = list(
            _ended_first(
                source,
                others=needs.evicted + needs.retired_others,
                failed=needs.evicted + needs.retired_failed,
            )
        )
        wanted = needs.job_ids.union(ended)
        state, loaded = LedgerState(digest_version=facts.digest_version), dict[str, int]()
        head: ImageHead | None = None
        for chunk in decode_chunks(source()):
            head = chunk.head or head
            load_settings(state, chunk)
            jobs = [_without_cargo(job) for job in chunk.jobs if job.id in wanted or job.state == RUNNING]
            if jobs:
                assert head is not None
                load_jobs(state, jobs, chunk.templates, head.last_ms)
                loaded.update((job.id, job.number) for job in jobs)
            load_leases(state, chunk.leases)
        for job_id in ended:
            state.finished.append(state.jobs[job_id])
        ledger = load_head(state, head, config)
        state.digest = facts.digest
        return cls(ledger, source, loaded)

    def rehash(self, version: int) -> None:
        """Switches to another digest version, including the jobs outside of the part."""
        state = self.ledger.state
        if version == state.digest_version:
            return
        state.rehash(version)
        jobs = chain.from_iterable(chunk.jobs for chunk in read_chunks(self._source()))
        outside = sum(state.terms.job(job) for job in jobs if job.id not in self._loaded)
        state.digest = (state.digest + outside) & DIGEST_MASK

    def dump(self) -> Iterator[bytes]:
        """The image of the whole state after the events were applied."""
        return dump_parts(self.ledger, self._jobs(), self._ended())

    def _jobs(self) -> Iterator[JobRecord]:
        """All jobs in submit order: those of the previous image that still exist, then the new ones."""
        jobs = self.ledger.state.jobs
        for chunk in read_chunks(self._source()):
            for before in chunk.jobs:
                if before.id not in self._loaded:
                    yield before
                elif self._is_kept(before.id):
                    yield _with_cargo(jobs[before.id], before)
        for job in jobs.values():
            if job.number >= self._first_new:
                yield job

    def _ended(self) -> Iterator[str]:
        """The ids of all finished jobs, in the order of their ends."""
        had_ended = set[str]()
        for job_id in _ended(self._source):
            if job_id not in self._loaded:
                yield job_id
            elif self._is_kept(job_id):
                had_ended.add(job_id)
                yield job_id
        for job in self.ledger.state.finished:
            if job.id not in had_ended:
                yield job.id

    def _is_kept(self, job_id: str) -> bool:
        """Whether a loaded job still exists; a newer job may have its id by now."""
        job = self.ledger.state.jobs.get(job_id)
        return job is not None and job.number == self._loaded[job_id]


def _without_cargo(job: JobRecord) -> JobRecord:
    job.payload, job.extra, job.result = b"", None, None
    return job


def _with_cargo(job: JobRecord, before: JobRecord) -> JobRecord:
    if before.state in TERMINAL:
        return before
    return msgspec.structs.replace(job, payload=before.payload, extra=before.extra)


class ImageFacts(msgspec.Struct, frozen=True):
    """Position, digest and digest version of an image's state."""

    position: int
    digest: int
    digest_version: int


@reading()
def examine(chunks: Iterable[bytes], digest_version: int) -> ImageFacts:
    """Computes the facts of an image from its whole content, with one chunk in memory at a time."""
    state, total = LedgerState(digest_version=digest_version), 0
    term = terms_of(digest_version).job
    head: ImageHead | None = None
    for chunk in read_chunks(chunks):
        head = chunk.head or head
        load_settings(state, chunk)
        total += sum(map(term, chunk.jobs))
    if head is None:
        raise msgspec.ValidationError("the image has no head")
    return ImageFacts(head.position, (state.digest + total) & DIGEST_MASK, digest_version)
