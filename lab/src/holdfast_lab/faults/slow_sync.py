"""Waits of callers while a sync hangs: `python -m holdfast_lab.faults.slow_sync [--stall-ms MS] [--json]`.

A server runs in a child process, on a disk whose syncs this program can stall. A job is submitted during the stall;
meanwhile the probe, gRPC health and a worker's heartbeat are called, each on a thread of its own.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast.journal.os_disk import OsDisk
from holdfast.proto import taskqueue_internal_pb2 as internal_pb
from holdfast.proto import taskqueue_internal_pb2_grpc as internal_rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from holdfast.server.ledger_server import LedgerServer
from holdfast.settings import Settings
from holdfast_lab.faults.stalling_disk import Gate, StallingDisk
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.processes import child, module, next_line
from holdfast_lab.measure.tables import columns

_PATIENCE_S = 60


async def serve(directory: Path) -> None:
    """Runs the child: a server whose disk stalls between the lines `stall` and `go` on standard input."""
    gate = Gate()
    settings = Settings(data=str(directory), port=0, http_port=0, log_level="error")
    server = LedgerServer(
        settings, log_stream=sys.stderr.buffer, open_disk=lambda path: StallingDisk(OsDisk(path), gate)
    )
    await server.start()

    def obey() -> None:
        for line in sys.stdin:
            if line == "stall\n":
                with gate.shut():
                    print("stalled", flush=True)
                    sys.stdin.readline()

    print(json.dumps({"grpc": server.address, "http": server.http_address}), flush=True)
    await asyncio.to_thread(obey)
    await server.stop()


def measure(stall_ms: int) -> dict[str, float]:
    """Returns the milliseconds that each caller waited."""
    with tempfile.TemporaryDirectory() as folder:
        command = module("holdfast_lab.faults.slow_sync", "--serve", f"{folder}/data")
        with child(command, stdin=subprocess.PIPE) as server:
            return _stalled(server, json.loads(next_line(server)), stall_ms)


def _stalled(server: "subprocess.Popen[str]", addresses: dict[str, str], stall_ms: int) -> dict[str, float]:
    assert server.stdin is not None
    with grpc.insecure_channel(addresses["grpc"]) as channel:
        jobs = public_rpc.TaskQueuePublicServiceStub(channel)
        work = internal_rpc.CoordinatorInternalServiceStub(channel)
        health = health_pb2_grpc.HealthStub(channel)
        submission = public_pb.SubmitJobRequest(spec=public_pb.JobSpec(job_type="sim"))
        beat = internal_pb.WorkerHeartbeatRequest(worker_id="w", capacity_hint=1)
        calls: dict[str, Callable[[], object]] = {
            "submit": lambda: jobs.SubmitJob(submission, timeout=_PATIENCE_S),
            "livez": lambda: urllib.request.urlopen(f"http://{addresses['http']}/livez", timeout=_PATIENCE_S).read(),
            "health": lambda: health.Check(health_pb2.HealthCheckRequest(), timeout=_PATIENCE_S),
            "heartbeat": lambda: work.WorkerHeartbeat(beat, timeout=_PATIENCE_S),
        }
        jobs.SubmitJob(submission)
        work.FetchWork(internal_pb.FetchWorkRequest(worker_id="w"))
        server.stdin.write("stall\n")
        next_line(server)
        waits: dict[str, float] = {}
        threads = [threading.Thread(target=_time, args=(name, call, waits)) for name, call in calls.items()]
        threads[0].start()
        time.sleep(min(0.2, stall_ms / 4_000))  # until the submit is in the stalled frame
        for thread in threads[1:]:
            thread.start()
        time.sleep(stall_ms / 1_000)
        server.stdin.write("go\n")
        for thread in threads:
            thread.join()
    return waits


def _time(name: str, call: Callable[[], object], waits: dict[str, float]) -> None:
    began_s = time.perf_counter()
    call()
    waits[name] = (time.perf_counter() - began_s) * 1_000


def main() -> None:
    """Measure once and print the figures."""
    options = parser(__doc__)
    options.add_argument("--stall-ms", type=int, default=3_000, help="how long the sync hangs (default: 3000)")
    options.add_argument("--serve", type=Path, metavar="DIRECTORY", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve is not None:
        asyncio.run(serve(given.serve))
        return
    waits = measure(given.stall_ms)
    rows = [(name, f"{wait:.1f}") for name, wait in waits.items()]
    told = {"stall_ms": given.stall_ms, **{f"{name}_ms": wait for name, wait in waits.items()}}
    show(told, columns((f"wait during a sync of {given.stall_ms} ms", "ms"), rows), as_json=given.json)


if __name__ == "__main__":
    main()
