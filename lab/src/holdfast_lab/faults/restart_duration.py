"""Duration of a restart: `python -m holdfast_lab.faults.restart_duration [--jobs N] [--json]`.

A directory with this many queued jobs and a snapshot of them is made. A server is started on it, and its probes are
called again and again, to see when its ports answer and when jobs can be submitted. For comparison, the snapshot alone
is read: once decoded into rows, once into a table of jobs by id. The ratios are of processor time, so that other
programs of the machine do not count, and of a start without probes.
"""

import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
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
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.process_tree import cpu_of
from holdfast_lab.measure.processes import child, holdfast_server, module, ready_line, server_command
from holdfast_lab.measure.reserved_ports import Ports
from holdfast_lab.measure.tables import columns

_BATCH = 500
_ASK_S = 0.01
_BEGIN_MS = 1_700_000_000_000
_PAYLOAD = b'{"number": 12345}'


def fill(directory: Path, jobs: int) -> None:
    """Creates a journal with these jobs, all queued, and a snapshot of them."""
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
        log_time_ms=ledger.state.last_ms,
        digest=ledger.digest,
    )
    journal.close()
    write_snapshot(disk, header, image.dump(ledger))


_rows = msgspec.msgpack.Decoder(image.ImageChunk[image.JobRow])


def read(directory: Path) -> dict[str, float]:
    """Measures reading the snapshot: into rows, and into a table of jobs by id."""
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


def ready_cpu_s(folder: Path) -> float:
    """The processor time of a server until its ready line, without probes."""
    with holdfast_server("--log-level", "error", folder=folder) as server:
        return cpu_of([server.pid])


def probed(folder: Path) -> dict[str, float]:
    """Seconds until the ports of a server answer, and until jobs can be submitted."""
    ports = Ports(1)
    options = ("--http-port", str(ports.first), "--log-level", "error")
    began_s = time.perf_counter()
    try:
        with child(server_command(folder / "data", *options)) as server:
            answers_s, longest_s = _watch(f"http://{ports.addresses[0]}", began_s)
            ready_line(server)
            return {"ports_s": answers_s, "ready_s": time.perf_counter() - began_s, "longest_probe_s": longest_s}
    finally:
        ports.close()


def _watch(url: str, began_s: float) -> tuple[float, float]:
    """Returns when the server first answered, and the longest response time of a probe until it was ready."""
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
    """Returns the status of the response; 0 if there is none."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:  # noqa: S310 - loopback
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _measured(jobs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as empty:
        folder = Path(name)
        fill(folder / "data", jobs)
        # In a process of its own, whose memory is as empty as that of a starting server.
        command = module("holdfast_lab.faults.restart_duration", "--read", str(folder / "data"))
        figures: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        figures |= probed(folder)
        figures["start_cpu_s"] = ready_cpu_s(Path(empty))
        figures["ready_cpu_s"] = ready_cpu_s(folder)
    figures["ratio_to_rows"] = figures["ready_cpu_s"] / figures["read_rows_s"]
    figures["ratio_to_table"] = figures["ready_cpu_s"] / figures["read_table_s"]
    figures["load_to_table"] = (figures["ready_cpu_s"] - figures["start_cpu_s"]) / figures["read_table_s"]
    return figures


_MEANINGS = {
    "read_rows_s": "reading the snapshot into rows, processor s",
    "read_table_s": "reading the snapshot into a table of jobs by id, processor s",
    "ports_s": "from the command until the ports answer, s",
    "ready_s": "from the command until the ready line, s",
    "longest_probe_s": "longest response time of a probe meanwhile, s",
    "start_cpu_s": "until the ready line without jobs, processor s",
    "ready_cpu_s": "until the ready line with these jobs, processor s",
    "ratio_to_rows": "processor time until the ready line / into rows",
    "ratio_to_table": "processor time until the ready line / into a table of jobs",
    "load_to_table": "the same, minus the start without jobs",
}


def main() -> None:
    """Measures once and prints the figures."""
    options = parser(__doc__)
    options.add_argument("--jobs", type=int, default=1_000_000, help="how many jobs wait (default: 1000000)")
    options.add_argument("--read", type=Path, metavar="DIRECTORY", help="only read the snapshot in this directory")
    given = options.parse_args()
    if given.read is not None:
        print(json.dumps(read(given.read)))
        return
    figures = _measured(given.jobs)
    rows = [(meaning, f"{figures[name]:.2f}") for name, meaning in _MEANINGS.items()]
    text = columns((f"restart with {given.jobs} queued jobs", ""), rows)
    show({"jobs": given.jobs, **figures}, text, as_json=given.json)


if __name__ == "__main__":
    main()
