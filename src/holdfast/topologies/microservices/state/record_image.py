"""Records as bytes: the content of the job service's snapshots.

Only the state made by events is written; indexes and keys are rebuilt from the jobs, as in core/image.py. Fields of a
chunk are only added at the end, with a default, so that older images can be read.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

import msgspec

from holdfast.core.decode_errors import reading
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.image import AnyJob, dump_jobs, load_jobs, prove
from holdfast.core.model import JobRecord, Template
from holdfast.core.state import LedgerState

T = TypeVar("T")

_ROWS_PER_CHUNK = 2_000


class _RecordsHead(msgspec.Struct, frozen=True, array_like=True):
    last_ms: int
    next_number: int
    next_token: int
    digest: int


class _RecordsChunk(msgspec.Struct, Generic[AnyJob], frozen=True, array_like=True):
    """Exactly one part is filled, in the order head, jobs, workers, shared, finished."""

    head: _RecordsHead | None = None
    templates: list[Template] = []
    jobs: list[AnyJob] = []
    workers: list[tuple[str, str]] = []
    shared: list[str] = []
    finished: list[str] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_RecordsChunk[JobRecord])


def dump(state: LedgerState, workers: Mapping[str, str], shared: AbstractSet[str]) -> Iterator[bytes]:
    """Yields the state in chunks of bounded size; equal states give equal bytes."""
    head = _RecordsHead(state.last_ms, state.next_number, state.next_token, state.digest)
    yield _encoder.encode(_RecordsChunk(head=head))
    for templates, rows in dump_jobs(state.jobs.values()):
        yield _encoder.encode(_RecordsChunk(templates=templates, jobs=rows))
    for pairs in _parts(sorted(workers.items())):
        yield _encoder.encode(_RecordsChunk(workers=pairs))
    for ids in _parts(sorted(shared)):
        yield _encoder.encode(_RecordsChunk(shared=ids))
    for ids in _parts([job.id for job in state.finished]):
        yield _encoder.encode(_RecordsChunk(finished=ids))


@reading()
def load(
    chunks: Iterable[bytes], dedup_keys_max: int, digest_version: int = DIGEST_VERSION
) -> tuple[LedgerState, dict[str, str], list[str]]:
    """Loads the output of `dump`, under this digest version; `msgspec.ValidationError` for bytes it never wrote."""
    state, workers, shared = LedgerState(dedup_keys_max, digest_version), dict[str, str](), list[str]()
    head: _RecordsHead | None = None
    for data in chunks:
        chunk = _decoder.decode(data)
        head = chunk.head or head
        load_jobs(state, chunk.jobs, chunk.templates, into_lanes=False)
        workers.update(chunk.workers)
        shared += chunk.shared
        for job_id in chunk.finished:
            state.finished.append(state.jobs[job_id])
    if head is None:
        raise msgspec.ValidationError("the image has no head")
    state.last_ms, state.next_number, state.next_token = head.last_ms, head.next_number, head.next_token
    state.digest = head.digest
    prove(state)
    return state, workers, shared


def _parts(rows: list[T]) -> Iterator[list[T]]:
    return (rows[start : start + _ROWS_PER_CHUNK] for start in range(0, len(rows), _ROWS_PER_CHUNK))
