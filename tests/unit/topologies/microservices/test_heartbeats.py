"""Heartbeats that list many jobs or invalid ids."""

from collections.abc import AsyncIterator

import pytest

from holdfast.proto import taskqueue_internal_pb2 as pb
from tests.integration.microservices_world import World, world

NAMES = 200
TOGETHER = 32


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """Three owners and a coordinator."""
    async with world() as made:
        yield made


async def test_many_names_are_looked_up_a_few_at_a_time(here: World) -> None:
    """The coordinator looks up the unknown jobs of a heartbeat with a bounded number of concurrent calls."""
    under_way, most = 0, 0

    async def before(method: str, _: object) -> None:
        nonlocal under_way, most
        under_way += method == "GetJobRecord"
        most = max(most, under_way)

    async def after(method: str, _: object) -> None:
        nonlocal under_way
        under_way -= method == "GetJobRecord"

    here.faults.before, here.faults.after = before, after
    jobs = [await here.submit() for _ in range(NAMES)]
    request = pb.WorkerHeartbeatRequest(worker_id="w", running=pb.RunningJobs())
    request.running.jobs.extend(pb.RunningJob(job_id=job_id, token=1) for job_id in jobs)
    heard = await here.coordinator.hear("w", request)
    assert [job_id for job_id, _ in heard.revoked] == jobs
    assert 1 < most <= TOGETHER


async def test_invalid_job_id_in_a_heartbeat_is_a_revoked_lease(here: World) -> None:
    """A heartbeat that lists an empty or very long job id gets that lease as revoked."""
    for job_id in ("", "x" * 10_000):
        request = pb.WorkerHeartbeatRequest(worker_id="w", running=pb.RunningJobs())
        request.running.jobs.add(job_id=job_id, token=1)
        assert (await here.coordinator.hear("w", request)).revoked == [(job_id, 1)]
