"""How long callers wait while a sync hangs: `python -m holdfast.lab.faults.slow_sync [--stall-ms MS] [--json]`.

A server runs in a child process, on a disk whose syncs wait while this program says so. A job is submitted into the
stall; meanwhile the probe, gRPC health and a worker's heartbeat are asked, each on a thread of its own.
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
from holdfast.lab.faults.stalling_disk import Gate, StallingDisk
from holdfast.proto import taskqueue_internal_pb2 as internal_pb
from holdfast.proto import taskqueue_internal_pb2_grpc as internal_rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from holdfast.server.ledger_server import LedgerServer
from holdfast.settings import Settings

_PATIENCE_S = 60


async def serve(directory: Path) -> None:
    """The child: a server whose disk stalls between the lines `stall` and `go` on standard input."""
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
    """Milliseconds that each caller waited."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "holdfast.lab.faults.slow_sync", "--serve", f"{folder}/data"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                return _stalled(child, json.loads(child.stdout.readline()), stall_ms)
            finally:
                child.stdin.close()


def _stalled(child: "subprocess.Popen[str]", addresses: dict[str, str], stall_ms: int) -> dict[str, float]:
    assert child.stdin is not None
    assert child.stdout is not None
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
        child.stdin.write("stall\n")
        child.stdout.readline()
        waits: dict[str, float] = {}
        threads = [threading.Thread(target=_time, args=(name, call, waits)) for name, call in calls.items()]
        threads[0].start()
        time.sleep(min(0.2, stall_ms / 4_000))  # until the submission is in the stalled frame
        for thread in threads[1:]:
            thread.start()
        time.sleep(stall_ms / 1_000)
        child.stdin.write("go\n")
        for thread in threads:
            thread.join()
    return waits


def _time(name: str, call: Callable[[], object], waits: dict[str, float]) -> None:
    began_s = time.perf_counter()
    call()
    waits[name] = (time.perf_counter() - began_s) * 1_000


def main() -> None:
    """Measures once and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stall-ms", type=int, default=3_000, help="how long the sync hangs (default: 3000)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--serve", type=Path, metavar="DIRECTORY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(serve(options.serve))
        return
    waits = measure(options.stall_ms)
    if options.json:
        print(json.dumps({"stall_ms": options.stall_ms, **{f"{name}_ms": wait for name, wait in waits.items()}}))
        return
    print(f"a sync that takes {options.stall_ms} ms: how long each caller waited, ms")
    for name, wait in waits.items():
        print(f"  {name:<12} {wait:8.1f}")


if __name__ == "__main__":
    main()
