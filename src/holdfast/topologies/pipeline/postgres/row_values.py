"""Conversion of rows to values, and of values to storable ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.lifecycle import State
from holdfast.core.model import BackoffRule, Extra, Template
from holdfast.core.tasks import unknown_job
from holdfast.core.validation import is_given_id
from holdfast.errors import HoldfastError
from holdfast.ports import JobView

Row = Sequence[Any]

#: The largest number that a bigint column can store.
BIGINT_MAX = (1 << 63) - 1

_encode_extra = msgspec.msgpack.Encoder().encode
_decode_extra = msgspec.msgpack.Decoder(Extra).decode
_encode_labels = msgspec.json.Encoder().encode

#: The index after the template, in rows that begin with an id and a template.
TEMPLATE_END = 11


def template_of(row: Row) -> Template:
    """Returns the template of a row that begins with an id and a template."""
    _, type_, queue, priority, attempts, losses, timeout_ms, kind, base_ms, max_ms, simulated = row[:TEMPLATE_END]
    backoff = BackoffRule(kind, base_ms, max_ms)
    return Template(type_, queue, priority, attempts, losses, timeout_ms, backoff, simulated)


def extra_of(data: bytes | None) -> Extra | None:
    return None if data is None else _decode_extra(data)


def view_of(row: Row) -> JobView:
    """Returns the view for a row of `job_views`."""
    job_id, _, *rest = row
    state, created_ms, started_ms, finished_ms, not_before_ms, is_canceled, why, attempts, extra, failures, *last = (
        rest[10:]
    )
    losses, token, worker = last
    return JobView(
        job_id,
        template_of((job_id, *rest[:10])),
        State(state),
        created_ms,
        started_ms,
        finished_ms,
        not_before_ms,
        is_canceled,
        why,
        attempts,
        extra_of(extra),
        failures,
        losses,
        token,
        worker,
    )


def packed(extra: Extra | None) -> bytes | None:
    return None if extra is None else _encode_extra(extra)


def searchable(labels: Mapping[str, str]) -> str | None:
    """Returns the labels as JSON for the search; the exact labels are compared afterwards."""
    return (
        storable(_encode_labels({storable(key): storable(value) for key, value in labels.items()}).decode())
        if labels
        else None
    )


def storable(text: str) -> str:
    """Replaces NUL, the one character that PostgreSQL cannot store."""
    return text.replace("\0", "\ufffd") if "\0" in text else text


def known_id(job_id: str) -> str:
    """Returns the id; raises `NotFoundError` if it is not a valid job id."""
    if is_given_id(job_id) is None:
        raise no_job(job_id)
    return job_id


def no_job(job_id: str) -> HoldfastError:
    return unknown_job(job_id).error()


def possible_ids(job_ids: Sequence[str]) -> list[str]:
    """Returns the valid ids."""
    return [job_id for job_id in job_ids if is_given_id(job_id)]
