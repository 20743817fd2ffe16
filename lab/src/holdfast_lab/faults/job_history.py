"""The history of one job in a large journal: its duration, the bytes read for it, and its effect on submits.

    python -m holdfast_lab.faults.job_history [--megabytes 1024] [--json]

A journal of that size is written and a server is started on it. One client submits, one job at a time, first alone and
then while one and eight readers open the histories of jobs from all over the journal, with pauses. The readers are
processes of their own. On a busy machine, only the ratio and the bytes can be compared.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from holdfast.core import commands
from holdfast.core.ledger import LedgerConfig
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.disk import File
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.ledger.snapshots import take_snapshot
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.ledger_writer import JournalWriter
from holdfast_lab.measure.process_tree import proc_value
from holdfast_lab.measure.processes import child, holdfast_server, module, next_line
from holdfast_lab.measure.tables import fields

_BATCH, _PAYLOAD_BYTES = 16, 4_096
_KEPT_JOBS = 1_000
_ASKED = 64
_PHASE_S = 8.0
_PAUSE_S = 0.25
_INDEXING_S = 300.0
_HOUR_MS = 3_600_000


class _QuickFile:
    """A file that is not synced: the journal is only needed for the measurement."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.write_at, self.read_at, self.reserve = file.write_at, file.read_at, file.reserve
        self.truncate, self.size, self.close = file.truncate, file.size, file.close

    def sync(self) -> None:
        """Does nothing: the file need not survive a crash."""


class _QuickDisk(OsDisk):
    def create(self, name: str) -> File:
        return _QuickFile(super().create(name))


def write_journal(folder: Path, size: int) -> list[str]:
    """Write a journal of about this size and a snapshot of it; returns ids of jobs from all over it.

    Jobs are submitted, finished and soon evicted, so that only the journal knows most of them.
    """
    now_ms, ids = int(time.time() * 1_000), list[str]()
    begun_ms = now_ms - _HOUR_MS
    journal = FileJournal.open(_QuickDisk(folder), JournalConfig(), now_ms=begun_ms, new_cluster_id=bytes(16))
    writer = JournalWriter(journal, begun_ms)
    while writer.written_bytes < size:
        ids.append(writer.submit(_BATCH, os.urandom(_PAYLOAD_BYTES))[0])
        writer.finish(_BATCH)
        writer.do(commands.Evict(1 << 40, _KEPT_JOBS, 1 << 40, 1 << 40))
    journal.close()
    # Opening the journal again seals its last segment, so that the snapshot covers it.
    FileJournal.open(OsDisk(folder), JournalConfig(), now_ms=now_ms, new_cluster_id=bytes(16)).close()
    take_snapshot(DirectoryArchive(OsDisk(folder)), LedgerConfig())
    step = max(1, len(ids) // _ASKED)
    return ids[::step]


class _Client:
    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=120)

    def ask(self, method: str, path: str, body: bytes | None = None) -> float:
        """Returns the milliseconds until the whole response had arrived."""
        start = time.perf_counter()
        headers = {"content-type": "application/json"} if body else {}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        response.read()
        assert response.status < 300, response.status  # noqa: PLR2004 - success
        return (time.perf_counter() - start) * 1e3

    def submit(self) -> float:
        return self.ask("POST", "/api/v1/jobs", b'{"type":"bench","payload":{"text":"x"}}')

    def history(self, job_id: str) -> float:
        return self.ask("GET", f"/api/v1/jobs/{job_id}/history")


def _wait_for_indexes(folder: Path, client: _Client) -> float:
    """Seconds until every sealed segment has an index; 0 if none appears, as in versions without indexes."""
    start = time.monotonic()
    client.submit()
    while time.monotonic() - start < _INDEXING_S:
        names = [path.name for path in folder.iterdir()]
        segments = sum(name.endswith(".seg") for name in names)
        indexes = sum(name.endswith(".idx") for name in names)
        if indexes >= segments - 1:
            return time.monotonic() - start
        if not any(".idx" in name for name in names) and time.monotonic() - start > 15:  # noqa: PLR2004 - no indexes
            return 0.0
        time.sleep(0.1)
    raise AssertionError("the indexes were never finished")


def read_histories(address: str, ids: list[str], until: float) -> list[float]:
    """Reads histories, with a pause after each, as one reader."""
    client, spent = _Client(address), list[float]()
    while time.time() < until:
        spent.append(client.history(random.choice(ids)))
        time.sleep(_PAUSE_S)
    return spent


def _phase(address: str, ids: list[str], readers: int) -> tuple[list[float], list[float]]:
    """Returns the milliseconds of each submit and of each history with this many readers."""
    command = module("holdfast_lab.faults.job_history", "--reader")
    with ExitStack() as stack:
        processes = [stack.enter_context(child(command, stdin=subprocess.PIPE)) for _ in range(readers)]
        for process in processes:
            next_line(process)  # until it has started, which costs the processor more than reading
        until = time.time() + _PHASE_S
        task = json.dumps({"address": address, "ids": ids, "until": until})
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(task)
            process.stdin.close()
        client, submits = _Client(address), list[float]()
        while time.time() < until:
            submits.append(client.submit())
        return submits, [spent for process in processes for spent in json.loads(next_line(process))]


def measured(megabytes: int) -> dict[str, object]:
    """Returns all figures."""
    with tempfile.TemporaryDirectory(prefix="holdfast-history-") as name:
        folder = Path(name)
        ids = write_journal(folder / "data", megabytes << 20)
        size = sum(path.stat().st_size for path in (folder / "data").glob("*.seg"))
        with holdfast_server(folder=folder) as server:
            client = _Client(server.http)
            indexing_s = _wait_for_indexes(server.data, client)
            for job_id in ids[:4]:
                client.history(job_id)
            before = proc_value(server.pid, "io", "rchar")
            alone = [client.history(job_id) for job_id in ids[4:12]]
            read = (proc_value(server.pid, "io", "rchar") - before) // len(alone)
            figures: dict[str, object] = {
                "journal_mb": size >> 20,
                "indexing_s": round(indexing_s, 1),
                "history_read_kb": read >> 10,
                "history_ms": round(statistics.median(alone), 2),
            }
            base = 0.0
            for readers in (0, 1, 8):
                submits, histories = _phase(server.http, ids, readers)
                p50 = statistics.median(submits)
                base = base or p50
                figures[f"submit_p50_ms_{readers}_readers"] = round(p50, 2)
                figures[f"submit_p50_ratio_{readers}_readers"] = round(p50 / base, 2)
                if histories:
                    figures[f"history_p50_ms_{readers}_readers"] = round(statistics.median(histories), 2)
                    figures[f"histories_{readers}_readers"] = len(histories)
            return figures


def main() -> None:
    """Prints the table, or acts as a reader."""
    options = parser(__doc__)
    options.add_argument("--megabytes", type=int, default=1_024, help="the size of the journal (default: 1024)")
    options.add_argument("--reader", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.reader:
        print("ready", flush=True)
        print(json.dumps(read_histories(**json.loads(sys.stdin.read()))))
        return
    figures = measured(given.megabytes)
    show(figures, fields(figures), as_json=given.json)


if __name__ == "__main__":
    main()
