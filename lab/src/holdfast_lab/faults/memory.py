"""Memory of a server with many jobs and of its snapshot process, and the share of it that the server counts.

    python -m holdfast_lab.faults.memory --jobs 1000000

Submits jobs without and with labels and headers, each kind to a separate server, and then makes one snapshot of the
whole journal. The snapshot process is started by hand with the server's arguments, so that its peak can be read from
the kernel; the server itself makes no snapshot meanwhile.
"""

import os
import subprocess
from collections.abc import Iterator

import grpc
import msgspec

from holdfast.ledger.snapshot_process import maker_command
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.process_tree import resident_bytes
from holdfast_lab.measure.processes import holdfast_server
from holdfast_lab.measure.tables import columns

_MIB = 1 << 20
_BATCH_JOBS = 1_000
#: The server makes no snapshot of its own, and the snapshot process can read all but the last segment.
_OPTIONS = ("--segment-bytes", str(4 * _MIB), "--snapshot-bytes", str(1 << 40), "--log-level", "warning")


class MemoryFigures(msgspec.Struct, frozen=True):
    """The figures for one kind of job."""

    jobs: int
    kind: str
    server_bytes: int
    #: Without jobs.
    server_empty_bytes: int
    held_bytes: int
    snapshot_peak_bytes: int
    snapshot_file_bytes: int

    @property
    def share(self) -> float:
        """The peak of the snapshot process, as a part of the server's memory."""
        return self.snapshot_peak_bytes / self.server_bytes


def _batches(count: int, *, is_labelled: bool) -> Iterator[pb.SubmitJobsRequest]:
    template = pb.JobTemplate(type="sim")
    for start in range(0, count, _BATCH_JOBS):
        numbers = range(start, min(start + _BATCH_JOBS, count))
        jobs = [_labelled(number) if is_labelled else pb.NewJob(payload=b'{"n":1}') for number in numbers]
        yield pb.SubmitJobsRequest(templates=[template], jobs=jobs)


def _labelled(number: int) -> pb.NewJob:
    return pb.NewJob(
        payload=b'{"n":1}',
        request_id=f"order-{number}",
        labels={"tenant": f"tenant-{number % 1_000}", "order": str(number), "region": "eu-central"},
        headers={"traceparent": f"00-{number:032x}-{number:016x}-01", "baggage": f"user={number}"},
    )


def measure(count: int, *, is_labelled: bool) -> MemoryFigures:
    """Fill one server and make one snapshot."""
    with holdfast_server(*_OPTIONS) as one, grpc.insecure_channel(one.grpc) as channel:
        empty = resident_bytes(one.pid)
        submit = rpc.JobServiceStub(channel).SubmitJobs
        for batch in _batches(count, is_labelled=is_labelled):
            assert not submit(batch).refusals, "every job must be accepted"
        held = rpc.AdminServiceStub(channel).GetStats(pb.GetStatsRequest()).bytes_held
        server = resident_bytes(one.pid)
        peak = _snapshot_peak(maker_command(str(one.data), held))
        return MemoryFigures(
            jobs=count,
            kind="labels and headers" if is_labelled else "plain",
            server_bytes=server,
            server_empty_bytes=empty,
            held_bytes=held,
            snapshot_peak_bytes=peak,
            snapshot_file_bytes=max(path.stat().st_size for path in one.data.glob("snapshot-*.snap")),
        )


def _snapshot_peak(command: list[str]) -> int:
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"expected a snapshot, got exit status {process.returncode}"
    return usage.ru_maxrss * 1_024


def main() -> None:
    """Print the figures."""
    options = parser(__doc__)
    options.add_argument("--jobs", type=int, default=1_000_000, help="how many jobs each server gets")
    given = options.parse_args()
    figures = [measure(given.jobs, is_labelled=is_labelled) for is_labelled in (False, True)]
    heads = ("kind", "jobs", "server MiB", "counted MiB", "snapshot MiB", "share")
    rows = [
        (
            one.kind,
            f"{one.jobs:,}",
            *(f"{size / _MIB:,.0f}" for size in (one.server_bytes, one.held_bytes, one.snapshot_peak_bytes)),
            f"{one.share:.2f}",
        )
        for one in figures
    ]
    told = [{**msgspec.to_builtins(one), "share": round(one.share, 3)} for one in figures]
    show(told, columns(heads, rows), as_json=given.json)


if __name__ == "__main__":
    main()
