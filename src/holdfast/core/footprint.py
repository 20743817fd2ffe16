"""How much memory a job takes while it is held.

A function of the job alone, so that replay gives the same sum in every process: the bytes and characters that it
carries, and a fixed cost for each object around them. The fixed costs were measured once: `python -m
holdfast.lab.faults.memory` fills a server with a million jobs and shows its resident size beside this sum, which is to
be the larger one by a little. They count what 64-bit CPython 3.11 allocates, with the entries of the indexes.
"""

from holdfast.core.model import Extra, Job, Result

#: The record, its id, its payload and its numbers as objects, and its entries in the indexes.
JOB_BYTES = 480
#: What a job with labels, headers or keys has beside its record.
EXTRA_BYTES = 160
#: A request id or a unique key, with its entry in an index.
KEY_BYTES = 160
#: One label or one header: two texts and a pair.
PAIR_BYTES = 176
#: How a job ended: the record, its output and two texts as objects, and its entry among the finished.
RESULT_BYTES = 240
#: The most that one character takes in a text that has others than ASCII.
_CHAR_BYTES_MAX = 4


def job_bytes(job_id: str, payload: bytes, extra: Extra | None) -> int:
    """What a job takes from its submission on."""
    size = JOB_BYTES + len(job_id) + len(payload)
    return size + extra_bytes(extra) if extra is not None else size


def extra_bytes(extra: Extra) -> int:
    """What labels, headers and keys take."""
    size = EXTRA_BYTES + sum(KEY_BYTES + text_bytes(key) for key in (extra.request_id, extra.unique_key) if key)
    for pairs in (extra.labels, extra.headers):
        size += sum([PAIR_BYTES + text_bytes(name) + text_bytes(value) for name, value in pairs])
    return size


def result_bytes(result: Result) -> int:
    """What a job takes in addition once it has ended."""
    size = RESULT_BYTES + len(result.output)
    if result.summary or result.failure_reason:  # most jobs end without either
        size += text_bytes(result.summary) + text_bytes(result.failure_reason)
    return size


def held_bytes(job: Job) -> int:
    """All that a job takes now."""
    size, extra, result = JOB_BYTES + len(job.id) + len(job.payload), job.extra, job.result
    if extra is not None:
        size += extra_bytes(extra)
    if job.cancel_reason:
        size += text_bytes(job.cancel_reason)
    return size + result_bytes(result) if result is not None else size


def text_bytes(text: str) -> int:
    """What the characters of a text take."""
    return len(text) if text.isascii() else _CHAR_BYTES_MAX * len(text)
