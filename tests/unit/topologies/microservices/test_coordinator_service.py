"""The coordinator service over gRPC: refusals, replies to workers, and its own credentials."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from holdfast.core.lifecycle import RUNNING
from holdfast.errors import UnavailableError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.auth.service_tokens import hash_of
from holdfast.topologies.microservices.backend.owner_clients import JobOwner
from holdfast.topologies.microservices.grpc_errors import error_of
from holdfast.topologies.microservices.services.callers import CallerInterceptor, credential
from holdfast.topologies.microservices.services.coordinator_service import CoordinatorServicer
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from tests.integration.microservices_world import World, world

TOKEN = "t" * 40


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """Three owners and a coordinator."""
    async with world() as made:
        yield made


@pytest.fixture
async def stub(here: World) -> AsyncIterator[Any]:
    """A worker's stub for the coordinator."""
    server = ServiceServer("the coordinator", {})
    rpc.add_CoordinatorInternalServiceServicer_to_server(CoordinatorServicer(here.coordinator), server.handlers)
    async with grpc.aio.insecure_channel(await server.start("127.0.0.1", 0)) as channel:
        yield rpc.CoordinatorInternalServiceStub(channel)
    await server.stop(None)  # type: ignore[arg-type]  # at once


async def refusal(call: Any) -> tuple[str, str]:  # noqa: ANN401 - a call of a stub
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code().name, error_of(refused.value).reason


async def test_frozen_worker_sees_frozen_fields_only(stub: Any) -> None:  # noqa: ANN401
    """A worker that sends only the frozen fields gets only the frozen fields in replies."""
    answer = await stub.WorkerHeartbeat(pb.WorkerHeartbeatRequest(worker_id="bare", capacity_hint=1))
    assert answer == pb.WorkerHeartbeatResponse(accepted=True, next_heartbeat_in_ms=1_000)
    assert await stub.FetchWork(pb.FetchWorkRequest(worker_id="bare")) == pb.FetchWorkResponse(retry_after_ms=200)


async def test_frozen_worker_is_given_simulated_work_only(here: World, stub: Any) -> None:  # noqa: ANN401
    """A worker that names no types gets only simulated jobs."""
    await here.submit("mail")
    job_id = await here.submit()
    assert (await stub.FetchWork(pb.FetchWorkRequest(worker_id="bare"))).job_id == job_id
    assert not (await stub.FetchWork(pb.FetchWorkRequest(worker_id="bare"))).assigned


async def test_worker_that_names_its_leases_is_told_their_time(stub: Any) -> None:  # noqa: ANN401
    """A worker that lists its leases gets the length of a lease."""
    request = pb.WorkerHeartbeatRequest(worker_id="w", running=pb.RunningJobs())
    assert (await stub.WorkerHeartbeat(request)).lease_ms == 4_000


async def test_bad_requests_are_refused(stub: Any) -> None:  # noqa: ANN401
    """An invalid worker id and an unknown outcome are refused as INVALID_ARGUMENT."""
    for worker in ("", "two words", "w" * 129):
        expected = "INVALID_ARGUMENT", "WORKER_ID_INVALID"
        assert await refusal(stub.FetchWork(pb.FetchWorkRequest(worker_id=worker))) == expected
        assert await refusal(stub.WorkerHeartbeat(pb.WorkerHeartbeatRequest(worker_id=worker))) == expected
    report = pb.ReportWorkOutcomeRequest(worker_id="w", job_id="x", outcome=17)  # type: ignore[arg-type]
    assert await refusal(stub.ReportWorkOutcome(report)) == ("INVALID_ARGUMENT", "OUTCOME_INVALID")


async def test_report_of_an_unknown_job_is_answered(stub: Any) -> None:  # noqa: ANN401
    """A report of an unknown job is no error, and the reply has the reason."""
    report = pb.ReportWorkOutcomeRequest(worker_id="w", job_id="nobody", outcome=public_pb.JOB_OUTCOME_SUCCEEDED)
    assert await stub.ReportWorkOutcome(report) == pb.ReportWorkOutcomeResponse(reason="UNKNOWN_JOB")


@pytest.mark.parametrize("service", ["job", "queue", "result"])
async def test_owner_that_is_away_makes_workers_wait(here: World, stub: Any, service: str) -> None:  # noqa: ANN401
    """While an owner is down, calls that need it are UNAVAILABLE, but heartbeats are accepted."""
    await here.submit()
    work = await stub.FetchWork(pb.FetchWorkRequest(worker_id="w"))
    await here.submit()
    here.faults.down(service)
    report = pb.ReportWorkOutcomeRequest(
        worker_id="w", job_id=work.job_id, token=work.token, outcome=public_pb.JOB_OUTCOME_SUCCEEDED
    )
    expected = "UNAVAILABLE", "SERVICE_UNAVAILABLE"
    if service == "queue":
        assert await refusal(stub.FetchWork(pb.FetchWorkRequest(worker_id="w"))) == expected
    else:
        assert await refusal(stub.ReportWorkOutcome(report)) == expected
    assert (await stub.WorkerHeartbeat(pb.WorkerHeartbeatRequest(worker_id="w"))).accepted


async def test_arriving_worker_waits_until_its_losses_are_known(here: World) -> None:
    """A worker is not accepted while running records cannot be read, because its lost jobs are unknown."""
    here.faults.down("job")
    with pytest.raises(UnavailableError):
        await here.beat(is_arriving=True)
    here.faults.reset()
    assert (await here.beat(is_arriving=True)).accepted


async def test_worker_with_a_deadline_loses_nothing_but_time(
    here: World,
    stub: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fetch that exceeds its deadline is undone, and the next worker gets the job."""
    job_id = await here.submit()
    fetch, is_given_up, gate = here.coordinator.fetch, asyncio.Event(), asyncio.Event()

    async def watched(worker: str, wanted: pb.Wanted) -> pb.FetchWorkResponse:
        try:
            return await fetch(worker, wanted)
        except asyncio.CancelledError:
            is_given_up.set()  # the server detects the deadline itself, maybe after the worker
            raise

    async def wait(method: str, _request: object) -> None:
        if method == "GetJobRecord":
            await gate.wait()

    monkeypatch.setattr(here.coordinator, "fetch", watched)
    here.faults.before = wait
    code, _ = await refusal(stub.FetchWork(pb.FetchWorkRequest(worker_id="w"), timeout=1))
    assert code == "DEADLINE_EXCEEDED"
    await is_given_up.wait()
    gate.set()
    await here.coordinator.settled()
    await here.pass_time(250)
    assert (await here.take("other")).job_id == job_id
    assert (await here.record(job_id)).losses == 0


async def test_running_loop_starts_rounds_and_sweeps(here: World) -> None:
    """The loop starts rounds and sweeps by itself, and ends when it is canceled."""
    running = asyncio.create_task(here.coordinator.run())
    swept = asyncio.Event()

    async def notice(method: str, _request: object) -> None:
        if method == "ListJobRecords":
            swept.set()

    here.faults.before = notice
    await asyncio.wait_for(swept.wait(), 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_silent_worker_is_logged(here: World) -> None:
    """A worker that misses its heartbeats is logged once, with its id."""
    await here.bare_beat("quiet")
    await here.pass_time(10_000)
    assert [line["worker_id"] for line in here.logged("worker_silent")] == ["quiet"]


async def test_outage_is_logged_once(here: World) -> None:
    """An outage of an owner is logged once per kind of work, and so is its end."""
    here.faults.down("job")
    await here.pass_time(10_000)
    here.faults.reset()
    await here.pass_time(6_000)
    assert sorted(line["method"] for line in here.logged("fails")) == ["round", "sweep"]
    assert sorted(line["method"] for line in here.logged("works_again")) == ["round", "sweep"]


async def test_owners_are_shown_credentials() -> None:
    """A call to an owner carries the caller's credentials, and its refusal is reported as UNAVAILABLE."""
    seen: list[tuple[str, str]] = []

    class Recorder(rpc.JobInternalServiceServicer):
        async def GetJobRecord(self, request: Any, context: Any) -> pb.GetJobRecordResponse:  # noqa: ANN401, N802
            seen.extend(context.invocation_metadata())
            return pb.GetJobRecordResponse(token=7)

    server = grpc.aio.server(interceptors=(CallerInterceptor({"coordinator": [hash_of(TOKEN)]}),))
    rpc.add_JobInternalServiceServicer_to_server(Recorder(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = await JobOwner(channel, credential(TOKEN)).record(pb.GetJobRecordRequest(job_id="x"))
        assert answer.token == 7
        assert credential(TOKEN)[0] in [tuple(pair) for pair in seen]
        with pytest.raises(UnavailableError) as refused:
            await JobOwner(channel, ()).record(pb.GetJobRecordRequest(job_id="x"))
        assert refused.value.reason == "CALLER_REFUSED"
    await server.stop(None)


async def test_older_of_two_workers_under_one_name_is_sent_away(here: World, stub: Any) -> None:  # noqa: ANN401
    """Of two workers with the same id the older one is refused, and the newer one keeps its job."""

    def beat(incarnation: int, *, is_arriving: bool = False) -> Any:  # noqa: ANN401 - a call of a stub
        held = pb.RunningJobs(jobs=[pb.RunningJob(job_id=job_id, token=token)] if incarnation == 2 and token else [])
        return stub.WorkerHeartbeat(
            pb.WorkerHeartbeatRequest(worker_id="w", running=held, incarnation=incarnation, is_arriving=is_arriving)
        )

    job_id, token = await here.submit(), 0
    await beat(1, is_arriving=True)
    await beat(2, is_arriving=True)
    assert await refusal(beat(1)) == ("ABORTED", "WORKER_SUPERSEDED")
    token = (await stub.FetchWork(pb.FetchWorkRequest(worker_id="w"))).token
    here.clock.advance(3)
    assert await refusal(beat(1)) == ("ABORTED", "WORKER_SUPERSEDED")
    assert not (await beat(2)).revoked
    assert await here.state(job_id) == RUNNING
