"""An unreachable ensemble: no call hangs, no worker acts as an owner for too long, and work continues afterwards."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.client import reconnect_policy
from holdfast.core.lifecycle import DONE, RUNNING
from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper import client_api, ensemble_limits
from holdfast.topologies.zookeeper.backend import connection as connecting
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection, SessionPhase
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.ensemble_url import Ensemble
from holdfast.topologies.zookeeper.link import EnsembleLink
from tests.e2e.fleet import stable_port
from tests.integration.zookeeper.counting_proxy import CountingWay
from tests.integration.zookeeper.faults import DRAFT, JOB, Bidding, until
from tests.integration.zookeeper.test_races import submit
from tests.zookeeper import Place

SHORT_MS = ensemble_limits.SESSION_MS_MIN


@pytest.fixture
def call_s() -> float:
    """The product's own deadline, because these tests wait for it."""
    return ensemble_limits.CALL_MS / 1_000


@pytest.fixture
async def way(zookeeper: Place) -> AsyncIterator[CountingWay]:
    """A proxy to the server that can be cut."""
    way = CountingWay(zookeeper.hosts)
    yield way
    await way.close()


async def test_connection_that_is_cut_costs_nothing(bidding: Bidding, way: CountingWay) -> None:
    """A cut connection does not end the session: the worker keeps its job, and a report during the cut counts."""
    jobs = NodeJobs(await bidding.client())
    job_id = await submit(jobs)
    bidding.place = Place(await way.open(), bidding.place.root)
    hand = await bidding.worker("w")
    (lease,) = await hand.take()
    seen: list[SessionPhase] = []
    bidding.connection_of("w").when_changed.append(seen.append)
    way.cut()
    await hand.done(lease, b"out")
    assert seen[:2] == [SessionPhase.SUSPENDED, SessionPhase.CONNECTED]
    job = await jobs.get(job_id)
    assert (job.state, job.attempts, job.token) == (DONE, 1, lease.token)
    await hand.session.close()


async def test_holder_gives_up_by_its_own_clock(bidding: Bidding, way: CountingWay) -> None:
    """A worker that cannot reach the ensemble revokes its lease by its own clock, and another worker gets the job."""
    jobs = NodeJobs(await bidding.client())
    job_id = await submit(jobs)
    place = bidding.place
    bidding.place = Place(await way.open(), place.root)
    hand = await bidding.worker("away", session_ms=SHORT_MS)
    (lease,) = await hand.take()
    await way.close()
    await hand.session.extend()
    await hand.until(lambda: lease.token in hand.revoked)
    assert bidding.connection_of("away").phase is SessionPhase.SUSPENDED
    bidding.place = place
    (again,) = await (await bidding.worker("here")).take()
    job = await jobs.get(job_id)
    assert (again.job_id, job.state, job.losses) == (job_id, RUNNING, 1)


async def test_submit_on_a_suspended_connection_fails_at_its_deadline(
    bidding: Bidding, way: CountingWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submit on a suspended connection fails as unavailable at its deadline."""
    bidding.place = Place(await way.open(), bidding.place.root)
    client = await bidding.client()
    await way.close()
    await until(lambda: client.phase is SessionPhase.SUSPENDED)
    monkeypatch.setattr(connecting, "_CALL_S", 0.5)
    with pytest.raises(UnavailableError):
        await NodeJobs(client).submit([JOB], [DRAFT])


async def test_concurrent_calls_share_one_failed_connection_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Concurrent calls without an ensemble share one connection attempt, and all fail when it fails."""
    openings, opening = 0, client_api.open_connection

    async def counted(ensemble: Ensemble) -> EnsembleConnection:
        nonlocal openings
        openings += 1
        return await opening(ensemble)

    monkeypatch.setattr(client_api, "open_connection", counted)
    monkeypatch.setattr(connecting, "_CALL_S", 0.5)
    link = EnsembleLink(Ensemble(hosts=f"127.0.0.1:{stable_port()}"))
    asked = [link.call(lambda ports: ports.jobs.submit([JOB], [DRAFT])) for _ in range(3)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(answer, UnavailableError) for answer in answers] == [True] * 3
    assert (openings, link.is_open) == (1, False)
    await link.close()


async def test_call_does_not_wait_for_ever_for_an_ensemble_that_went_away(
    zookeeper: Place, way: CountingWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's link retries a call to an unreachable ensemble only for a limited time."""
    link = EnsembleLink(Ensemble(hosts=await way.open(), root=zookeeper.root))
    try:
        await link.call(lambda ports: ports.jobs.submit([JOB], [DRAFT]))
        monkeypatch.setattr(connecting, "_CALL_S", 1.2)
        monkeypatch.setattr(reconnect_policy, "PATIENCE_S", 2.0)
        await way.close()
        with pytest.raises(UnavailableError):
            await link.call(lambda ports: ports.jobs.submit([JOB], [DRAFT]))
    finally:
        await link.close()


async def test_session_lasts_as_long_as_the_servers_grant(zookeeper: Place) -> None:
    """A session has the length that the servers grant, if that is shorter than requested."""
    connection = await connecting.connect(*zookeeper, session_ms=3_600_000)
    try:
        assert connection.session_ms == 120_000
    finally:
        await connection.close()
