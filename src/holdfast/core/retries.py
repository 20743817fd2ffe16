"""The delay before a retry. The jitter is derived from the job, so that replay gives the same delay."""

import hashlib

from holdfast.core.model import EXPONENTIAL, FIXED, BackoffRule

_DOUBLINGS_MAX = 30


def ceiling_ms(backoff: BackoffRule, failures: int) -> int:
    """The longest delay after this many failures, before jitter."""
    if backoff.kind == FIXED:
        wait_ms = backoff.base_ms
    elif backoff.kind == EXPONENTIAL:
        wait_ms = backoff.base_ms << min(failures - 1, _DOUBLINGS_MAX)
    else:
        wait_ms = backoff.base_ms * failures * failures
    return min(wait_ms, backoff.max_ms)


def delay_ms(backoff: BackoffRule, job_id: str, failures: int) -> int:
    """The delay after this many failures: full jitter for the exponential kind, exact otherwise."""
    wait_ms = ceiling_ms(backoff, failures)
    if backoff.kind != EXPONENTIAL or wait_ms == 0:
        return wait_ms
    draw = hashlib.sha256(f"{job_id}:{failures}".encode()).digest()[:8]
    return int.from_bytes(draw, "big") % (wait_ms + 1)
