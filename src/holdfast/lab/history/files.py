"""Histories in a folder: written a line at a time by many processes, read by whoever judges them."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from holdfast.errors import FailedPreconditionError
from holdfast.lab.history.records import Record, Run

RUN = "run.json"
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_ENCODER = msgspec.json.Encoder()
#: What a decoder raises: for what is no JSON or no text, and for what nests too deep.
_UNREADABLE = (ValueError, RecursionError)
_NOTHING = hashlib.sha256().digest()


def now_us() -> int:
    """Steady time, the same in all processes of this machine."""
    return time.monotonic_ns() // 1_000


class Writer:
    """Appends records to one file. Whoever is killed while it writes leaves whole lines, and perhaps a cut last one."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, record: Record) -> None:
        """One line, in one piece; with the kernel when this returns."""
        line = _ENCODER.encode(record) + b"\n"
        if os.write(self._handle, line) != len(line):
            raise OSError(f"the history could not be written: no room for {len(line)} bytes")

    def close(self) -> None:
        """Nothing more comes."""
        os.close(self._handle)


def write_run(folder: Path, run: Run) -> None:
    """What was run; replaces what was said before, whole or not at all."""
    fresh = folder / f"{RUN}.new"
    fresh.write_bytes(msgspec.json.format(_ENCODER.encode(run)) + b"\n")
    fresh.replace(folder / RUN)


def read_run(folder: Path) -> Run:
    """What was run."""
    try:
        return msgspec.json.decode((folder / RUN).read_bytes(), type=Run)
    except OSError as error:
        raise FailedPreconditionError(f"there is no history in {folder}: {error.strerror or error}") from None
    except _UNREADABLE as error:
        raise FailedPreconditionError(f"{folder / RUN} is not what was run: {error}") from None


def read_records(folder: Path) -> Iterator[Record]:
    """Every record of every file, each file in its order; whatever cannot be read is refused, and named."""
    known: dict[bytes, Path] = {}
    for path in _files(folder):
        content = hashlib.sha256()
        for number, line in _lines(path):
            content.update(line)
            yield _record(path, number, line)
        if content.digest() != _NOTHING and (first := known.setdefault(content.digest(), path)) != path:
            raise FailedPreconditionError(f"{path} is a copy of {first}: what happened once would count twice")


def _record(path: Path, number: int, line: bytes) -> Record:
    try:
        return _DECODER.decode(line)
    except _UNREADABLE as error:
        raise FailedPreconditionError(f"{path}:{number} is not a record of a history: {error}") from None


def _files(folder: Path) -> list[Path]:
    """Also those of folders below; one that cannot be looked into may hold what breaks a promise."""

    def refuse(error: OSError) -> None:
        raise FailedPreconditionError(f"{error.filename} cannot be read: {error.strerror}")

    walk = os.walk(folder, onerror=refuse)
    return sorted(Path(place, name) for place, _, names in walk for name in names if name.endswith(".jsonl"))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The whole lines with their numbers; whoever wrote a last one without its end was killed in the middle."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise FailedPreconditionError(f"{path} cannot be read: it is no file")
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield number, line
    except OSError as error:
        raise FailedPreconditionError(f"{path} cannot be read: {error.strerror or error}") from None
