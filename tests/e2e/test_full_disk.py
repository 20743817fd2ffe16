"""Full disk: which requests the server refuses, which continue, and how it recovers."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import taskqueue_public_pb2 as public
from scripts.engines import MOUNT
from tests.e2e.fleet import Fleet
from tests.e2e.grpc_client import Refused, Wire, refusal
from tests.e2e.history import checked
from tests.engines import cannot_run, require


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mounts a tmpfs; skips the test if that is not possible."""
    require(MOUNT)
    folder.mkdir()
    command = ["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        cannot_run(MOUNT, done.stderr.strip())
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MiB, unmounted after the processes of the test have ended."""
    with mounted(tmp_path / "small", "size=32m") as folder:
        yield folder


@pytest.fixture
def fleet(small_disk: Path, loaded_fleet: Fleet) -> Fleet:  # noqa: ARG001 - its processes end before the unmount
    """A fleet whose processes end before the disk is unmounted."""
    return loaded_fleet


def fill(path: Path) -> None:
    """Writes a file until the disk is full."""
    with path.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65_536))
            file.flush()


def batch(wire: Wire, key: str, size: int = 900_000) -> str:
    template = own.JobTemplate(type="sim", max_attempts=1)
    job = own.NewJob(payload=bytes(size), request_id=key)
    answer = wire.batch(own.SubmitJobsRequest(templates=[template], jobs=[job]))
    return str(answer.job_ids[0])


def submit_until_refused(wire: Wire, accepted: dict[str, str]) -> Refused:
    """Submits ever smaller jobs until even the smallest is refused, because ended leases free some space."""
    for size in (900_000, 100_000, 10_000, 1_000, 0):
        with contextlib.suppress(grpc.RpcError):
            while True:
                key = f"{size}-{len(accepted)}"
                accepted[key] = batch(wire, key, size)
    return refusal(lambda: batch(wire, "refused", 0))


def size_of(key: str) -> int:
    return int(key.partition("-")[0])


def test_full_disk_refuses_submits_and_nothing_else(fleet: Fleet, small_disk: Path) -> None:
    """A server with a full disk refuses submits but accepts fetches and reports, and recovers once space is free."""
    data = str(small_disk / "data")
    server, wire = fleet.server("--lease-ms", "600000", data=data)
    accepted = {f"small-{number}": batch(wire, f"small-{number}") for number in range(3)}
    first = wire.fetch("w")
    fill(small_disk / "filler")
    refused = submit_until_refused(wire, accepted)
    assert (refused.code, refused.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "NO_SPACE")
    assert refusal(lambda: wire.new(key="frozen")).reason == "NO_SPACE"

    assert wire.report("w", first.job_id, token=first.token, output_bytes=bytes(1_000))
    second = wire.fetch("w")
    assert second.assigned
    assert wire.report("w", second.job_id, token=second.token)
    assert wire.status(first.job_id).status == public.DONE
    assert submit_until_refused(wire, accepted).reason == "NO_SPACE"

    (small_disk / "filler").unlink()
    accepted["frozen"] = wire.new(key="frozen")
    before = {job.job_id: job.status for job in wire.all_jobs()}
    assert set(before) == set(accepted.values())
    server.kill()
    server, wire = fleet.server(data=data)
    assert {job.job_id: job.status for job in wire.all_jobs()} == before
    assert wire.new(key="frozen") == accepted["frozen"]
    assert server.stop() == 0
    assert checked(small_disk / "data").keys == accepted


def test_server_that_was_full_starts_again_while_still_full(fleet: Fleet, small_disk: Path) -> None:
    """A server killed on a full disk loses no job: the next one serves them or names the full disk."""
    data = str(small_disk / "data")
    server, wire = fleet.server(data=data)
    accepted = {"900000-first": batch(wire, "900000-first")}
    fill(small_disk / "filler")
    submit_until_refused(wire, accepted)
    server.kill()
    starting = fleet.start("server", "--data", data, "--port", "0")
    if starting.wait_or_ready():
        wire = fleet.wire(starting.ready()["grpc"])
        assert {job.job_id for job in wire.all_jobs()} == set(accepted.values())
    else:
        assert os.strerror(errno.ENOSPC) in starting.log
        assert "Traceback" not in starting.log
    starting.kill()
    (small_disk / "filler").unlink()
    _, wire = fleet.server(data=data)
    assert {key: batch(wire, key, size_of(key)) for key in accepted} == accepted
