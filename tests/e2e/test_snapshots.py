"""Snapshots of a running server: their creation, a restart from one, and the deletion of old segments."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core import image
from holdfast.proto import holdfast_pb2 as own
from holdfast_lab.simulation.ledger_view import view_ledger
from holdfast_lab.torture.arenas.ledger_facts import copy_of, recovered
from tests.e2e.fleet import Fleet
from tests.e2e.grpc_client import Wire
from tests.e2e.wait_until import eventually

SMALL = ("--segment-bytes", "65536", "--snapshot-bytes", "65536")


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def work_until(wire: Wire, is_enough: Callable[[], object]) -> None:
    """Submits batches, and finishes and cancels some of their jobs, until the condition holds."""
    count = 0

    def more() -> object:
        nonlocal count
        template = own.JobTemplate(type="sim")
        jobs = [own.NewJob(payload=bytes(500), request_id=f"{count}-{n}") for n in range(40)]
        ids = wire.batch(own.SubmitJobsRequest(templates=[template], jobs=jobs)).job_ids
        wire.cancel(ids[0], "not this one")
        for _ in range(5):
            work = wire.fetch("w")
            wire.report("w", work.job_id, token=work.token, output_bytes=bytes(100))
        count += 1
        return is_enough()

    eventually(more)


def again(wire: Wire) -> str:
    """Returns the id of the first job, found by its request id."""
    job = own.NewJob(payload=bytes(500), request_id="0-0")
    answer = wire.batch(own.SubmitJobsRequest(templates=[own.JobTemplate(type="sim")], jobs=[job]))
    return str(answer.job_ids[0])


def snapshots(data: Path) -> list[Path]:
    return sorted(data.glob("snapshot-*.snap"))


def test_restart_from_a_snapshot_gives_the_same_state(fleet: Fleet, tmp_path: Path) -> None:
    """A server that restarts from a snapshot and the tail has the same state as from the whole journal."""
    data = tmp_path / "data"
    server, wire = fleet.server(*SMALL, "--log-level", "warning")
    work_until(wire, lambda: snapshots(data))
    work_until(fleet.wire(wire.target), lambda: True)
    before = [job.SerializeToString() for job in wire.all_jobs()]
    server.stop()
    with copy_of(data) as bare:
        for snapshot in snapshots(bare):
            snapshot.unlink()
        from_snapshot, from_journal = recovered(data)[0], recovered(bare)[0]
    assert image.full_digest(from_snapshot) == image.full_digest(from_journal)
    assert view_ledger(from_snapshot) == view_ledger(from_journal)
    server, wire = fleet.server(*SMALL)
    assert [job.SerializeToString() for job in wire.all_jobs()] == before


def test_snapshots_delete_the_segments_that_they_cover(fleet: Fleet, tmp_path: Path) -> None:
    """Without a history window the server deletes segments covered by snapshots, and a restart loses no state."""
    data = tmp_path / "data"
    server, wire = fleet.server(*SMALL, "--history-ms", "0", "--log-level", "warning")
    first = min(data.glob("*.seg"))
    work_until(wire, lambda: not first.exists())
    before = [job.SerializeToString() for job in wire.all_jobs()]
    first_id = again(wire)
    server.kill()
    assert len(snapshots(data)) >= 2
    _, wire = fleet.server(*SMALL, "--history-ms", "0")
    assert [job.SerializeToString() for job in wire.all_jobs()] == before
    assert again(wire) == first_id, "a request id from a deleted segment must still be known"


def test_damaged_snapshot_is_passed_over_and_said(fleet: Fleet, tmp_path: Path) -> None:
    """A server that finds a damaged snapshot logs that it skipped it, and loses no job."""
    data = tmp_path / "data"
    server, wire = fleet.server(*SMALL, "--log-level", "warning")
    work_until(wire, lambda: snapshots(data))
    before = [job.SerializeToString() for job in wire.all_jobs()]
    server.stop()
    newest = snapshots(data)[-1]
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    server, wire = fleet.server(*SMALL)
    assert [job.SerializeToString() for job in wire.all_jobs()] == before
    eventually(
        lambda: any("was skipped" in line["message"] for line in server.lines("recovery")),
        what="the warning about the snapshot",
    )
