"""Histories in a folder: written a line at a time by many processes, read by the checker."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from holdfast.errors import FailedPreconditionError
from holdfast_lab.history.records import Record, Run

RUN = "run.json"
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_ENCODER = msgspec.json.Encoder()
#: Errors of a decoder: for invalid JSON or text, and for too deep nesting.
_UNREADABLE = (ValueError, RecursionError)
_NOTHING = hashlib.sha256().digest()


def now_us() -> int:
    """Monotonic time, the same in all processes of this machine."""
    return time.monotonic_ns() // 1_000


class Writer:
    """Appends records to one file; a process that is killed leaves whole lines, and maybe an incomplete last one."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, record: Record) -> None:
        """Writes one line with a single call; it survives the end of this process."""
        line = _ENCODER.encode(record) + b"\n"
        if os.write(self._handle, line) != len(line):
            raise OSError(f"the history could not be written: no space for {len(line)} bytes")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._handle)


def write_run(folder: Path, run: Run) -> None:
    """Writes the parameters of the run; replaces the old file atomically."""
    fresh = folder / f"{RUN}.new"
    fresh.write_bytes(msgspec.json.format(_ENCODER.encode(run)) + b"\n")
    fresh.replace(folder / RUN)


def read_run(folder: Path) -> Run:
    """Reads the parameters of the run."""
    try:
        return msgspec.json.decode((folder / RUN).read_bytes(), type=Run)
    except OSError as error:
        raise FailedPreconditionError(
            f"{folder} must be the directory of a recorded history (run.json and *.jsonl), such as one that"
            f" `holdfast lab torture` wrote, got: {error.strerror or error}"
        ) from None
    except _UNREADABLE as error:
        raise FailedPreconditionError(f"{folder / RUN} is not a valid run: {error}") from None


def read_records(folder: Path) -> Iterator[Record]:
    """Yields every record of every file, each file in its order; raises an error that names what cannot be read."""
    known: dict[bytes, Path] = {}
    for path in _files(folder):
        content = hashlib.sha256()
        for number, line in _lines(path):
            content.update(line)
            yield _record(path, number, line)
        if content.digest() != _NOTHING and (first := known.setdefault(content.digest(), path)) != path:
            raise FailedPreconditionError(f"{path} is a copy of {first}: its records would count twice")


def _record(path: Path, number: int, line: bytes) -> Record:
    try:
        return _DECODER.decode(line)
    except _UNREADABLE as error:
        raise FailedPreconditionError(f"{path}:{number} is not a record of a history: {error}") from None


def _files(folder: Path) -> list[Path]:
    """Finds the files, also in subfolders; raises if a folder cannot be read, as it may contain a violation."""

    def refuse(error: OSError) -> None:
        raise FailedPreconditionError(f"{error.filename} cannot be read: {error.strerror}")

    walk = os.walk(folder, onerror=refuse)
    return sorted(Path(place, name) for place, _, names in walk for name in names if name.endswith(".jsonl"))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields the complete lines with their numbers; an incomplete last line means that the writer was killed."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise FailedPreconditionError(f"{path} cannot be read: it is not a regular file")
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield number, line
    except OSError as error:
        raise FailedPreconditionError(f"{path} cannot be read: {error.strerror or error}") from None
