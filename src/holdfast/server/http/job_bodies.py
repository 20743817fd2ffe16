"""Conversion of job bodies to drafts, the same as over gRPC, so that the journal does not differ."""

import msgspec

from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, BackoffRule, Extra, Template
from holdfast.core.trace_context import TRACEPARENT, TRACESTATE, TraceContext, carrying, sent_context
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobDraft
from holdfast.server.http.instants import instant_ms, span_ms
from holdfast.server.http.request import Head
from holdfast.server.http.schemas import BackoffBody, JobBody, KindBody
from holdfast.server.http.strict_json import encode

_KINDS = {"fixed": FIXED, "exponential": EXPONENTIAL, "quadratic": QUADRATIC}
_NO_BACKOFF = BackoffRule()
_OF_TRACES = {name.encode(): name for name in (TRACEPARENT, TRACESTATE)}


def template_of(body: KindBody) -> Template:
    """Returns the fields that all jobs of this kind share."""
    return Template(
        body.type,
        body.queue,
        body.priority,
        body.max_attempts,
        body.max_losses,
        span_ms(body.timeout_s),
        _NO_BACKOFF if body.backoff is None else _backoff(body.backoff),
    )


def _backoff(body: BackoffBody) -> BackoffRule:
    return BackoffRule(_KINDS[body.kind], span_ms(body.base_s), span_ms(body.max_s))


def payload_of(payload: object) -> bytes:
    """Encodes arguments as the SDK does; empty if there are none."""
    return b"" if payload is msgspec.UNSET else encode(payload)


def context_of(head: Head) -> TraceContext | None:
    """Returns the trace context of a request, if it has one."""
    found = [(_OF_TRACES[name], value.decode("latin-1")) for name, value in head.headers if name in _OF_TRACES]
    return sent_context(found) if found else None


def draft_of(body: JobBody, template: int, request_id: str, context: TraceContext | None = None) -> JobDraft:
    """Converts one job of a submission; `request_id` and `context` of the request apply if the job has none."""
    if request_id and body.request_id and request_id != body.request_id:
        message = "request_id must be equal to the Idempotency-Key, or only one of them given"
        raise InvalidArgumentError(message, reason="REQUEST_ID_INVALID")
    request_id = body.request_id or request_id
    extra = None
    if request_id or body.labels or body.headers or body.unique_key:
        extra = Extra(
            request_id=request_id,
            labels=tuple(sorted(body.labels.items())),
            headers=tuple(sorted(body.headers.items())),
            unique_key=body.unique_key,
        )
    if context is not None:
        extra = carrying(extra, context)
    return JobDraft(
        template,
        payload_of(body.payload),
        span_ms(body.delay_s),
        instant_ms("not_before", body.not_before) if body.not_before is not None else 0,
        extra,
    )
