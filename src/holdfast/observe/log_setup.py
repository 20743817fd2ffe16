"""Logs: one JSON object per line on stderr, or the same events as text on a terminal.

Every line has `ts_ms, level, service, method, event, message`, and `job_id`, `worker_id`, `grpc_code` where
they apply. Event names are stable. Neither payloads nor secrets are logged.
"""

import logging
import sys
import time
from collections.abc import Iterable, MutableMapping
from typing import Any, Literal, Protocol

import msgspec
import structlog

from holdfast.core.text import printable

Format = Literal["auto", "json", "text"]
Level = Literal["debug", "info", "warning", "error"]

FIELDS_FIRST = (
    "ts_ms",
    "level",
    "service",
    "method",
    "event",
    "job_id",
    "worker_id",
    "grpc_code",
    "message",
)
_ALWAYS_PRESENT = frozenset({"method", "message"})

_encode = msgspec.json.Encoder(enc_hook=str).encode


class ByteStream(Protocol):
    """A destination of log lines."""

    def write(self, data: bytes, /) -> int:
        """Accepts whole lines; raises OSError if the stream fails."""
        ...

    def flush(self) -> None:
        """Writes the accepted lines."""
        ...

    def isatty(self) -> bool:
        """Returns whether the stream is a terminal."""
        ...

    def close(self) -> None:
        """Writes the accepted lines, and accepts no more."""
        ...


def configure(
    *, service: str, level: str = "info", log_format: Format = "auto", stream: ByteStream | None = None
) -> None:
    """Configures structlog for this process; the only place that does so."""
    stream = stream or sys.stderr.buffer
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _stamp(service),
            Renderer(service, line_writer(log_format, stream)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.BytesLoggerFactory(stream),  # type: ignore[arg-type]  # only write and flush are used
        cache_logger_on_first_use=False,
    )


def is_text(log_format: Format, stream: ByteStream) -> bool:
    """Returns whether lines are rendered as text: as configured, or for `auto` if the stream is a terminal."""
    return stream.isatty() if log_format == "auto" else log_format == "text"


class Renderer:
    """The last processor: renders one event as a line. Complete records are written to its `lines` instead."""

    def __init__(self, service: str, lines: "LineWriter") -> None:
        self.service = service
        self.lines = lines

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> bytes:
        return self.lines.rendered(event)


class RepeatedLine(msgspec.Struct, frozen=True):
    """The same line for many jobs: `line` has an empty `job_id`, and is written once for each of `job_ids`."""

    line: msgspec.Struct
    job_ids: list[str]


class LineWriter(Protocol):
    """A writer of complete records, many at a time."""

    def write(self, records: Iterable[msgspec.Struct]) -> None:
        """Writes one line per record. Raises OSError if the stream fails; some lines may have been written."""

    def rendered(self, fields: MutableMapping[str, Any]) -> bytes:
        """Renders one line of these fields, without a newline."""


class JsonLines:
    """The fast path for records such as state transitions: one write for many records."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()

    def write(self, records: Iterable[msgspec.Struct]) -> None:
        lines = b"".join(map(self._lines, records))
        if lines:
            self._stream.write(lines)
            self._stream.flush()

    def rendered(self, fields: MutableMapping[str, Any]) -> bytes:
        return _encode(fields)

    def _lines(self, record: msgspec.Struct) -> bytes:
        if not isinstance(record, RepeatedLine):
            return self._encoder.encode(record) + b"\n"
        if not _is_plain("".join(record.job_ids)):
            return self._encoder.encode_lines([_with_id(record.line, job_id) for job_id in record.job_ids])
        # Encode the text around the ids once. Quotes inside values are escaped, so `_NO_ID` occurs nowhere else.
        head, _, tail = self._encoder.encode(record.line).decode().partition(_NO_ID)
        head = f"{head}{_NO_ID[:-1]}"
        between = f'"{tail}\n{head}'
        return f'{head}{between.join(record.job_ids)}"{tail}\n'.encode()


class TextLines:
    """Records as text."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def write(self, records: Iterable[msgspec.Struct]) -> None:
        lines = "".join(
            f"{render_text(msgspec.structs.asdict(line))}\n" for record in records for line in _each(record)
        )
        if lines:
            self._stream.write(lines.encode("utf-8", "backslashreplace"))
            self._stream.flush()

    def rendered(self, fields: MutableMapping[str, Any]) -> bytes:
        return render_text(fields).encode("utf-8", "backslashreplace")


_NO_ID = '"job_id":""'


def _is_plain(text: str) -> bool:
    """Returns whether JSON needs no escapes for the text."""
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


def _with_id(line: msgspec.Struct, job_id: str) -> msgspec.Struct:
    return msgspec.structs.replace(line, job_id=job_id)


def _each(record: msgspec.Struct) -> Iterable[msgspec.Struct]:
    if isinstance(record, RepeatedLine):
        return (_with_id(record.line, job_id) for job_id in record.job_ids)
    return (record,)


def line_writer(log_format: Format, stream: ByteStream) -> LineWriter:
    return TextLines(stream) if is_text(log_format, stream) else JsonLines(stream)


def render_text(fields: MutableMapping[str, Any]) -> str:
    """Renders `12:00:00.123 info  job_finished  job_id=… message`; control characters in values are escaped.

    A traceback (the field `exception`) follows on the lines below.
    """
    rest = " ".join(
        f"{name}={printable(str(value))}"
        for name, value in fields.items()
        if name not in _TEXT_APART and value not in ("", None)
    )
    parts = (
        _clock(int(fields.get("ts_ms", 0))),
        f"{fields.get('level', 'info')!s:<7}",
        str(fields.get("event", "")),
        rest,
        printable(str(fields.get("message", ""))),
    )
    line = "  ".join(part for part in parts if part)
    return "\n".join([line, *(f"    {printable(text)}" for text in str(fields.get("exception", "")).splitlines())])


#: Fields with a place of their own in a text line.
_TEXT_APART = frozenset({"ts_ms", "level", "event", "message", "exception"})


def _clock(ts_ms: int) -> str:
    seconds, millis = divmod(ts_ms, 1_000)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{millis:03}"


def _stamp(service: str) -> structlog.typing.Processor:
    def stamp(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["ts_ms"] = time.time_ns() // 1_000_000
        event.setdefault("service", service)
        first = {name: event.get(name, "") for name in FIELDS_FIRST if name in event or name in _ALWAYS_PRESENT}
        return first | {name: value for name, value in event.items() if name not in first}

    return stamp
