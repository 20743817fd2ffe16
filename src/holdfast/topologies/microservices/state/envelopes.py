"""Envelopes: the terminal states and outputs of jobs; the state of the result service.

Invariants:
- The first envelope of a job is never changed while it is kept. Storing another one only renews its time.
- An envelope is kept somewhat longer than its job, because a job ends right after its envelope was stored or renewed.
  The bounds are age, which is longer for failed jobs, and number. The bound on bytes only protects the memory; it is
  reached first only if outputs are very large.
- Each new envelope evicts old ones, so that the state is bounded without a timer; an expired envelope may stay until
  then.
- Only `apply` changes envelopes; replay of the same events gives equal ones. `digest` is the sum of a hash of each
  envelope that is equal in every process.
"""

import hashlib
import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Self

import msgspec

from holdfast import limits
from holdfast.core.decode_errors import reading, unreadable
from holdfast.core.digest import DIGEST_MASK, DIGEST_VERSION, terms_of
from holdfast.core.lifecycle import FAILED
from holdfast.core.retention import RetentionLimits, RetentionLine, take_from

#: An envelope and the end of its job are one call apart; the rest allows for differences between clocks.
_LEEWAY_MS = 3_600_000
#: Jobs do not end exactly in the order of their envelopes.
_LEEWAY_JOBS = 1_000
#: The job service does not count outputs.
_LEEWAY_BYTES_FACTOR = 4
#: Maximum number of evictions per new envelope: several, so that a lowered bound is reached; few, so that the call is
#: not delayed.
_FORGET_MAX = 100
_ROWS_PER_CHUNK = 2_000
_BYTES_PER_CHUNK = 4 * 1024 * 1024


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of one job. Two envelopes are equal only if all fields are."""

    job_id: str
    state: int
    runtime_ms: int = 0
    summary: str = ""
    output: bytes = b""

    @property
    def checksum(self) -> str:
        """The checksum of `output`."""
        return hashlib.sha256(self.output).hexdigest()

    @property
    def bytes_held(self) -> int:
        """The size that counts against the bound on bytes."""
        return len(self.output) + len(self.summary)


class EnvelopeRetention(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of age, number and bytes; envelopes beyond them are evicted, oldest first."""

    age_ms: int
    envelopes: int
    bytes: int
    failed_age_ms: int = limits.RETAIN_FAILED_MS_DEFAULT

    @classmethod
    def beyond(
        cls,
        *,
        retain_ms: int = limits.RETAIN_MS_DEFAULT,
        retain_failed_ms: int = limits.RETAIN_FAILED_MS_DEFAULT,
        retain_jobs: int = limits.RETAIN_JOBS_DEFAULT,
        retain_bytes: int = limits.RETAIN_BYTES_DEFAULT,
    ) -> Self:
        """Returns bounds somewhat above the retention of the job service."""
        return cls(
            age_ms=retain_ms + _LEEWAY_MS,
            failed_age_ms=retain_failed_ms + _LEEWAY_MS,
            envelopes=retain_jobs + retain_jobs // 4 + _LEEWAY_JOBS,
            bytes=retain_bytes * _LEEWAY_BYTES_FACTOR,
        )


# The tags and the order of fields are part of the format on disk, as in core/events.py.


class _EnvelopeChange(msgspec.Struct, frozen=True, array_like=True):
    at_ms: int


class Stored(_EnvelopeChange, frozen=True, tag=1):
    """The first envelope of a job; the `forgets` oldest envelopes are evicted, whatever the state of their jobs.

    Earlier versions wrote this instead of `Filed`.
    """

    envelope: Envelope
    forgets: int


class Confirmed(_EnvelopeChange, frozen=True, tag=2):
    """Another envelope of this job was stored: the first one stays, and its time starts again."""

    job_id: str


class Filed(_EnvelopeChange, frozen=True, tag=3):
    """The first envelope of a job, and the numbers of evicted ones: of jobs that failed, and of all others."""

    envelope: Envelope
    forgets_others: int
    forgets_failed: int


EnvelopeEvent = Stored | Confirmed | Filed


class StoreDecision(msgspec.Struct, frozen=True):
    """The event to apply, and the envelope that is valid after it."""

    event: EnvelopeEvent
    standing: Envelope

    @property
    def is_first(self) -> bool:
        return not isinstance(self.event, Confirmed)


class _StoredEnvelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    envelope: Envelope
    kept_ms: int


#: An envelope with its place in the order of all.
_Placed = tuple[int, _StoredEnvelope]


def _place(placed: _Placed) -> int:
    return placed[0]


class _EnvelopesChunk(msgspec.Struct, frozen=True, array_like=True):
    """The digest alone, or rows. Fields are only added at the end, with a default."""

    digest: int | None = None
    rows: list[_StoredEnvelope] = []


_encoder = msgspec.msgpack.Encoder()
_event_decoder: msgspec.msgpack.Decoder[EnvelopeEvent] = msgspec.msgpack.Decoder(EnvelopeEvent)
_chunk_decoder = msgspec.msgpack.Decoder(_EnvelopesChunk)


class Envelopes:
    """All envelopes, in the order of their eviction."""

    __slots__ = (
        "_failed",
        "_kept",
        "_places",
        "_retention",
        "_sum",
        "_terms",
        "bytes_held",
        "digest_version",
        "failed_bytes",
    )

    def __init__(self, retention: EnvelopeRetention) -> None:
        self._retention = retention
        self.digest_version = DIGEST_VERSION
        self._terms = terms_of(DIGEST_VERSION)
        self._clear()

    def _clear(self) -> None:
        # Not a dict: removing the first key of a large dict repeatedly scans all entries removed before.
        self._kept: OrderedDict[str, _Placed] = OrderedDict()
        #: Envelopes of failed jobs, in an order of their own.
        self._failed: OrderedDict[str, _Placed] = OrderedDict()
        self._places = 0
        self._sum = 0
        self.bytes_held = 0
        self.failed_bytes = 0

    def __len__(self) -> int:
        return len(self._kept) + len(self._failed)

    def __iter__(self) -> Iterator[_StoredEnvelope]:
        """Yields all envelopes in the order in which they were stored."""
        return (kept for _, kept in heapq.merge(self._kept.values(), self._failed.values(), key=_place))

    @property
    def digest(self) -> int:
        """A hash of the whole state, equal in every process."""
        return self._sum & DIGEST_MASK

    def rehash(self, version: int) -> None:
        """Switches to a version of the digest."""
        if version == self.digest_version:
            return
        self.digest_version = version
        self._terms = terms_of(version)
        self._sum = sum(map(self._term, self))

    def _term(self, kept: _StoredEnvelope) -> int:
        of = kept.envelope
        return self._terms.envelope((of.job_id, of.summary), of.output, (of.state, of.runtime_ms, kept.kept_ms))

    def find(self, job_id: str) -> Envelope | None:
        """Returns the envelope of a job, as long as it is kept."""
        placed = self._kept.get(job_id) or self._failed.get(job_id)
        return placed[1].envelope if placed else None

    # -- decisions

    def decide_store(self, envelope: Envelope, now_ms: int) -> StoreDecision:
        """Decides to store an envelope; the first envelope of a job stays."""
        known = self.find(envelope.job_id)
        if known is not None:
            return StoreDecision(Confirmed(now_ms, envelope.job_id), known)
        return StoreDecision(Filed(now_ms, envelope, *self._to_forget(envelope, now_ms)), envelope)

    def _to_forget(self, envelope: Envelope, now_ms: int) -> tuple[int, int]:
        retention = self._retention
        others = RetentionLine(
            ((kept.kept_ms, kept.envelope.bytes_held) for _, kept in self._kept.values()),
            left=len(self._kept),
            bytes_left=self.bytes_held - self.failed_bytes,
            retain_ms=retention.age_ms,
        )
        failed = RetentionLine(
            ((kept.kept_ms, kept.envelope.bytes_held) for _, kept in self._failed.values()),
            left=len(self._failed),
            bytes_left=self.failed_bytes,
            retain_ms=retention.failed_age_ms,
        )
        room = RetentionLimits(retention.envelopes - 1, retention.bytes - envelope.bytes_held)
        take_from(others, failed, room, now_ms, _FORGET_MAX)
        return others.taken, failed.taken

    # -- application

    def apply(self, event: EnvelopeEvent) -> None:
        """Applies an event."""
        match event:
            case Stored():
                for _ in range(event.forgets):
                    self._take(self._oldest())
                self._keep(_StoredEnvelope(event.envelope, event.at_ms))
            case Filed():
                for line, count in ((self._kept, event.forgets_others), (self._failed, event.forgets_failed)):
                    for _ in range(count):
                        self._take(next(iter(line)))
                self._keep(_StoredEnvelope(event.envelope, event.at_ms))
            case Confirmed():
                self._keep(_StoredEnvelope(self._take(event.job_id), event.at_ms))

    def _oldest(self) -> str:
        heads = [next(iter(line.values())) for line in (self._kept, self._failed) if line]
        return min(heads, key=_place)[1].envelope.job_id

    def _keep(self, kept: _StoredEnvelope) -> None:
        envelope = kept.envelope
        assert envelope.job_id not in self._kept
        assert envelope.job_id not in self._failed
        self._places += 1
        self._line(envelope)[envelope.job_id] = (self._places, kept)
        self._sum += self._term(kept)
        self.bytes_held += envelope.bytes_held
        self.failed_bytes += envelope.bytes_held if envelope.state == FAILED else 0

    def _take(self, job_id: str) -> Envelope:
        line = self._kept if job_id in self._kept else self._failed
        _, kept = line.pop(job_id)
        envelope = kept.envelope
        self._sum -= self._term(kept)
        self.bytes_held -= envelope.bytes_held
        self.failed_bytes -= envelope.bytes_held if envelope.state == FAILED else 0
        return envelope

    def _line(self, envelope: Envelope) -> OrderedDict[str, _Placed]:
        return self._failed if envelope.state == FAILED else self._kept

    # -- bytes

    def encode(self, event: EnvelopeEvent) -> bytes:
        """Encodes an event for the journal."""
        return _encoder.encode(event)

    def decode(self, data: bytes) -> EnvelopeEvent:
        """Decodes an event; `msgspec.ValidationError` for bytes that no version ever wrote."""
        try:
            return _event_decoder.decode(data)
        except (UnicodeDecodeError, RecursionError) as error:
            raise unreadable(error) from error

    def empty(self) -> "Envelopes":
        """Returns another instance, without any event."""
        return Envelopes(self._retention)

    def image(self) -> Iterator[bytes]:
        """Yields the state in chunks of bounded size; equal states give equal bytes."""
        yield _encoder.encode(_EnvelopesChunk(self.digest))
        rows: list[_StoredEnvelope] = []
        size = 0
        for kept in self:
            rows.append(kept)
            size += kept.envelope.bytes_held
            if len(rows) == _ROWS_PER_CHUNK or size >= _BYTES_PER_CHUNK:
                yield _encoder.encode(_EnvelopesChunk(rows=rows))
                rows, size = [], 0
        if rows:
            yield _encoder.encode(_EnvelopesChunk(rows=rows))

    @reading()
    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replaces the state by that of the image; `msgspec.ValidationError` for data that no image contains."""
        self._clear()
        digest: int | None = None
        for data in chunks:
            chunk = _chunk_decoder.decode(data)
            digest = digest if chunk.digest is None else chunk.digest
            for kept in chunk.rows:
                self._keep(kept)
        if self.digest != digest:
            raise msgspec.ValidationError("the content of the image does not match its digest")

    def audit(self) -> None:
        """Checks every cross-reference; slow, for tests."""
        assert self._sum == sum(map(self._term, self))
        assert self.bytes_held == sum(kept.envelope.bytes_held for kept in self)
        assert self.failed_bytes == sum(kept.envelope.bytes_held for _, kept in self._failed.values())
        for line in (self._kept, self._failed):
            assert all(kept.envelope.job_id == job_id for job_id, (_, kept) in line.items())
            assert all(self._line(kept.envelope) is line for _, kept in line.values())
