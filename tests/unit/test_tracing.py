"""Spans of submits and attempts, and the environment variables of tracing."""

import subprocess
import sys
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    format_span_id,
    format_trace_id,
)

from holdfast.core.trace_context import TraceContext
from holdfast.errors import HoldfastError
from holdfast.observe.tracing import SpanError, SpanSubject, SubmissionScope, TracedSubmissionScope, Tracing, adopt
from holdfast.observe.tracing_export import wanted_exporter

OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traced() -> tuple[Tracing, InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider), exporter


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def traceparent(span: ReadableSpan) -> str:
    assert span.context is not None
    context = span.context
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"


def test_submission_is_a_producer_whose_context_the_job_carries() -> None:
    """A submit is a producer span whose context the job carries, and an existing job's id replaces the new one."""
    tracing, exporter = traced()
    with tracing.submission_scope(SpanSubject("mail", "welcome", "made", {})) as submission_scope:
        carried = submission_scope.context
        submission_scope.accepted("there")
    span = only(exporter)
    assert (span.name, span.kind, span.status.status_code) == ("send mail", SpanKind.PRODUCER, StatusCode.UNSET)
    assert dict(span.attributes or {}) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": "there",
        "holdfast.job.type": "welcome",
    }
    assert carried is not None
    assert carried.traceparent == traceparent(span)


def test_submission_of_many_counts_them_and_names_none() -> None:
    """A batch submit is one span with the number of jobs and no job id, and links the context of the headers."""
    tracing, exporter = traced()
    with tracing.submission_scope(
        SpanSubject("mail", "welcome", "", {"traceparent": OTHER, "tracestate": "vendor=1"}), 3
    ):
        pass
    span = only(exporter)
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in span.attributes
    (link,) = span.links
    assert f"{format_trace_id(link.context.trace_id)}-{format_span_id(link.context.span_id)}" == OTHER[3:-3]
    assert link.context.is_remote
    assert link.context.trace_state.to_header() == "vendor=1"


def test_state_of_a_trace_goes_on() -> None:
    """A submit inside a remote span carries that span's trace state, if the state is valid."""
    adopted: dict[str, TraceContext | None] = {}

    def submit(state: str) -> None:
        adopt(TraceContext(OTHER, state))
        with traced()[0].submission_scope(SpanSubject("mail", "welcome")) as submission_scope:
            adopted[state] = submission_scope.context

    for state in ("vendor=1", "nonsense", ""):
        copy_context().run(submit, state)
    assert [context and context.tracestate for context in adopted.values()] == ["vendor=1", "", ""]
    assert {context and context.traceparent[:35] for context in adopted.values()} == {OTHER[:35]}


def test_refused_submission_is_an_error() -> None:
    """A refused submit marks its span as an error, and the exception is raised."""
    tracing, exporter = traced()
    with pytest.raises(LookupError), tracing.submission_scope(SpanSubject("mail", "welcome")):
        raise LookupError("no such queue")
    span = only(exporter)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "no such queue")
    assert (span.attributes or {})["error.type"] == "LookupError"


@pytest.mark.parametrize("header", ["", "nonsense", OTHER])
def test_attempt_is_a_consumer_linked_to_where_its_job_was_made(header: str) -> None:
    """An attempt is a consumer span of its own trace, linked to the submit if the job carries a valid context."""
    tracing, exporter = traced()
    about = SpanSubject("mail", "welcome", "id", {"traceparent": header} if header else {})
    span = tracing.begin(about, attempt=2, worker_id="w", start_ns=1_000)
    assert span is not None
    tracing.end(span, outcome="failed", broken=SpanError("shop.NoMailError", "no", "Traceback"), end_ns=5_000)
    ended = only(exporter)
    assert (ended.name, ended.kind, ended.parent) == ("process mail", SpanKind.CONSUMER, None)
    assert (ended.start_time, ended.end_time) == (1_000, 5_000)
    told: dict[str, Any] = dict(ended.attributes or {})
    assert told["messaging.operation.name"] == "process"
    assert told["messaging.client.id"] == "w"
    assert told["holdfast.job.attempt"] == 2
    assert told["holdfast.job.outcome"] == "failed"
    assert told["error.type"] == "shop.NoMailError"
    assert ended.status.status_code == StatusCode.ERROR
    assert [event.name for event in ended.events] == ["exception"]
    assert [format_span_id(link.context.span_id) for link in ended.links] == [OTHER.split("-")[2]] * (header == OTHER)


class _Broken(SpanProcessor):
    def on_start(self, span: Span, parent_context: object = None) -> None:
        raise RuntimeError("at the start")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("at the end")


def test_provider_that_raises_loses_its_spans_only() -> None:
    """A tracing provider that raises loses its spans, and affects neither submits nor attempts."""
    provider = TracerProvider()
    tracing = Tracing(provider)
    begun = tracing.begin(SpanSubject("q", "t"), attempt=1, worker_id="w", start_ns=0)
    assert begun is not None
    provider.add_span_processor(_Broken())
    tracing.end(begun, outcome="done")
    assert tracing.begin(SpanSubject("q", "t"), attempt=1, worker_id="w", start_ns=0) is None
    with tracing.submission_scope(SpanSubject("q", "t")) as submission_scope:
        assert type(submission_scope) is SubmissionScope
        assert submission_scope.context is None


class _FullSpan(NonRecordingSpan):
    """A span that can be started and ended, but rejects attributes."""

    def set_attribute(self, key: str, value: object) -> None:
        raise RuntimeError("no room")


def test_span_that_takes_nothing_costs_no_job() -> None:
    """A span that rejects attributes does not fail an accepted submit."""
    span = _FullSpan(SpanContext(1, 2, is_remote=False))
    with TracedSubmissionScope(Tracing(), span) as submission_scope:
        submission_scope.accepted("id")


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, "none"),
        ({"OTEL_SERVICE_NAME": "shop"}, "none"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, "none"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4317"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "Console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317"}, "none"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, "none"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "none"),
    ],
)
def test_environment_says_where_traces_go(environment: dict[str, str], wanted: str) -> None:
    """An exporter or an endpoint enables tracing, and a service name alone does not."""
    assert wanted_exporter(environment) == wanted


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
    ],
)
def test_unsupported_exporter_or_protocol_is_refused_by_name(environment: dict[str, str], named: str) -> None:
    """An unsupported exporter or protocol is refused by the variable's name."""
    with pytest.raises(HoldfastError, match=named):
        wanted_exporter(environment)


def test_nothing_of_ours_imports_opentelemetry() -> None:
    """Without tracing, neither the SDK with a worker nor the program imports OpenTelemetry."""
    program = (
        "import sys\nfrom holdfast import Holdfast\nimport holdfast.cli.worker, holdfast.cli.server\n"
        "from holdfast.observe.tracing_export import exporting\n"
        "with exporting({}, 'x'), Holdfast('memory://') as app, app.worker():\n"
        "    app.submit('echo', [1]).result(timeout_s=60)\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    assert ended.stdout == "[]\n"


def test_missing_extra_is_named() -> None:
    """If tracing is requested without its packages, the error names the extra to install."""
    program = (
        "import sys\nsys.modules['opentelemetry.sdk'] = None\n"
        "from holdfast.observe.tracing_export import exporting\n"
        "try:\n    exporting({'OTEL_TRACES_EXPORTER': 'otlp'}, 'x').__enter__()\n"
        "except Exception as error:\n    print(type(error).__name__, error.reason, 'holdfast[traces]' in str(error))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    assert ended.stdout == "FailedPreconditionError TRACES_NOT_INSTALLED True\n"
