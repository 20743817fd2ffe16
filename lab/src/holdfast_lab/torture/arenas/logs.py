"""Incremental readers of process logs: ready and dead roles, refusals without disk space, and unexpected lines.

Several processes may share a file; each line is written in one piece.
"""

from pathlib import Path
from typing import Any

import msgspec

_WORDS_MAX = 400
#: The start of the line in which a program reports why it cannot start.
REFUSAL = "holdfast: "
#: The reason of refusals on a full disk.
_NO_ROOM = "NO_SPACE"


class Log:
    """One log file; `strange` are lines that are not in the log's format, and reported bugs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_bytes = 0
        self.lines: dict[str, list[dict[str, Any]]] = {}
        self.refusals: list[str] = []
        self.no_room = 0
        self.strange: list[str] = []

    def read(self) -> None:
        """Reads the lines that were added since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                whole = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return
        self._read_bytes += len(whole) + bool(whole)
        for line in whole.splitlines():
            self._take(line)

    def of(self, event: str) -> list[dict[str, Any]]:
        """Returns all lines of one event so far."""
        return self.lines.get(event, [])

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace")[:_WORDS_MAX]
        if text.startswith(REFUSAL):
            self.refusals.append(text)
            return
        try:
            record = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            self.strange.append(f"{self.path.name}: {text}")
            return
        event = str(record.get("event"))
        self.no_room += record.get("reason") == _NO_ROOM
        if event == "bug":
            self.strange.append(f"{self.path.name}: {text}")
        if event in KEPT:
            self.lines.setdefault(event, []).append(record)


#: The events whose lines are kept; all others would only use memory.
KEPT = frozenset({"role_ready", "role_died", "role_unstarted", "database_died", "ensemble_server_died"})
