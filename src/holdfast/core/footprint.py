"""Estimates the memory that a job occupies.

The estimate depends on the job alone, so that replay gives the same sum in every process. It counts the job's bytes and
characters, and a fixed cost for each object around them. The fixed costs were measured: `python -m
holdfast_lab.faults.memory` fills a server with a million jobs and shows its resident size beside this sum; the sum
should be slightly larger. The costs are those of 64-bit CPython 3.11 and include the index entries.
"""

from holdfast.core.model import Extra, JobRecord, Result

#: The record, its id, its payload and its numbers as objects, and its entries in the indexes.
JOB_BYTES = 480
#: Fixed cost of an `Extra`, for jobs with labels, headers or keys.
EXTRA_BYTES = 160
#: A request id or a unique key, with its index entry.
KEY_BYTES = 160
#: One label or one header: two texts and a pair.
PAIR_BYTES = 176
#: A result: the record, its output and two texts as objects, and its entry among the finished jobs.
RESULT_BYTES = 240
#: The most bytes of one character in a text that is not ASCII.
_CHAR_BYTES_MAX = 4


def job_bytes(job_id: str, payload: bytes, extra: Extra | None) -> int:
    """The bytes that a job occupies from its submission on."""
    size = JOB_BYTES + len(job_id) + len(payload)
    return size + extra_bytes(extra) if extra is not None else size


def extra_bytes(extra: Extra) -> int:
    """The bytes of labels, headers and keys."""
    size = EXTRA_BYTES + sum(KEY_BYTES + text_bytes(key) for key in (extra.request_id, extra.unique_key) if key)
    for pairs in (extra.labels, extra.headers):
        size += sum([PAIR_BYTES + text_bytes(name) + text_bytes(value) for name, value in pairs])
    return size


def result_bytes(result: Result) -> int:
    """The additional bytes of a finished job."""
    size = RESULT_BYTES + len(result.output)
    if result.summary or result.failure_reason:  # most jobs have neither
        size += text_bytes(result.summary) + text_bytes(result.failure_reason)
    return size


def held_bytes(job: JobRecord) -> int:
    """The bytes that a job occupies now."""
    size, extra, result = JOB_BYTES + len(job.id) + len(job.payload), job.extra, job.result
    if extra is not None:
        size += extra_bytes(extra)
    if job.cancel_reason:
        size += text_bytes(job.cancel_reason)
    return size + result_bytes(result) if result is not None else size


def text_bytes(text: str) -> int:
    """The bytes of a text's characters, without the object's fixed cost."""
    return len(text) if text.isascii() else _CHAR_BYTES_MAX * len(text)
