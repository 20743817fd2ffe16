"""Exports traces of the Holdfast programs as OpenTelemetry's environment variables configure it; needs `traces`.

`OTEL_TRACES_EXPORTER` (`otlp`, `console` or `none`) or an OTLP endpoint enables the export. OpenTelemetry itself reads
samplers, resources, headers and certificates from the environment.

Invariants: a provider that the application has set up is used. At its end the program waits a limited time until the
remaining spans are sent.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from holdfast.errors import FailedPreconditionError, InvalidArgumentError
from holdfast.observe.tracing import provided

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_EXPORTER = "OTEL_TRACES_EXPORTER"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP, _CONSOLE, _NONE = "otlp", "console", "none"
_EXPORTERS = (_OTLP, _CONSOLE, _NONE)
_GRPC = "grpc"
#: A reachable collector accepts the remaining spans much faster.
FLUSH_S = 3.0


@contextmanager
def exporting(environment: Mapping[str, str], service: str) -> Iterator[None]:
    """Exports the spans of the block, if the environment enables it.

    `InvalidArgumentError` for an unsupported value, `FailedPreconditionError` if the extra `traces` is not installed.
    """
    wanted = wanted_exporter(environment)
    if wanted != _NONE and provided() is None:
        _forward_log()
        _set(_provider(wanted, service))
    try:
        yield
    finally:
        _flush()


def wanted_exporter(environment: Mapping[str, str]) -> str:
    """Returns the configured exporter; `none` by default."""
    said = environment.get(_EXPORTER, "").strip().lower()
    if said and said not in _EXPORTERS:
        message = f"{_EXPORTER} must be one of {', '.join(_EXPORTERS)}, got {said[:80]!r}"
        raise InvalidArgumentError(message, reason="TRACES_INVALID")
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return _NONE
    wanted = said or (_OTLP if any(environment.get(name) for name in _ENDPOINTS) else _NONE)
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), _GRPC)
    if wanted == _OTLP and protocol != _GRPC:
        message = f"{_PROTOCOLS[1]} must be {_GRPC}, the only supported protocol, got {protocol[:80]!r}"
        raise InvalidArgumentError(message, reason="TRACES_INVALID")
    return wanted


def _provider(wanted: str, service: str) -> "TracerProvider":
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _exporter(wanted)
    except ImportError as error:
        message = (
            f"the environment enables traces ({_EXPORTER} or {_ENDPOINTS[1]}), but the exporter is not installed:"
            f" run `pip install 'holdfast[traces]'`, or set {_EXPORTER}=none ({error})"
        )
        raise FailedPreconditionError(message, reason="TRACES_NOT_INSTALLED") from error
    named = SERVICE_NAME in OTELResourceDetector().detect().attributes
    provider = TracerProvider(
        resource=Resource.create({} if named else {SERVICE_NAME: service}),
        shutdown_on_exit=False,  # it could take half a minute
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporter(wanted: str) -> "SpanExporter":
    if wanted == _CONSOLE:
        import sys

        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)  # standard output has only the ready line, which programs read
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _set(provider: "TracerProvider") -> None:
    from opentelemetry import trace

    trace.set_tracer_provider(provider)


def _flush() -> None:
    """Sends the remaining spans of the current provider; a process that is replaced by exec would lose them."""
    flush: Callable[[], object] | None = getattr(provided(), "force_flush", None)
    if flush is None:
        return
    thread = threading.Thread(target=flush, name="holdfast-traces", daemon=True)
    thread.start()
    thread.join(FLUSH_S)
    if thread.is_alive():
        structlog.get_logger().warning("traces_lost", message=f"no collector accepted them within {FLUSH_S:g} s")


class _ForwardingHandler(logging.Handler):
    """Forwards the log records of OpenTelemetry to our log."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        say = log.error if record.levelno >= logging.ERROR else log.warning
        say("traces", message=record.getMessage())


def _forward_log() -> None:
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(_ForwardingHandler(logging.WARNING))
    logger.propagate = False
