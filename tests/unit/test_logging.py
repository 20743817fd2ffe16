"""Logs as JSON and as text."""

import io
import json
from collections.abc import Iterator

import msgspec
import pytest
import structlog

from holdfast.observe.log_setup import FIELDS_FIRST, JsonLines, RepeatedLine, TextLines, configure, is_text, line_writer
from holdfast.observe.transitions import TransitionLine


@pytest.fixture(autouse=True)
def _fresh_structlog() -> Iterator[None]:
    yield
    structlog.reset_defaults()


class Moved(msgspec.Struct):
    """A record like those of the coordinator."""

    event: str
    job_id: str
    ts_ms: int = 1


class CountingStream(io.BytesIO):
    """Counts the writes."""

    writes = 0

    def write(self, data: object) -> int:
        self.writes += 1
        return super().write(data)  # type: ignore[arg-type]  # bytes, as the writers under test send


def logged(**fields: object) -> dict[str, object]:
    stream = io.BytesIO()
    configure(service="coordinator", stream=stream)
    structlog.get_logger().warning("job.refused", **fields)
    line = json.loads(stream.getvalue())
    assert isinstance(line, dict)
    return line


def test_line_has_the_required_fields_in_order() -> None:
    """A line is one JSON object whose required fields come first, in their documented order."""
    fields = {
        "method": "SubmitJob",
        "job_id": "j",
        "worker_id": "w",
        "grpc_code": "NOT_FOUND",
        "message": "m",
    }
    line = logged(extra=1, **fields)
    assert tuple(line) == (*FIELDS_FIRST, "extra")
    assert (line["level"], line["service"], line["event"]) == ("warning", "coordinator", "job.refused")
    assert isinstance(line["ts_ms"], int)


def test_fields_that_do_not_apply_are_left_out() -> None:
    """Ids and codes that do not apply are left out, but method and message are always present."""
    assert tuple(logged()) == ("ts_ms", "level", "service", "method", "event", "message")


def test_odd_values_are_still_one_line() -> None:
    """A value that JSON does not know is written as text, and a line break stays inside its string."""
    assert logged(message="a\nb", error=ValueError("x"))["error"] == "x"


def test_no_record_below_the_level_is_written() -> None:
    """Nothing below the configured level is written."""
    stream = io.BytesIO()
    configure(service="s", level="error", stream=stream)
    structlog.get_logger().info("quiet")
    assert stream.getvalue() == b""


def test_many_records_are_one_write() -> None:
    """A batch of records is written as lines in a single write."""
    stream = CountingStream()
    JsonLines(stream).write(Moved("job.started", str(number)) for number in range(100))
    assert stream.writes == 1
    assert [json.loads(line)["job_id"] for line in stream.getvalue().splitlines()] == [
        str(number) for number in range(100)
    ]


@pytest.mark.parametrize("writer", [JsonLines, TextLines])
def test_no_records_are_no_write(writer: type[JsonLines | TextLines]) -> None:
    """An empty batch writes nothing to the stream."""
    stream = CountingStream()
    writer(stream).write([])
    assert stream.writes == 0


def test_text_log_escapes_control_characters() -> None:
    """Control characters in a job's text are escaped in text logs."""
    stream = io.BytesIO()
    TextLines(stream).write([Moved("job.started", "\x1b[2Jx\n")])
    assert stream.getvalue().endswith(b"job.started  job_id=\\x1b[2Jx\\n\n")


def test_text_rendering_shows_the_same_event() -> None:
    """The text format shows the event, its fields and its message on one line."""
    stream = io.BytesIO()
    configure(service="worker", log_format="text", stream=stream)
    structlog.get_logger().info("job.done", job_id="j1", message="fine")
    text = stream.getvalue().decode()
    assert text.count("\n") == 1
    assert "info     job.done  service=worker job_id=j1  fine" in text


class Terminal(io.BytesIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_auto_format_follows_the_stream() -> None:
    """The automatic format is text on a terminal and JSON elsewhere, and an explicit format overrides it."""
    assert is_text("auto", Terminal())
    assert not is_text("auto", io.BytesIO())
    assert not is_text("json", Terminal())
    assert isinstance(line_writer("auto", io.BytesIO()), JsonLines)
    assert isinstance(line_writer("text", io.BytesIO()), TextLines)


@pytest.mark.parametrize(
    "ids", [["a"], ["a-1", "b-2", "c-3"], ['quo"te', "back\\slash"], ["ünï", "\u202e"], ["new\nline"]]
)
def test_line_for_many_jobs_is_a_line_for_each(ids: list[str]) -> None:
    """Each id, whatever its characters, gets a JSON line of its own that differs only in the id."""
    stream = io.BytesIO()
    line = TransitionLine(1, "s", "", 'w"job_id":""', "", "QUEUED", 0, 5, 9, 'because "job_id":""')
    JsonLines(stream).write([RepeatedLine(line, ids)])
    records = [json.loads(text) for text in stream.getvalue().decode().splitlines()]
    assert [record["job_id"] for record in records] == ids
    assert all(record == msgspec.structs.asdict(line) | {"job_id": record["job_id"]} for record in records)
