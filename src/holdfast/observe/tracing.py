"""OpenTelemetry spans: `send <queue>` for submissions, `process <queue>` for attempts.

A job carries the context of its `send` span in its headers, and every attempt links to that span. It is a link and not
a parent, because a job may run a day later and several times: each attempt is a trace that is read and sampled alone.

Invariants:
- The import of OpenTelemetry takes tens of milliseconds, so this module does not import it first: an application with a
  provider has imported it. Without a provider, a submission costs a lookup in `sys.modules`, and an attempt nothing.
- If a provider raises, its spans are lost, but never a job.
"""

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from holdfast.core.trace_context import TraceContext, carried_context, trace_context

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext, TracerProvider
    from opentelemetry.util.types import AttributeValue

T = TypeVar("T")

_API = "opentelemetry.trace"
_NAME = "holdfast"
_LOG = logging.getLogger("holdfast")


class SpanSubject(NamedTuple):
    """The attributes of a span about a job, or about the first of several jobs."""

    queue: str
    type: str
    job_id: str = ""
    headers: Mapping[str, str] = {}


class SpanError(NamedTuple):
    """The error of a span; only the type is always known."""

    type: str
    message: str = ""
    traceback: str = ""


def provided() -> "TracerProvider | None":
    """Returns the provider of this process, or None."""
    trace: Any = sys.modules.get(_API)
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider


def is_inside() -> bool:
    """Returns whether the caller runs inside a span, possibly of another process."""
    trace: Any = sys.modules.get(_API)
    return trace is not None and trace.get_current_span().get_span_context().is_valid


class SubmissionScope:
    """A context manager around a submission that is not traced. Jobs carry its `context`, if there is one."""

    __slots__ = ()

    @property
    def context(self) -> TraceContext | None:
        """The trace context for the jobs."""
        return None

    def accepted(self, job_id: str) -> None:
        """Records the id of the accepted job."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        return None


_UNTRACED = SubmissionScope()


class SubmissionTracer:
    """Traces submissions. Looks for a provider until there is one: a program may submit before it sets one up."""

    def __init__(self) -> None:
        self._tracing: Tracing | None = None

    def submission_scope(self, about: SpanSubject, count: int = 0) -> SubmissionScope:
        """Returns a context manager around the submission of one job, or of `count` jobs together."""
        tracing = self._tracing
        if tracing is None:
            if _API not in sys.modules:
                return _UNTRACED
            tracing = self._found()
        return _UNTRACED if tracing is None else tracing.submission_scope(about, count)

    def _found(self) -> "Tracing | None":
        provider = provided()
        if provider is not None:
            self._tracing = Tracing(provider)
            return self._tracing
        # Nothing is recorded here, but the context of a surrounding span is passed on.
        return Tracing() if is_inside() else None


class Tracing:
    """Creates the spans of one provider; without a provider it only passes on contexts."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        from opentelemetry import context, trace

        self._api = trace
        self._attach = context.attach
        #: A context without a span.
        self._nowhere = context.Context()
        self._tracer = (provider or trace.NoOpTracerProvider()).get_tracer(_NAME)

    def submission_scope(self, about: SpanSubject, count: int = 0) -> SubmissionScope:
        """Begins the span of a submission, as a child of the current span."""
        attributes = _attributes("send", about)
        if count:
            del attributes["messaging.message.id"]
            attributes["messaging.batch.message_count"] = count
        try:
            kind, links = self._api.SpanKind.PRODUCER, self._links(about)
            span = self._tracer.start_span(f"send {about.queue}", kind=kind, attributes=attributes, links=links)
            return TracedSubmissionScope(self, span)
        except Exception:  # noqa: BLE001 - errors of the provider, its sampler or its processors
            return _lost(_UNTRACED)

    def begin(self, about: SpanSubject, *, attempt: int, worker_id: str, start_ns: int) -> "Span | None":
        """Begins the span of an attempt: a new trace, linked to the span of the submission."""
        attributes = _attributes("process", about)
        attributes |= {"holdfast.job.attempt": attempt, "messaging.client.id": worker_id}
        try:
            return self._tracer.start_span(
                f"process {about.queue}",
                context=self._nowhere,
                kind=self._api.SpanKind.CONSUMER,
                attributes=attributes,
                links=self._links(about),
                start_time=start_ns,
            )
        except Exception:  # noqa: BLE001 - as above
            return _lost(None)

    def end(
        self, span: "Span", *, outcome: str = "", broken: SpanError | None = None, end_ns: int | None = None
    ) -> None:
        """Ends a span, with the outcome or the error of its operation."""
        try:
            if outcome:
                span.set_attribute("holdfast.job.outcome", outcome)
            if broken is not None:
                self._break(span, broken, end_ns)
            span.end(end_ns)
        except Exception:  # noqa: BLE001 - as above
            _lost(None)

    def _break(self, span: "Span", broken: SpanError, at_ns: int | None) -> None:
        span.set_attribute("error.type", broken.type)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, broken.message or broken.type))
        if broken.traceback:
            event = {
                "exception.type": broken.type,
                "exception.message": broken.message,
                "exception.stacktrace": broken.traceback,
            }
            span.add_event("exception", event, at_ns)

    def activate(self, span: "Span") -> None:
        """Makes this the current span of the current context."""
        self._attach(self._api.set_span_in_context(span, self._nowhere))

    def context_of(self, span: "Span") -> TraceContext | None:
        """Returns the span's trace context for other processes; None if it is invalid."""
        place = span.get_span_context()
        if not place.is_valid:
            return None
        parent = f"00-{place.trace_id:032x}-{place.span_id:016x}-{place.trace_flags:02x}"
        return trace_context(parent, place.trace_state.to_header())

    def _links(self, about: SpanSubject) -> "list[Link]":
        context = carried_context(about.headers)
        return [] if context is None else [self._api.Link(_place(context))]


class TracedSubmissionScope(SubmissionScope):
    """The span of a submission."""

    __slots__ = ("_context", "_span", "_tracing")

    def __init__(self, tracing: Tracing, span: "Span") -> None:
        self._tracing = tracing
        self._span = span
        self._context = tracing.context_of(span)

    @property
    def context(self) -> TraceContext | None:
        """The context of the span."""
        return self._context

    def accepted(self, job_id: str) -> None:
        """Sets the job id; it differs from the id in the request if the submit found an existing job."""
        try:
            self._span.set_attribute("messaging.message.id", job_id)
        except Exception:  # noqa: BLE001 - as above; the job is already durable
            _lost(None)

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        broken = None if error is None else SpanError(type(error).__qualname__, str(error))
        self._tracing.end(self._span, broken=broken)


def adopt(context: TraceContext) -> None:
    """Makes a span of the parent process the current span, in a child process that runs a job."""
    from opentelemetry.trace import NonRecordingSpan

    Tracing().activate(NonRecordingSpan(_place(context)))


def _place(context: TraceContext) -> "SpanContext":
    """Returns the span context of a span in another process."""
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    _, trace_id, span_id, flags, *_ = context.traceparent.split("-")
    state = TraceState.from_header([context.tracestate]) if context.tracestate else None
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)), state)  # noqa: FBT003


def _attributes(operation: str, about: SpanSubject) -> "dict[str, AttributeValue]":
    return {
        "messaging.system": _NAME,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": about.queue,
        "messaging.message.id": about.job_id,
        "holdfast.job.type": about.type,
    }


def _lost(instead: T) -> T:
    _LOG.debug("a span was lost", exc_info=True)
    return instead
