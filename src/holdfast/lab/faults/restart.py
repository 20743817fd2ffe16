"""How long a restart takes: `python -m holdfast.lab.faults.restart [--jobs N] [--json]`.

A directory with this many queued jobs and a snapshot of them is made. A server is started on it, and its probes are
asked again and again: when its ports answer, and when jobs can be submitted. For comparison, the snapshot alone is
read: once decoded into rows and no more, once into a table of jobs by id. The ratios are of processor time, so that
other programs of the machine do not count, and of a start that no probe disturbs.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.core import events, image
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import NewJob, Template
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import FRAME_OVERHEAD, JournalConfig
from holdfast.journal.snapshot import SnapshotHeader, list_snapshots, read_snapshot, write_snapshot

_BATCH = 500
_ASK_S = 0.01
_BEGIN_MS = 1_700_000_000_000
_PAYLOAD = b'{"number": 12345}'


def fill(directory: Path, jobs: int) -> None:
    """Makes a journal with these jobs, all queued, and a snapshot of them."""
    disk, ledger = OsDisk(directory), Ledger(LedgerConfig())
    config = JournalConfig(digest_version=DIGEST_VERSION)
    journal = FileJournal.open(disk, config, now_ms=_BEGIN_MS, new_cluster_id=uuid.uuid4().bytes)
    for batch, first in enumerate(range(0, jobs, _BATCH), 1):
        at_ms = _BEGIN_MS + batch
        rows = [NewJob(str(uuid.uuid4()), 0, _PAYLOAD) for _ in range(min(_BATCH, jobs - first))]
        event = events.Created(at_ms, [Template("noop")], rows)
        ledger.apply(event)
        body = events.join([events.encode_one(event)])
        journal.reserve(len(body) + FRAME_OVERHEAD)
        journal.write(body, 1, ledger.digest, at_ms)
    header = SnapshotHeader(
        digest_version=DIGEST_VERSION,
        cluster_id=journal.cluster_id,
        position=ledger.position,
        link=journal.end_checksum,
        log_time_ms=ledger.book.last_ms,
        digest=ledger.digest,
    )
    journal.close()
    write_snapshot(disk, header, image.dump(ledger))


_rows = msgspec.msgpack.Decoder(image.ImageChunk[image.JobRow])


def read(directory: Path) -> dict[str, float]:
    """How long it takes to read the snapshot: into rows, and into a table of jobs by id."""
    disk = OsDisk(directory)
    position = max(list_snapshots(disk))
    began_s = time.process_time()
    rows = [_rows.decode(chunk) for chunk in read_snapshot(disk, position)]
    rows_s = time.process_time() - began_s
    del rows
    began_s = time.process_time()
    jobs: dict[str, image.JobRow] = {}
    for chunk in read_snapshot(disk, position):
        jobs.update({job.id: job for job in _rows.decode(chunk).jobs})
    return {"read_rows_s": rows_s, "read_table_s": time.process_time() - began_s}


@contextmanager
def _server(directory: Path, port: int) -> "Iterator[subprocess.Popen[bytes]]":
    """A server of this directory, until the end of the block."""
    command = [sys.executable, "-P", "-m", "holdfast", "server", "--data", str(directory), "--log-level", "error"]
    command += ["--port", "0", "--http-port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            yield server
        finally:
            server.terminate()


def _await_ready(server: "subprocess.Popen[bytes]") -> None:
    assert server.stdout is not None
    line = json.loads(server.stdout.readline())
    assert line["event"] == "ready", line


def ready_cpu_s(directory: Path) -> float:
    """The processor time of a server until its ready line; no probe takes any of it."""
    with _server(directory, 0) as server:
        _await_ready(server)
        return _cpu_s(server.pid)


def probed(directory: Path) -> dict[str, float]:
    """How long a server takes until its ports answer, and until jobs can be submitted."""
    port = _free_port()
    began_s = time.perf_counter()
    with _server(directory, port) as server:
        answers_s, longest_s = _watch(f"http://127.0.0.1:{port}", began_s)
        _await_ready(server)
        return {"ports_s": answers_s, "ready_s": time.perf_counter() - began_s, "longest_probe_s": longest_s}


def _watch(url: str, began_s: float) -> tuple[float, float]:
    """When the server first answered, and the longest time that a probe took until it was ready."""
    answers_s, longest_s = 0.0, 0.0
    while True:
        asked_s = time.perf_counter()
        status = _status(f"{url}/readyz")
        now_s = time.perf_counter()
        if status:
            answers_s = answers_s or now_s - began_s
            longest_s = max(longest_s, now_s - asked_s)
        if status == 200:  # noqa: PLR2004 - ready
            return answers_s, longest_s
        time.sleep(_ASK_S)


def _status(url: str) -> int:
    """The status of an answer; 0 if there is none."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - loopback
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _cpu_s(pid: int) -> float:
    """The processor time that a process has used, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def _measured(jobs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "data"
        fill(directory, jobs)
        # In a process of its own, whose memory is as empty as that of a server that starts.
        command = [sys.executable, "-P", "-m", "holdfast.lab.faults.restart", "--read", str(directory)]
        figures: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        figures |= probed(directory)
        figures["start_cpu_s"] = ready_cpu_s(Path(folder) / "empty")
        figures["ready_cpu_s"] = ready_cpu_s(directory)
    figures["ratio_to_rows"] = figures["ready_cpu_s"] / figures["read_rows_s"]
    figures["ratio_to_table"] = figures["ready_cpu_s"] / figures["read_table_s"]
    figures["load_to_table"] = (figures["ready_cpu_s"] - figures["start_cpu_s"]) / figures["read_table_s"]
    return figures


_MEANINGS = {
    "read_rows_s": "reading the snapshot into rows, processor s",
    "read_table_s": "reading the snapshot into a table of jobs by id, processor s",
    "ports_s": "from the command until the ports answer, s",
    "ready_s": "from the command until the ready line, s",
    "longest_probe_s": "longest answer of a probe meanwhile, s",
    "start_cpu_s": "until the ready line without jobs, processor s",
    "ready_cpu_s": "until the ready line with these jobs, processor s",
    "ratio_to_rows": "processor time until the ready line / into rows",
    "ratio_to_table": "processor time until the ready line / into a table of jobs",
    "load_to_table": "the same, less the start without jobs",
}


def main() -> None:
    """Measures once and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="how many jobs wait (default: 1000000)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--read", type=Path, metavar="DIRECTORY", help="only read the snapshot in this directory")
    options = parser.parse_args()
    if options.read is not None:
        print(json.dumps(read(options.read)))
        return
    figures = _measured(options.jobs)
    if options.json:
        print(json.dumps({"jobs": options.jobs, **figures}))
        return
    print(f"restart with {options.jobs} queued jobs")
    for name, meaning in _MEANINGS.items():
        print(f"  {meaning:<60} {figures[name]:8.2f}")


if __name__ == "__main__":
    main()
