"""Records that jobs leave in the trial's folder: the start and the end of each run, and the session of its worker."""

import os
from pathlib import Path

import msgspec

from holdfast_lab.peers import trial_environment

_FILE = "records"


class Record(msgspec.Struct, frozen=True):
    """The start or the end of one run of a job."""

    what: str
    index: int
    session: int


def write_record(what: str, index: int) -> None:
    """Append one line: atomic among processes, and kept if the process is killed right after."""
    line = f"{what} {index} {os.getsid(0)}\n".encode()
    file = os.open(trial_environment.folder() / _FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def read_records(folder: Path | None = None) -> list[Record]:
    """All records so far, in order."""
    file = (folder or trial_environment.folder()) / _FILE
    lines = file.read_text().splitlines() if file.exists() else []
    return [Record(what, int(index), int(session)) for what, index, session in (line.split() for line in lines)]
