"""The same request over gRPC and over HTTP produces the same event in the journal."""

from typing import Any

import grpc
import msgspec
import pytest

from holdfast.core.events import AnyEvent, Created
from holdfast.core.ledger import Ledger
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.server.ledger_server import LedgerServer
from tests.integration.conftest import Start
from tests.integration.http_client import Reply, ask, post

#: For each case: over HTTP, and over gRPC.
SUBMITS: dict[str, tuple[dict[str, Any], pb.SubmitJobsRequest]] = {
    "plain": (
        {"type": "echo"},
        pb.SubmitJobsRequest(templates=[pb.JobTemplate(type="echo")], jobs=[pb.NewJob()]),
    ),
    "everything": (
        {
            "type": "mail",
            "payload": {"to": "é", "n": [1, 2.5]},
            "queue": "high",
            "priority": 0,
            "max_attempts": 4,
            "max_losses": 0,
            "timeout_s": 2.5,
            "backoff": {"kind": "quadratic", "base_s": 10, "max_s": 100},
            "not_before": "2026-12-01T00:00:00Z",
            "labels": {"b": "2", "a": "1"},
            "headers": {"h": "x"},
            "unique_key": "u",
            "request_id": "r",
        },
        pb.SubmitJobsRequest(
            templates=[
                pb.JobTemplate(
                    type="mail",
                    queue="high",
                    priority=0,
                    max_attempts=4,
                    max_losses=0,
                    timeout_ms=2_500,
                    backoff=pb.Backoff(kind=pb.BACKOFF_KIND_QUADRATIC, base_ms=10_000, max_ms=100_000),
                )
            ],
            jobs=[
                pb.NewJob(
                    payload='{"to":"é","n":[1,2.5]}'.encode(),
                    not_before_ms=1_796_083_200_000,
                    labels={"a": "1", "b": "2"},
                    headers={"h": "x"},
                    unique_key="u",
                    request_id="r",
                )
            ],
        ),
    ),
    "batch": (
        {"jobs": [{"type": "a", "payload": [1]}, {"type": "b", "queue": "q"}, {"type": "a", "labels": {"x": ""}}]},
        pb.SubmitJobsRequest(
            templates=[pb.JobTemplate(type="a"), pb.JobTemplate(type="b", queue="q")],
            jobs=[pb.NewJob(payload=b"[1]"), pb.NewJob(template=1), pb.NewJob(labels={"x": ""})],
        ),
    ),
}


class Events:
    """The events of a server."""

    def __init__(self) -> None:
        self.seen: list[AnyEvent] = []

    def applied(self, _position: int, event: AnyEvent, _ledger: Ledger) -> None:
        self.seen.append(event)

    def durable(self, position: int) -> None:
        pass

    def bug(self, command: object, error: Exception) -> None:
        raise AssertionError(command) from error


async def served(start: Start, folder: str) -> tuple[LedgerServer, Events]:
    server = await start(no_http=False, http_port=0, data=folder)
    events = Events()
    server.coordinator.observers.append(events)
    return server, events


def plain(event: AnyEvent) -> object:
    """An event without its time and its random ids."""
    event = msgspec.structs.replace(event, at_ms=0)
    if isinstance(event, Created):
        jobs = [msgspec.structs.replace(job, id="") for job in event.jobs]
        event = msgspec.structs.replace(event, jobs=jobs)
    return type(event).__name__, msgspec.to_builtins(event)


@pytest.mark.parametrize("case", SUBMITS)
async def test_submission_leaves_the_same_event(start: Start, tmp_path: Any, case: str) -> None:  # noqa: ANN401
    """A submit of a minimal job, a full job or several produces an equal `Created` event, except for ids and times."""
    body, message = SUBMITS[case]
    by_http, http_events = await served(start, str(tmp_path / "http"))
    by_grpc, grpc_events = await served(start, str(tmp_path / "grpc"))
    assert (await post(by_http.http_address, "/api/v1/jobs", body)).status == 202
    async with grpc.aio.insecure_channel(by_grpc.address) as channel:
        stub: Any = rpc.JobServiceStub(channel)
        reply = await stub.SubmitJobs(message)
    assert all(reply.job_ids)
    assert [type(event) for event in http_events.seen] == [Created]
    assert [plain(event) for event in http_events.seen] == [plain(event) for event in grpc_events.seen]


async def test_schedule_and_queue_leave_the_same_events(start: Start, tmp_path: Any) -> None:  # noqa: ANN401
    """Changes of schedules and queues produce the same events over gRPC and HTTP."""
    by_http, http_events = await served(start, str(tmp_path / "http"))
    by_grpc, grpc_events = await served(start, str(tmp_path / "grpc"))

    async def http(method: str, path: str, content: object = None) -> Reply:
        reply = await ask(by_http.http_address, method, f"/api/v1{path}", content)
        assert reply.status < 300, reply
        return reply

    at = {"type": "echo", "payload": {"a": 1}, "at": "2040-01-31T09:00:00Z", "overlap": "skip", "labels": {"k": "v"}}
    await http("PUT", "/schedules/launch", at)
    await http("POST", "/schedules/launch/pause")
    await http("DELETE", "/schedules/launch")
    await http("POST", "/queues/q/pause", {"reason": "why not"})
    await http("POST", "/queues/q/resume")
    async with grpc.aio.insecure_channel(by_grpc.address) as channel:
        schedules: Any = rpc.ScheduleServiceStub(channel)
        admin: Any = rpc.AdminServiceStub(channel)
        template, at_ms = pb.JobTemplate(type="echo"), 2_211_613_200_000
        await schedules.SetSchedule(
            pb.ScheduleSpec(
                name="launch", template=template, payload=b'{"a":1}', at_ms=at_ms, overlap="skip", labels={"k": "v"}
            )
        )
        await schedules.PauseSchedule(pb.PauseScheduleRequest(name="launch", is_paused=True))
        await schedules.DeleteSchedule(pb.DeleteScheduleRequest(name="launch"))
        await admin.SetQueueMode(pb.SetQueueModeRequest(queue="q", mode=pb.QUEUE_MODE_PAUSED, reason="why not"))
        await admin.SetQueueMode(pb.SetQueueModeRequest(queue="q", mode=pb.QUEUE_MODE_OPEN))
    assert len(http_events.seen) == 5
    assert [plain(event) for event in http_events.seen] == [plain(event) for event in grpc_events.seen]
