"""Validation of submissions: pure checks that return a refusal with one sentence; every gateway uses them."""

import re
from collections.abc import Sequence

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, BackoffRule, Extra, NewJob, Template
from holdfast.core.text import is_text
from holdfast.errors import Code

_NAME = re.compile(limits.NAME_PATTERN)
_SHOWN_CHARS_MAX = 80
# The largest integer of the wire and the journal; the frozen contract states no smaller bound.
_INT64_MAX = (1 << 63) - 1


def invalid(reason: str, message: str) -> Refusal:
    """A refusal of input that can never be accepted as it is."""
    return Refusal(Code.INVALID_ARGUMENT, reason, message)


def expected(what: str, rule: str, got: object) -> str:
    """A sentence with the expected and the received value, the latter shortened for display."""
    text = repr(got)
    shown = text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}..."
    return f"{what} must be {rule}, got {shown}"


def check_batch(payloads: Sequence[bytes], templates: int) -> Refusal | None:
    """The first problem of a submission as a whole, or None."""
    if not 0 < len(payloads) <= limits.BATCH_JOBS_MAX:
        rule = f"from 1 to {limits.BATCH_JOBS_MAX} jobs"
        return invalid("BATCH_SIZE_INVALID", f"a submission must have {rule}, got {len(payloads)}")
    if sum(map(len, payloads)) > limits.BATCH_BYTES_MAX:
        return invalid(
            "BATCH_TOO_LARGE", f"expected at most {limits.BATCH_BYTES_MAX} bytes of payload in a batch; split the batch"
        )
    if templates > limits.BATCH_JOBS_MAX:
        return invalid("TEMPLATES_TOO_MANY", f"expected at most {limits.BATCH_JOBS_MAX} templates, got {templates}")
    return None


def check_template(template: Template) -> Refusal | None:
    """The first problem of a template, or None."""
    return _check_type(template) or check_queue(template.queue) or _check_numbers(template)


def _check_type(template: Template) -> Refusal | None:
    name = template.type
    if not name:
        return invalid("JOB_TYPE_EMPTY", "the job type must be a non-empty string, got ''")
    if len(name) > limits.TYPE_CHARS_MAX:
        rule = f"at most {limits.TYPE_CHARS_MAX} characters"
        return invalid("JOB_TYPE_TOO_LONG", f"the job type must be {rule}, got {len(name)}")
    if template.simulated:
        is_valid, rule = name.isprintable(), "printable text"
    else:
        is_valid, rule = bool(_NAME.fullmatch(name)), "letters, digits, '.', '_' and '-' only"
    return None if is_valid else invalid("JOB_TYPE_INVALID", expected("the job type", rule, name))


def check_queue(queue: str) -> Refusal | None:
    """The refusal of an invalid queue name, or None."""
    return check_name("the queue name", queue, "QUEUE_NAME_INVALID")


def check_name(what: str, name: str, reason: str) -> Refusal | None:
    """The refusal of an invalid name of a queue, schedule and the like, or None."""
    if len(name) <= limits.NAME_CHARS_MAX and _NAME.fullmatch(name):
        return None
    rule = f"1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-'"
    return invalid(reason, expected(what, rule, name))


def _check_numbers(template: Template) -> Refusal | None:
    for what, value, low, high in (
        ("priority", template.priority, limits.PRIORITY_MIN, limits.PRIORITY_MAX),
        ("max_attempts", template.max_attempts, 1, limits.ATTEMPTS_MAX),
        ("max_losses", template.max_losses, 0, limits.LOSSES_MAX),
        ("timeout_ms", template.timeout_ms, 0, limits.TIMEOUT_MS_MAX),
    ):
        if not low <= value <= high:
            return invalid("OPTION_OUT_OF_RANGE", expected(what, f"from {low} to {high}", value))
    return _check_backoff(template.backoff)


def _check_backoff(backoff: BackoffRule) -> Refusal | None:
    if backoff.kind not in (FIXED, EXPONENTIAL, QUADRATIC):
        return invalid("BACKOFF_INVALID", expected("the kind of backoff", "0, 1 or 2", backoff.kind))
    for what, value in (("backoff base_ms", backoff.base_ms), ("backoff max_ms", backoff.max_ms)):
        if not 0 <= value <= limits.BACKOFF_MS_MAX:
            return invalid("OPTION_OUT_OF_RANGE", expected(what, f"from 0 to {limits.BACKOFF_MS_MAX}", value))
    return None


def check_job(job: NewJob, template_count: int, now_ms: int) -> Refusal | None:
    """The first problem of one job of a submission, or None."""
    if not 0 <= job.template < template_count:
        return invalid(
            "TEMPLATE_INDEX_INVALID", expected("the template index", f"below {template_count}", job.template)
        )
    if len(job.payload) > limits.PAYLOAD_BYTES_MAX:
        rule = f"at most {limits.PAYLOAD_BYTES_MAX} bytes"
        return invalid("PAYLOAD_TOO_LARGE", f"the payload must be {rule}, got {len(job.payload)}")
    if not 0 <= job.not_before_ms <= now_ms + limits.DELAY_MS_MAX:
        return invalid("DELAY_TOO_LONG", "the job must be due within a year")
    if not 0 < len(job.id) <= limits.JOB_ID_CHARS_MAX or not job.id.isprintable():
        rule = f"1 to {limits.JOB_ID_CHARS_MAX} printable characters"
        return invalid("JOB_ID_INVALID", expected("the job id", rule, job.id))
    return check_extra(job.extra) if job.extra is not None else None


#: An id from a client must be a UUID in its canonical form, so that equal ids are equal text.
is_given_id = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch


def bad_given_id(job_id: str) -> Refusal:
    """The refusal of an id that `is_given_id` does not match."""
    return invalid("JOB_ID_INVALID", expected("the job id", "a UUID in lower-case text form", job_id))


def check_reason(reason: str) -> Refusal | None:
    """The refusal of an invalid reason for a cancel or a queue mode, or None."""
    if not is_text(reason):
        return invalid("REASON_INVALID", expected("the reason", "text that UTF-8 can encode", reason))
    if len(reason) <= limits.REASON_CHARS_MAX:
        return None
    rule = f"at most {limits.REASON_CHARS_MAX} characters"
    return invalid("REASON_TOO_LONG", f"the reason must be {rule}, got {len(reason)}")


def check_extra(extra: Extra) -> Refusal | None:
    """The first problem of keys, labels or headers, or None."""
    for what, key, chars_max in (
        ("request id", extra.request_id, limits.REQUEST_ID_CHARS_MAX),
        ("unique key", extra.unique_key, limits.UNIQUE_KEY_CHARS_MAX),
    ):
        if key and (len(key) > chars_max or not key.isprintable()):
            return _bad_key(what, key, chars_max)
    if len(extra.retry_of) > limits.JOB_ID_CHARS_MAX or not extra.retry_of.isprintable():
        return invalid(
            "JOB_ID_INVALID",
            f"retry_of must be a job id of at most {limits.JOB_ID_CHARS_MAX} printable characters",
        )
    for what, value in (
        ("work_duration_ms", extra.work_duration_ms),
        ("payload_size_bytes", extra.payload_size_bytes),
    ):
        if not 0 <= value <= _INT64_MAX:
            return invalid("OPTION_OUT_OF_RANGE", expected(what, f"from 0 to {_INT64_MAX}", value))
    return _check_pairs("label", extra.labels) or _check_pairs("header", extra.headers)


def _bad_key(what: str, key: str, chars_max: int) -> Refusal:
    name = what.replace(" ", "_").upper()
    if len(key) > chars_max:
        return invalid(f"{name}_TOO_LONG", f"the {what} must be at most {chars_max} characters, got {len(key)}")
    return invalid(f"{name}_INVALID", expected(f"the {what}", "printable text", key))


def _check_pairs(what: str, pairs: tuple[tuple[str, str], ...]) -> Refusal | None:
    if len(pairs) > limits.LABELS_MAX:
        return invalid("LABELS_TOO_MANY", f"expected at most {limits.LABELS_MAX} {what}s, got {len(pairs)}")
    for key, value in pairs:
        if not key or len(key) > limits.LABEL_KEY_CHARS_MAX or not key.isprintable():
            rule = f"1 to {limits.LABEL_KEY_CHARS_MAX} printable characters"
            return invalid("LABEL_KEY_INVALID", expected(f"each {what} name", rule, key))
        if len(value) > limits.LABEL_VALUE_CHARS_MAX:
            rule = f"at most {limits.LABEL_VALUE_CHARS_MAX} characters"
            return invalid("LABEL_VALUE_TOO_LONG", f"the {what} {key!r} must be {rule}, got {len(value)}")
        if not is_text(value):
            return invalid("LABEL_VALUE_INVALID", expected(f"the {what} {key!r}", "text that UTF-8 can encode", value))
    return None
