"""Spans from submit to run of two processes, received by an OTLP collector."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_rpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from tests.e2e.fleet import Fleet, clean_environment, stable_port
from tests.e2e.wait_until import DEADLINE_S

APP = """
import os
from holdfast import Backoff, Holdfast, current

app = Holdfast(os.environ["SHOP"])

@app.job(queue="mail", max_attempts=2, backoff=Backoff.fixed(0))
def greet(name: str) -> str:
    if current().attempt == 1:
        raise ValueError("not yet")
    return f"Hello, {name}"

@app.job
def note(text: str) -> str:
    return text

@app.job(isolation="process")
def apart() -> str:
    return note.submit("from a child").id
"""
SUBMIT = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)

from shop import app, apart, greet, note

with trace.get_tracer("web").start_as_current_span("request"):
    job = greet.submit("Ada")
print(job.id, job.result(timeout_s=60), sep="|")
app.get(apart.submit().result(timeout_s=60)).result(timeout_s=60)
app.close()
provider.shutdown()
"""


class Collector(otlp_rpc.TraceServiceServicer):
    """Stores every received span with the name of its service."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        self._lock = threading.Lock()

    def Export(self, request: otlp.ExportTraceServiceRequest, _: object) -> otlp.ExportTraceServiceResponse:  # noqa: N802 - gRPC's name
        """Stores one batch of spans."""
        with self._lock:
            for resource in request.resource_spans:
                service = told(resource.resource)["service.name"]
                self.spans += [(service, span) for scope in resource.scope_spans for span in scope.spans]
        return otlp.ExportTraceServiceResponse()

    def about(self, name: str, job_type: str) -> list[Span]:
        """Returns the spans with this name and job type, by start time."""
        with self._lock:
            found = [
                span for _, span in self.spans if span.name == name and told(span)["holdfast.job.type"] == job_type
            ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


def told(of: Any) -> dict[str, Any]:  # noqa: ANN401 - any message with attributes
    """Returns the attributes by name."""
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in of.attributes}


def linked(span: Span) -> list[tuple[bytes, bytes]]:
    return [(link.trace_id, link.span_id) for link in span.links]


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """Yields a running collector and its endpoint."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    otlp_rpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # generated
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet in a folder with an app."""
    (loaded_fleet.folder / "shop.py").write_text(APP)
    return loaded_fleet


def run(folder: Path, program: str, **environment: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_one_story_from_submit_to_run(fleet: Fleet) -> None:
    """The submit span of an application is linked to the worker's span of each attempt, also from a child process."""
    _, wire = fleet.server()
    with collecting() as (collector, endpoint):
        shared = {"SHOP": f"holdfast://{wire.target}", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        worker = fleet.start("worker", "-A", "shop:app", "--worker-id", "w1", **shared)
        worker.ready()
        job_id, result = run(fleet.folder, SUBMIT, **shared, OTEL_SERVICE_NAME="web").strip().split("|")
        assert result == "Hello, Ada"
        assert worker.stop() == 0
        services = {service for service, _ in collector.spans}
    assert services == {"web", "holdfast-worker"}

    (request,) = [span for _, span in collector.spans if span.name == "request"]
    (sent,) = collector.about("send mail", "greet")
    first, second = collector.about("process mail", "greet")
    assert (sent.kind, sent.trace_id, sent.parent_span_id) == (
        Span.SPAN_KIND_PRODUCER,
        request.trace_id,
        request.span_id,
    )
    assert linked(first) == linked(second) == [(sent.trace_id, sent.span_id)]
    assert len({sent.trace_id, first.trace_id, second.trace_id}) == 3
    assert {first.kind, second.kind} == {Span.SPAN_KIND_CONSUMER}
    shared_words = {
        "messaging.system": "holdfast",
        "messaging.destination.name": "mail",
        "messaging.message.id": job_id,
    }
    assert [told(span) for span in (sent, first, second)] == [
        {**shared_words, **operation, "holdfast.job.type": "greet", **own}
        for operation, own in (
            (_operation("send"), {}),
            (_operation("process"), {**_attempt(1, "failed"), "error.type": "ValueError"}),
            (_operation("process"), _attempt(2, "done")),
        )
    ]
    assert (first.status.code, first.status.message) == (Status.STATUS_CODE_ERROR, "not yet")
    assert second.status.code == Status.STATUS_CODE_UNSET

    (apart,) = collector.about("process default", "apart")
    (noted,) = collector.about("process default", "note")
    assert linked(noted) == [(apart.trace_id, apart.span_id)]


def _operation(name: str) -> dict[str, Any]:
    return {"messaging.operation.name": name, "messaging.operation.type": name}


def _attempt(number: int, outcome: str) -> dict[str, Any]:
    return {"messaging.client.id": "w1", "holdfast.job.attempt": number, "holdfast.job.outcome": outcome}


@pytest.mark.slow
def test_worker_ends_although_no_collector_is_there(fleet: Fleet) -> None:
    """A worker without a collector runs its jobs, logs the lost spans and exits, and `none` disables tracing."""
    nobody = f"http://127.0.0.1:{stable_port()}"
    _, wire = fleet.server()
    shop = {
        "SHOP": f"holdfast://{wire.target}",
        "OTEL_EXPORTER_OTLP_ENDPOINT": nobody,
        "OTEL_EXPORTER_OTLP_TIMEOUT": str(2 * DEADLINE_S),  # far longer than the worker may take to exit
    }
    submit = "from shop import app, note; print(note.submit('x').result(timeout_s=60)); app.close()"
    for more, is_told in (({}, True), ({"OTEL_TRACES_EXPORTER": "none"}, False)):
        worker = fleet.start("worker", "-A", "shop:app", **shop, **more)
        worker.ready()
        assert run(fleet.folder, submit, **shop) == "x\n"
        assert worker.stop() == 0
        assert all(line.startswith("{") for line in worker.log.splitlines())
        assert bool(worker.lines("traces_lost")) == is_told
        assert bool(worker.lines("traces")) == is_told


def test_unsupported_exporter_stops_a_program_at_its_start(fleet: Fleet) -> None:
    """A worker or a server with an unsupported exporter exits with 2 and names the variable."""
    for command in (("worker", "--connect", "127.0.0.1:1"), ("server", "--data", "memory://")):
        program = fleet.start(*command, OTEL_TRACES_EXPORTER="zipkin")
        assert program.wait() == 2
        assert "OTEL_TRACES_EXPORTER" in program.log
        assert "Traceback" not in program.log


def test_command_takes_the_context_of_its_environment(fleet: Fleet) -> None:
    """A submit command passes on TRACEPARENT and TRACESTATE, and ignores malformed values."""
    _, wire = fleet.server()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for given, carried in ((parent, {"traceparent": parent, "tracestate": "a=1"}), ("nonsense", {})):
        submit = fleet.start("job", "submit", "echo", "--connect", wire.target, TRACEPARENT=given, TRACESTATE="a=1")
        assert submit.wait() == 0
        asked = pb.GetJobRequest(job_id=submit.output.strip())
        found = rpc.JobServiceStub(wire.channel).GetJob(asked, timeout=DEADLINE_S)
        assert dict(found.headers) == carried
