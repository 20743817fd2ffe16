"""The next image of a ledger, from the image before it and the events since, without holding all jobs.

A part is a ledger that has only the jobs that some events can change: those that the events name, those that run, and
those that ended first, as many as the events forget. Everything else of it is whole: leases, modes, schedules, and the
digest, which is that of all jobs; so every frame is compared with the digest that was written with it. All other jobs
pass from image to image, one chunk in memory at a time.

Invariants:
- The chunks that `Part.dump` gives are, byte for byte, those that a ledger with all jobs would give.
- What a job carries and no event changes (payload, labels, headers, the result of one that had ended) is not held in a
  part: it is taken from the image before while the next one is written. What the events themselves carry is held.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from holdfast.core import events
from holdfast.core.digest import DIGEST_MASK, terms_of
from holdfast.core.events import AnyEvent
from holdfast.core.footprint import JOB_BYTES, job_bytes, result_bytes
from holdfast.core.image import (
    ImageHead,
    dump_parts,
    load_head,
    load_jobs,
    load_leases,
    load_settings,
    load_waiting,
    read_chunks,
)
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import FAILED, RUNNING, TERMINAL
from holdfast.core.model import Job
from holdfast.core.state import Book
from holdfast.core.unreadable import reading

#: Gives the chunks of one image from the beginning, each time it is called.
Source = Callable[[], Iterable[bytes]]


class Needs:
    """What events need of the image before them, and how much memory applying them takes."""

    __slots__ = ("bytes", "evicted", "job_ids", "retired_failed", "retired_others")

    def __init__(self) -> None:
        self.job_ids: set[str] = set()
        self.evicted = 0
        self.retired_others = 0
        self.retired_failed = 0
        self.bytes = 0

    def add(self, event: AnyEvent) -> None:
        """Counts one event. Jobs behind a lease need not be named: those that run are in every part."""
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
    """As much of a job's row as says which one it is and how it ended; the rest is passed over."""

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
    """The ids of the jobs that have ended, in that order."""
    return chain.from_iterable(_ends.decode(data).finished for data in source())


def _ended_first(source: Source, *, others: int, failed: int) -> Iterator[str]:
    """The ids of so many jobs that did not fail, and of so many that failed, of each those that ended first."""
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
    """A ledger with the jobs that some events can change, at the position of the image that it was loaded from."""

    def __init__(self, ledger: Ledger, source: Source = tuple, loaded: dict[str, int] | None = None) -> None:
        """Without a source there was no image before: the ledger is empty, and the part is the whole."""
        self.ledger = ledger
        self._source = source
        #: The jobs of the image before that are in the ledger, by id, each with its number: an id may come again.
        self._loaded = loaded or {}
        self._first_new = ledger.book.next_number

    @classmethod
    @reading()
    def load(cls, source: Source, needs: Needs, facts: "ImageFacts", config: LedgerConfig) -> "ImagePart":
        """The part of an image that some events need; `facts` are those of the whole image."""
        ended = list(
            _ended_first(
                source,
                others=needs.evicted + needs.retired_others,
                failed=needs.evicted + needs.retired_failed,
            )
        )
        wanted = needs.job_ids.union(ended)
        book, loaded = Book(digest_version=facts.digest_version), dict[str, int]()
        head: ImageHead | None = None
        for chunk in read_chunks(source(), book):
            head = chunk.head or head
            load_settings(book, chunk)
            jobs = [_without_cargo(job) for job in chunk.jobs if job.id in wanted or job.state == RUNNING]
            if jobs:
                assert head is not None
                load_jobs(book, jobs)
                load_waiting(book, jobs, head.last_ms)
                loaded.update((job.id, job.number) for job in jobs)
            load_leases(book, chunk.leases)
        for job_id in ended:
            book.finished.append(book.jobs[job_id])
        ledger = load_head(book, head, config)
        book.digest = facts.digest
        return cls(ledger, source, loaded)

    def rehash(self, version: int) -> None:
        """Goes over to a version of the digest, that of the jobs outside of the part included."""
        book = self.ledger.book
        if version == book.digest_version:
            return
        book.rehash(version)
        jobs = chain.from_iterable(chunk.jobs for chunk in read_chunks(self._source()))
        outside = sum(book.terms.job(job) for job in jobs if job.id not in self._loaded)
        book.digest = (book.digest + outside) & DIGEST_MASK

    def dump(self) -> Iterator[bytes]:
        """The image of the whole state, now that the events are applied."""
        return dump_parts(self.ledger, self._jobs(), self._ended())

    def _jobs(self) -> Iterator[Job]:
        """All jobs in submit order: those of the image before that are still there, then the new ones."""
        jobs = self.ledger.book.jobs
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
        """All jobs that have ended, in that order."""
        had_ended = set[str]()
        for job_id in _ended(self._source):
            if job_id not in self._loaded:
                yield job_id
            elif self._is_kept(job_id):
                had_ended.add(job_id)
                yield job_id
        for job in self.ledger.book.finished:
            if job.id not in had_ended:
                yield job.id

    def _is_kept(self, job_id: str) -> bool:
        """Whether a job that was loaded was not forgotten; another may have its id by now."""
        job = self.ledger.book.jobs.get(job_id)
        return job is not None and job.number == self._loaded[job_id]


def _without_cargo(job: Job) -> Job:
    job.payload, job.extra, job.result = b"", None, None
    return job


def _with_cargo(job: Job, before: Job) -> Job:
    if before.state in TERMINAL:
        return before
    return msgspec.structs.replace(job, payload=before.payload, extra=before.extra)


class ImageFacts(msgspec.Struct, frozen=True):
    """Which state an image gives."""

    position: int
    digest: int
    digest_version: int


@reading()
def examine(chunks: Iterable[bytes], digest_version: int) -> ImageFacts:
    """The facts of an image, from everything in it; one chunk is in memory at a time."""
    book, total = Book(digest_version=digest_version), 0
    term = terms_of(digest_version).job
    head: ImageHead | None = None
    for chunk in read_chunks(chunks):
        head = chunk.head or head
        load_settings(book, chunk)
        total += sum(map(term, chunk.jobs))
    if head is None:
        raise msgspec.ValidationError("the image has no head")
    return ImageFacts(head.position, (book.digest + total) & DIGEST_MASK, digest_version)
