"""Spans of an application: of its submits, and of the attempts of its workers."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from holdfast import Backoff, Holdfast, current
from holdfast.sdk.errors import JobFailedError, SubmitManyError
from tests.e2e.wait_until import DEADLINE_S, eventually

USER = "user"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans of this process during one test; OpenTelemetry otherwise sets a provider only once."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
def app() -> Iterator[Holdfast]:
    """An app in memory."""
    with Holdfast("memory://") as opened:
        yield opened


def spans(exporter: InMemorySpanExporter, name: str, job_type: str) -> list[ReadableSpan]:
    """The spans of one name and job type, in the order of their ends."""
    found = [span for span in exporter.get_finished_spans() if span.name == name]
    return [span for span in found if (span.attributes or {}).get("holdfast.job.type") == job_type]


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def parent(span: ReadableSpan) -> int:
    return span.parent.span_id if span.parent is not None else 0


def test_every_attempt_links_to_where_its_job_was_submitted(app: Holdfast, exporter: InMemorySpanExporter) -> None:
    """Each attempt has a span that links to its submit, and a failed one has the exception."""

    @app.job(max_attempts=2, queue="mail", backoff=Backoff.fixed(0))
    def send_mail() -> str:
        if current().attempt == 1:
            raise ValueError("no such address")
        return "sent"

    tracer = trace.get_tracer(USER)
    with app.worker(worker_id="postman"), tracer.start_as_current_span("request") as request:
        job = send_mail.submit()
        assert job.result(timeout_s=DEADLINE_S) == "sent"
    (sent,) = spans(exporter, "send mail", "send_mail")
    first, second = spans(exporter, "process mail", "send_mail")
    assert parent(sent) == request.get_span_context().span_id
    assert linked(first) == linked(second) == [ids(sent)]
    assert first.parent is second.parent is None
    assert len({ids(span)[0] for span in (sent, first, second)}) == 3
    told = [span.attributes or {} for span in (sent, first, second)]
    assert {one["messaging.message.id"] for one in told} == {job.id}
    assert [one.get("holdfast.job.attempt") for one in told] == [None, 1, 2]
    assert [one.get("holdfast.job.outcome") for one in told] == [None, "failed", "done"]
    assert [one.get("messaging.client.id") for one in told] == [None, "postman", "postman"]
    assert told[1]["error.type"] == "ValueError"
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "no such address")
    (raised,) = first.events
    assert "no such address" in str((raised.attributes or {})["exception.stacktrace"])
    assert second.status.status_code == StatusCode.UNSET


def test_spans_of_job_code_are_children_of_the_attempt_span(app: Holdfast, exporter: InMemorySpanExporter) -> None:
    """A job's own spans and submits are children of the attempt's span, in a thread and on the loop."""

    @app.job
    def inner() -> None:
        pass

    @app.job
    def in_a_thread() -> None:
        with trace.get_tracer(USER).start_as_current_span("own of in_a_thread"):
            inner.submit().result(timeout_s=DEADLINE_S)

    @app.job
    async def on_the_loop() -> None:
        with trace.get_tracer(USER).start_as_current_span("own of on_the_loop"):
            await (await inner.asubmit()).aresult(timeout_s=DEADLINE_S)

    with app.worker():
        for function in (in_a_thread, on_the_loop):
            exporter.clear()
            function.submit().result(timeout_s=DEADLINE_S)
            (outer,) = eventually(lambda name=function.name: spans(exporter, "process default", name))  # type: ignore[misc]
            (own,) = [span for span in exporter.get_finished_spans() if span.name.startswith("own of")]
            (sent,) = spans(exporter, "send default", "inner")
            (ran,) = eventually(lambda: spans(exporter, "process default", "inner"))
            assert parent(own) == ids(outer)[1]
            assert parent(sent) == ids(own)[1]
            assert linked(ran) == [ids(sent)]
            inner.submit().result(timeout_s=DEADLINE_S)
            assert spans(exporter, "send default", "inner")[-1].parent is None
            eventually(lambda: spans(exporter, "process default", "inner"), lambda found: len(found) == 2)


async def test_twins_trace_alike(app: Holdfast, exporter: InMemorySpanExporter) -> None:
    """An awaited submit is a child of the span around it."""
    app.job(name="len")(len)
    with trace.get_tracer(USER).start_as_current_span("request") as request:
        job = await app.asubmit("len", {"obj": "four"})
    (sent,) = spans(exporter, "send default", "len")
    assert parent(sent) == request.get_span_context().span_id
    seen = (await app.aget(job.id)).seen
    assert seen is not None
    assert seen.extra is not None
    assert dict(seen.extra.headers)["traceparent"].split("-")[2] == f"{ids(sent)[1]:016x}"


def test_many_jobs_are_one_submission(app: Holdfast, exporter: InMemorySpanExporter) -> None:
    """A batch has one submit span with its count, and each job links to it."""

    @app.job
    def double(number: int) -> int:
        return 2 * number

    with app.worker():
        for job in double.submit_many([(number,) for number in range(5)]):
            job.result(timeout_s=DEADLINE_S)
    (sent,) = spans(exporter, "send default", "double")
    assert (sent.attributes or {})["messaging.batch.message_count"] == 5
    ran = spans(exporter, "process default", "double")
    assert [linked(span) for span in ran] == [[ids(sent)]] * 5


def test_refused_jobs_are_an_error_of_their_submission(app: Holdfast, exporter: InMemorySpanExporter) -> None:
    """The span of a refused submit has the error."""

    @app.job(queue="closed")
    def never() -> None:
        pass

    app.drain("closed")
    with pytest.raises(SubmitManyError):
        never.submit_many([()])
    (sent,) = spans(exporter, "send closed", "never")
    assert sent.status.status_code == StatusCode.ERROR
    assert (sent.attributes or {})["error.type"] == "SubmitManyError"


def test_context_that_a_job_was_given_stays(app: Holdfast, exporter: InMemorySpanExporter) -> None:
    """A context in the job's own headers is linked by the submit and by the attempt."""
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with app.worker():
        job = app.submit("echo", [1], headers={"traceparent": given})
        job.result(timeout_s=DEADLINE_S)
    (sent,), (ran,) = spans(exporter, "send default", "echo"), spans(exporter, "process default", "echo")
    assert linked(sent) == linked(ran) == [(int(given[3:35], 16), int(given[36:52], 16))]


def test_how_an_attempt_was_ended_is_told(app: Holdfast, exporter: InMemorySpanExporter) -> None:
    """The span of an attempt that timed out is failed, and that of a canceled one is not."""

    @app.job(timeout_s=0.05)
    async def slow() -> None:
        import asyncio  # noqa: PLC0415 - as jobs may

        await asyncio.Event().wait()

    with app.worker():
        with pytest.raises(JobFailedError):
            slow.submit().result(timeout_s=DEADLINE_S)
        job = slow.with_options(timeout_s=0).submit()
        eventually(lambda: job.status().name == "RUNNING")
        job.cancel()
        eventually(lambda: job.status().name == "CANCELED")
        late, canceled = eventually(lambda: spans(exporter, "process default", "slow"), lambda found: len(found) == 2)
    assert (late.attributes or {})["error.type"] == "TIMEOUT"
    assert (late.attributes or {})["holdfast.job.outcome"] == "failed"
    assert (canceled.attributes or {})["holdfast.job.outcome"] == "canceled"
    assert canceled.status.status_code == StatusCode.UNSET


def test_without_a_provider_nothing_is_carried(app: Holdfast) -> None:
    """Without a provider a job carries no context, except that of a remote span which is current."""
    with app.worker():
        plain = app.submit("echo", [1])
        assert plain.result(timeout_s=DEADLINE_S) == [1]
    seen = app.get(plain.id).seen
    assert seen is not None
    assert seen.extra is None
    remote = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(remote)):
        passed = app.get(app.submit("echo", [1]).id).seen
    assert passed is not None
    assert passed.extra is not None
    assert dict(passed.extra.headers) == {"traceparent": f"00-{1:032x}-{2:016x}-01"}
