"""The stream behind the log: it accepts every line at once, and reports the lines that it dropped."""

import json
import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast.observe.log_stream import BackgroundStream

LINE = b'{"event":"line"}\n'


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe, which only the test reads."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """Reads up to the given bytes; pytest's timeout ends the wait."""
    found = b""
    while wanted not in found:
        found += os.read(descriptor, 65_536)
    return found


def test_lines_come_out_whole_and_in_order(pipe: tuple[int, int]) -> None:
    """The stream writes lines whole and in order, and closing it waits for them."""
    reader, writer = pipe
    with closing(BackgroundStream(writer)) as stream:
        for number in range(100):
            assert stream.write(b"%d\n" % number) == len(b"%d\n" % number)
    assert read_until(reader, b"99\n").split() == [b"%d" % number for number in range(100)]


def test_writing_never_waits_for_a_reader_and_drops_are_counted(pipe: tuple[int, int]) -> None:
    """Lines beyond the pipe's capacity and the bound are dropped, and a JSON line later reports their number."""
    reader, writer = pipe
    stream = BackgroundStream(writer, waiting_bytes_max=10 * len(LINE))
    written = 20_000
    for _ in range(written):
        stream.write(LINE)
    kept = b""
    while b"log_lines_dropped" not in kept:
        kept += os.read(reader, 65_536)
        stream.write(LINE)
        written += 1
    stream.write(b'{"event":"end"}\n')
    stream.close()
    os.dup2(reader, writer)  # closes the write end; the fixture closes the number
    while data := os.read(reader, 65_536):
        kept += data
    lines = [json.loads(line) for line in kept.splitlines()]
    dropped = sum(line["dropped"] for line in lines if line["event"] == "log_lines_dropped")
    assert dropped + sum(line["event"] == "line" for line in lines) <= written
    assert dropped > 10_000
    required = {"ts_ms", "level", "service", "method", "event", "message"}
    assert all(required <= line.keys() for line in lines if "dropped" in line)


def test_logging_into_a_closed_pipe_raises_no_error() -> None:
    """Logging into a closed pipe raises no error."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = BackgroundStream(writer)
    for _ in range(100):
        stream.write(LINE)
    stream.close()
    os.close(writer)
