"""Spans of OpenTelemetry: `send <queue>` where jobs are submitted, `process <queue>` where they run.

A job carries the context of its `send` span in its headers, and every attempt links to it. A link, and no parent: a job
may run a day later and several times, and each attempt is a trace that can be read, and sampled, by itself.

Invariants:
- OpenTelemetry takes tens of milliseconds to import, and nothing here imports it before somebody else has: whoever has
  a provider has imported it. Without one, a submission costs a look into `sys.modules`, and an attempt nothing.
- A provider that raises loses its spans, and never a job.
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


class About(NamedTuple):
    """What a span tells of a job, or of the first of several."""

    queue: str
    type: str
    job_id: str = ""
    headers: Mapping[str, str] = {}


class Broken(NamedTuple):
    """Why something failed; only the type is always known."""

    type: str
    message: str = ""
    traceback: str = ""


def provided() -> "TracerProvider | None":
    """The provider of this process, if it has one."""
    trace: Any = sys.modules.get(_API)
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider


def is_inside() -> bool:
    """Whether there is a span around the caller, be it one of another process."""
    trace: Any = sys.modules.get(_API)
    return trace is not None and trace.get_current_span().get_span_context().is_valid


class Sending:
    """A submission that is not traced: a block, in which jobs carry the `context`, if there is one."""

    __slots__ = ()

    @property
    def context(self) -> TraceContext | None:
        """What the jobs carry."""
        return None

    def accepted(self, job_id: str) -> None:
        """The one job is durable, under this id."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        return None


_UNTRACED = Sending()


class Producer:
    """Whoever submits. The provider is looked for until there is one: a program may submit before it sets one up."""

    def __init__(self) -> None:
        self._tracing: Tracing | None = None

    def sending(self, about: About, count: int = 0) -> Sending:
        """A block around a submission of one job, or of `count` jobs together."""
        tracing = self._tracing
        if tracing is None:
            if _API not in sys.modules:
                return _UNTRACED
            tracing = self._found()
        return _UNTRACED if tracing is None else tracing.sending(about, count)

    def _found(self) -> "Tracing | None":
        provider = provided()
        if provider is not None:
            self._tracing = Tracing(provider)
            return self._tracing
        # Nothing is recorded here, but a span of somebody else may be passed on.
        return Tracing() if is_inside() else None


class Tracing:
    """The spans of one provider, or none but those passed on."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        from opentelemetry import context, trace

        self._api = trace
        self._attach = context.attach
        #: Where no span is around.
        self._nowhere = context.Context()
        self._tracer = (provider or trace.NoOpTracerProvider()).get_tracer(_NAME)

    def sending(self, about: About, count: int = 0) -> Sending:
        """Begins the span of a submission, under whatever span there is around it."""
        attributes = _attributes("send", about)
        if count:
            del attributes["messaging.message.id"]
            attributes["messaging.batch.message_count"] = count
        try:
            kind, links = self._api.SpanKind.PRODUCER, self._links(about)
            span = self._tracer.start_span(f"send {about.queue}", kind=kind, attributes=attributes, links=links)
            return TracedSending(self, span)
        except Exception:  # noqa: BLE001 - of the provider, its sampler or its processors
            return _lost(_UNTRACED)

    def begin(self, about: About, *, attempt: int, worker_id: str, start_ns: int) -> "Span | None":
        """Begins the span of an attempt: a trace of its own, linked to where its job was made."""
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

    def end(self, span: "Span", *, outcome: str = "", broken: Broken | None = None, end_ns: int | None = None) -> None:
        """Ends a span, and says how what it stands for ended."""
        try:
            if outcome:
                span.set_attribute("holdfast.job.outcome", outcome)
            if broken is not None:
                self._break(span, broken, end_ns)
            span.end(end_ns)
        except Exception:  # noqa: BLE001 - as above
            _lost(None)

    def _break(self, span: "Span", broken: Broken, at_ns: int | None) -> None:
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
        """Makes it the span around whatever runs in this context from now on."""
        self._attach(self._api.set_span_in_context(span, self._nowhere))

    def context_of(self, span: "Span") -> TraceContext | None:
        """Where the span is, as others are told of it."""
        place = span.get_span_context()
        if not place.is_valid:
            return None
        parent = f"00-{place.trace_id:032x}-{place.span_id:016x}-{place.trace_flags:02x}"
        return trace_context(parent, place.trace_state.to_header())

    def _links(self, about: About) -> "list[Link]":
        context = carried_context(about.headers)
        return [] if context is None else [self._api.Link(_place(context))]


class TracedSending(Sending):
    """The span of a submission."""

    __slots__ = ("_context", "_span", "_tracing")

    def __init__(self, tracing: Tracing, span: "Span") -> None:
        self._tracing = tracing
        self._span = span
        self._context = tracing.context_of(span)

    @property
    def context(self) -> TraceContext | None:
        """Where the jobs are made."""
        return self._context

    def accepted(self, job_id: str) -> None:
        """A job that was there before has another id than the one that was made for it."""
        try:
            self._span.set_attribute("messaging.message.id", job_id)
        except Exception:  # noqa: BLE001 - as above; the job is durable by now
            _lost(None)

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        broken = None if error is None else Broken(type(error).__qualname__, str(error))
        self._tracing.end(self._span, broken=broken)


def adopt(context: TraceContext) -> None:
    """In a process that runs a job for another: the span around what runs here is the one over there."""
    from opentelemetry.trace import NonRecordingSpan

    Tracing().activate(NonRecordingSpan(_place(context)))


def _place(context: TraceContext) -> "SpanContext":
    """Where a span of another process is."""
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    _, trace_id, span_id, flags, *_ = context.traceparent.split("-")
    state = TraceState.from_header([context.tracestate]) if context.tracestate else None
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)), state)  # noqa: FBT003


def _attributes(operation: str, about: About) -> "dict[str, AttributeValue]":
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
