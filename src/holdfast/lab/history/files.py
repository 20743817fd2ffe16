"""Histories in a folder: written a line at a time by many processes, read by whoever judges them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from holdfast.errors import FailedPreconditionError
from holdfast.lab.history.records import Record, Run

RUN = "run.json"
_DECODER = msgspec.json.Decoder(Record)
_ENCODER = msgspec.json.Encoder()


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
    """What was run; replaces what was said before."""
    (folder / RUN).write_bytes(msgspec.json.format(_ENCODER.encode(run)) + b"\n")


def read_run(folder: Path) -> Run:
    """What was run."""
    try:
        return msgspec.json.decode((folder / RUN).read_bytes(), type=Run)
    except OSError as error:
        raise FailedPreconditionError(f"there is no history in {folder}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise FailedPreconditionError(f"{folder / RUN} is not what was run: {error}") from None


def read_records(folder: Path) -> Iterator[Record]:
    """Every record of every file, each file in its order."""
    for path in sorted(folder.rglob("*.jsonl")):
        *lines, cut = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                yield _DECODER.decode(line)
            except msgspec.DecodeError as error:
                raise FailedPreconditionError(f"{path}:{number} is not a record of a history: {error}") from None
        del cut  # whoever wrote it was killed in the middle
