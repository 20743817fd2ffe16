"""The history of one job in a large journal: how long it takes, what is read for it, and what submits notice of it.

    python -m holdfast.lab.faults.job_history [--megabytes 1024] [--json]

A journal of that size is written, a server is started on it, and one client submits, one job at a time, first alone and
then while readers open the histories of jobs from all over the journal: one at a time, and eight at once, each time
followed by a pause. The readers are processes of their own. Times of a busy machine mean little; the ratio and the
bytes do.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.core import commands, events
from holdfast.core.commands import Decision, GrantedLease, ReportRow
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Now, Template
from holdfast.core.owner import mint
from holdfast.journal.disk import File
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import FRAME_OVERHEAD, JournalConfig
from holdfast.ledger.snapshots import take_snapshot

_BATCH, _PAYLOAD_BYTES = 16, 4_096
_KEPT_JOBS = 1_000
_ASKED = 64
_PHASE_S = 8.0
_PAUSE_S = 0.25
_INDEXING_S = 300.0


class _QuickFile:
    """A file that is not synced: what is measured is made once, and thrown away."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.write_at, self.read_at, self.reserve = file.write_at, file.read_at, file.reserve
        self.truncate, self.size, self.close = file.truncate, file.size, file.close

    def sync(self) -> None:
        """Nothing of this has to survive."""


class _QuickDisk(OsDisk):
    def create(self, name: str) -> File:
        return _QuickFile(super().create(name))


class _Writer:
    """Jobs are submitted, granted, finished and soon forgotten; the journal remembers them."""

    def __init__(self, folder: Path) -> None:
        self._now_ms = int(time.time() * 1_000) - 3_600_000
        self._journal = FileJournal.open(
            _QuickDisk(folder), JournalConfig(), now_ms=self._now_ms, new_cluster_id=bytes(16)
        )
        self._ledger = Ledger(LedgerConfig())
        self.bytes = 0

    def _do(self, command: commands.AnyCommand) -> object:
        self._now_ms += 1
        decision = self._ledger.decide(command, Now(self._now_ms, self._now_ms))
        assert isinstance(decision, Decision)
        if decision.event is not None:
            self._ledger.apply(decision.event)
            body = events.join([events.encode_one(decision.event)])
            self.bytes += FRAME_OVERHEAD + len(body)
            self._journal.write(body, 1, self._ledger.digest, self._now_ms)
        return decision.reply

    def round(self) -> str:
        """Some jobs from beginning to end; the id of one of them."""
        ids = mint(os.urandom, _BATCH)
        rows = [NewJob(job_id, 0, os.urandom(_PAYLOAD_BYTES)) for job_id in ids]
        self._do(commands.Submit([Template("bench")], rows))
        granted = self._do(commands.GrantLeases("worker", frozenset({"bench"}), frozenset(), _BATCH, 30_000))
        assert isinstance(granted, list)
        self._do(commands.Report("worker", [_done(one) for one in granted]))
        self._do(commands.Evict(1 << 40, _KEPT_JOBS, 1 << 40, 1 << 40))
        return str(ids[0])

    def close(self) -> None:
        """The journal is whole."""
        self._journal.close()


def _done(lease: GrantedLease) -> ReportRow:
    return ReportRow(lease.job_id, lease.token, DONE, b"null")


def write_journal(folder: Path, size: int) -> list[str]:
    """A journal of about this size, covered by a snapshot; ids of jobs from all over it."""
    writer, ids = _Writer(folder), list[str]()
    while writer.bytes < size:
        ids.append(writer.round())
    writer.close()
    # Another opening seals what was written, so that the snapshot covers it.
    FileJournal.open(OsDisk(folder), JournalConfig(), now_ms=int(time.time() * 1_000), new_cluster_id=bytes(16)).close()
    take_snapshot(OsDisk(folder), LedgerConfig())
    step = max(1, len(ids) // _ASKED)
    return ids[::step]


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, int]]:
    """The address of HTTP, and the pid."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "holdfast",
        "server",
        "--data",
        str(folder),
        "--port",
        "0",
        "--http-port",
        "0",
    ]
    process = subprocess.Popen(
        [*command, "--port", "0", "--http-port", "0", "--log-format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield ready["http"], process.pid
    finally:
        process.terminate()
        process.wait()


class _Client:
    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=120)

    def ask(self, method: str, path: str, body: bytes | None = None) -> float:
        """Milliseconds until the whole answer was here."""
        start = time.perf_counter()
        headers = {"content-type": "application/json"} if body else {}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status < 300, answer.status  # noqa: PLR2004 - success
        return (time.perf_counter() - start) * 1e3

    def submit(self) -> float:
        return self.ask("POST", "/api/v1/jobs", b'{"type":"bench","payload":{"text":"x"}}')

    def history(self, job_id: str) -> float:
        return self.ask("GET", f"/api/v1/jobs/{job_id}/history")


def _read_bytes(pid: int) -> int:
    """What the process has read from files and sockets so far."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    return 0


def _wait_for_indexes(folder: Path, client: _Client) -> float:
    """Seconds until every sealed segment has an index; 0 where none appears, as before there were any."""
    start = time.monotonic()
    client.submit()
    while time.monotonic() - start < _INDEXING_S:
        names = [path.name for path in folder.iterdir()]
        segments = sum(name.endswith(".seg") for name in names)
        indexes = sum(name.endswith(".idx") for name in names)
        if indexes >= segments - 1:
            return time.monotonic() - start
        if not any(".idx" in name for name in names) and time.monotonic() - start > 15:  # noqa: PLR2004 - no such thing
            return 0.0
        time.sleep(0.1)
    raise AssertionError("the indexes were never finished")


def read_histories(address: str, ids: list[str], until: float) -> list[float]:
    """What a reader does: one history, a pause, the next."""
    client, spent = _Client(address), list[float]()
    while time.time() < until:
        spent.append(client.history(random.choice(ids)))
        time.sleep(_PAUSE_S)
    return spent


def _phase(address: str, ids: list[str], readers: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each submit and of each history while so many readers read."""
    command = [sys.executable, "-P", "-m", "holdfast.lab.faults.job_history", "--reader"]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(readers)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # starting costs the processor more than reading
    until = time.time() + _PHASE_S
    asked = json.dumps({"address": address, "ids": ids, "until": until})
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(asked)
        process.stdin.close()
    client, submits = _Client(address), list[float]()
    while time.time() < until:
        submits.append(client.submit())
    histories = list[float]()
    for process in processes:
        assert process.stdout is not None
        histories += json.loads(process.stdout.read())
        process.wait()
    return submits, histories


def measured(megabytes: int) -> dict[str, object]:
    """All figures."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-history-"))
    try:
        ids = write_journal(folder / "data", megabytes << 20)
        size = sum(path.stat().st_size for path in (folder / "data").glob("*.seg"))
        with _server(folder / "data") as (address, pid):
            client = _Client(address)
            indexing_s = _wait_for_indexes(folder / "data", client)
            for job_id in ids[:4]:
                client.history(job_id)
            before = _read_bytes(pid)
            alone = [client.history(job_id) for job_id in ids[4:12]]
            read = (_read_bytes(pid) - before) // len(alone)
            figures: dict[str, object] = {
                "journal_mb": size >> 20,
                "indexing_s": round(indexing_s, 1),
                "history_read_kb": read >> 10,
                "history_ms": round(statistics.median(alone), 2),
            }
            base = 0.0
            for readers in (0, 1, 8):
                submits, histories = _phase(address, ids, readers)
                p50 = statistics.median(submits)
                base = base or p50
                figures[f"submit_p50_ms_{readers}_readers"] = round(p50, 2)
                figures[f"submit_p50_ratio_{readers}_readers"] = round(p50 / base, 2)
                if histories:
                    figures[f"history_p50_ms_{readers}_readers"] = round(statistics.median(histories), 2)
                    figures[f"histories_{readers}_readers"] = len(histories)
            return figures
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Prints the table, or does a reader's part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1_024, help="the size of the journal (default: 1024)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--reader", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.reader:
        print("ready", flush=True)
        print(json.dumps(read_histories(**json.loads(sys.stdin.read()))))
        return
    figures = measured(given.megabytes)
    if given.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:36} {value:>12}")


if __name__ == "__main__":
    main()
