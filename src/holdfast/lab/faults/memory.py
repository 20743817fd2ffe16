"""Memory of a server that holds many jobs, of its snapshot process, and how much of it the server counts.

    python -m holdfast.lab.faults.memory --jobs 1000000

Submits jobs without and with labels and headers, each kind to a server of its own, and then makes one snapshot of
everything in the journal. The snapshot process is started by hand with the arguments that the server would give it, so
that its peak can be read from the kernel; the server itself makes no snapshot meanwhile.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Iterator

import grpc
import msgspec

from holdfast.lab.processes import holdfast_server, resident_bytes
from holdfast.ledger.snapshot_process import maker_command
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc

_MIB = 1 << 20
_BATCH_JOBS = 1_000
#: No snapshot is made by the server, and all but the last of these files can be read by the snapshot process.
_OPTIONS = ("--segment-bytes", str(4 * _MIB), "--snapshot-bytes", str(1 << 40), "--log-level", "warning")


class Figures(msgspec.Struct, frozen=True):
    """What was measured with one kind of job."""

    jobs: int
    kind: str
    server_bytes: int
    #: The same without a job.
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


def measure(count: int, *, is_labelled: bool) -> Figures:
    """Fills one server and makes one snapshot."""
    with holdfast_server(*_OPTIONS) as (address, pid, data), grpc.insecure_channel(address) as channel:
        empty = resident_bytes(pid)
        submit = rpc.JobServiceStub(channel).SubmitJobs
        for batch in _batches(count, is_labelled=is_labelled):
            assert not submit(batch).refusals, "expected every job to be accepted"
        held = rpc.AdminServiceStub(channel).GetStats(pb.GetStatsRequest()).bytes_held
        server = resident_bytes(pid)
        peak = _snapshot_peak(maker_command(str(data), held))
        return Figures(
            jobs=count,
            kind="labels and headers" if is_labelled else "plain",
            server_bytes=server,
            server_empty_bytes=empty,
            held_bytes=held,
            snapshot_peak_bytes=peak,
            snapshot_file_bytes=max(path.stat().st_size for path in data.glob("snapshot-*.snap")),
        )


def _snapshot_peak(command: list[str]) -> int:
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"expected a snapshot, got exit status {process.returncode}"
    return usage.ru_maxrss * 1_024


def main() -> None:
    """Prints a table, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.lab.faults.memory", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="how many jobs each server gets")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    told = parser.parse_args()
    figures = [measure(told.jobs, is_labelled=is_labelled) for is_labelled in (False, True)]
    if told.json:
        print(json.dumps([{**msgspec.to_builtins(one), "share": round(one.share, 3)} for one in figures]))
        return
    print(f"{'jobs':>9}  {'kind':18}  {'server MiB':>10}  {'counted MiB':>11}  {'snapshot MiB':>12}  {'share':>5}")
    for one in figures:
        sizes = (one.server_bytes / _MIB, one.held_bytes / _MIB, one.snapshot_peak_bytes / _MIB)
        cells = f"{sizes[0]:10,.0f}  {sizes[1]:11,.0f}  {sizes[2]:12,.0f}"
        print(f"{one.jobs:9,}  {one.kind:18}  {cells}  {one.share:5.2f}")


if __name__ == "__main__":
    main()
