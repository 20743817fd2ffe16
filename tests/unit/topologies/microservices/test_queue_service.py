"""The queue service over gRPC, in memory and on disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import limits
from holdfast.errors import Code
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.testing.clock import ManualClock
from holdfast.topologies.microservices.services.queue_service import QueueService
from holdfast.topologies.microservices.state.waiting_jobs import WaitingJobs
from tests.unit.topologies.microservices.owner_server import DEADLINE_S, Owner, served, servers_with

SERVICE = "/taskqueue.internal.v1.QueueInternalService/"


class Queue:
    """A client of one queue service."""

    def __init__(self, owner: Owner, line: WaitingJobs) -> None:
        self.owner = owner
        self.line = line
        self.stub = rpc.QueueInternalServiceStub(owner.channel)

    async def enqueue(self, job_id: str, **fields: Any) -> pb.EnqueueJobResponse:  # noqa: ANN401 - any field
        request = pb.EnqueueJobRequest(job_id=job_id, **fields)
        answer: pb.EnqueueJobResponse = await self.stub.EnqueueJob(request, timeout=DEADLINE_S)
        return answer

    async def dequeue(self, wanted: pb.Wanted | None = None, worker_id: str = "w") -> pb.DequeueJobResponse:
        request = pb.DequeueJobRequest(worker_id=worker_id, wanted=wanted)
        answer: pb.DequeueJobResponse = await self.stub.DequeueJob(request, timeout=DEADLINE_S)
        return answer

    async def rest(self, wanted: pb.Wanted | None = None) -> list[str]:
        """Dequeues everything, in order."""
        ids: list[str] = []
        while (answer := await self.dequeue(wanted)).found:
            ids.append(answer.job_id)
            assert len(ids) < 100, "the service returns the same job repeatedly"
        return ids

    async def remove(self, job_id: str) -> bool:
        request = pb.RemoveJobIfPresentRequest(job_id=job_id)
        answer: pb.RemoveJobIfPresentResponse = await self.stub.RemoveJobIfPresent(request, timeout=DEADLINE_S)
        return answer.removed


@asynccontextmanager
async def queue_at(data: Path | None, **options: Any) -> AsyncIterator[Queue]:  # noqa: ANN401 - of `served`
    line = WaitingJobs(aging_ms=60_000)

    def register(state_owner: Any, server: Any) -> None:  # noqa: ANN401
        rpc.add_QueueInternalServiceServicer_to_server(QueueService(state_owner, line), server)

    async with served(line, register, data, **options) as owner:
        yield Queue(owner, line)


@pytest.fixture(params=["memory", "disk"])
async def queue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Queue]:
    """An empty queue service."""
    async with queue_at(tmp_path / "queue" if request.param == "disk" else None) as queue:
        yield queue


async def test_jobs_leave_in_the_order_in_which_they_came(queue: Queue) -> None:
    """A caller that uses only the frozen fields gets jobs first in, first out."""
    for job_id in ("c", "a", "b"):
        answer = await queue.enqueue(job_id, enqueued_at_ms=queue.owner.clock.wall_ms())
        assert answer == pb.EnqueueJobResponse(accepted=True)
    assert await queue.rest() == ["c", "a", "b"]


async def test_enqueue_of_a_queued_id_changes_nothing(queue: Queue) -> None:
    """Enqueuing a waiting job again is accepted as existing, and changes neither its place nor its fields."""
    await queue.enqueue("a", order=1)
    await queue.enqueue("b", order=2)
    before = queue.line.digest
    for fields in ({}, {"order": 9}, {"priority": 0, "queue": "other", "route": "other"}):
        answer = await queue.enqueue("a", **fields)
        assert answer == pb.EnqueueJobResponse(accepted=True, existing=True)
    assert queue.line.digest == before
    assert await queue.rest() == ["a", "b"]


async def test_dequeue_takes_the_job_at_once(queue: Queue) -> None:
    """A dequeued job is not found or removed by other calls, until it is enqueued again."""
    await queue.enqueue("a")
    assert await queue.dequeue() == pb.DequeueJobResponse(found=True, job_id="a")
    assert await queue.dequeue(worker_id="other") == pb.DequeueJobResponse(found=False)
    assert not await queue.remove("a")
    assert not (await queue.enqueue("a")).existing
    assert await queue.rest() == ["a"]


async def test_each_job_is_handed_out_once_however_many_ask(queue: Queue) -> None:
    """Concurrent dequeues get each job exactly once."""
    ids = [f"job-{number}" for number in range(60)]
    await asyncio.gather(*(queue.enqueue(job_id) for job_id in ids))
    answers = await asyncio.gather(*(queue.dequeue() for _ in range(80)))
    assert sorted(answer.job_id for answer in answers if answer.found) == sorted(ids)
    assert sum(not answer.found for answer in answers) == 20


async def test_remove_can_be_repeated(queue: Queue) -> None:
    """Only the first remove of a waiting job reports success, and any other changes nothing."""
    await queue.enqueue("a")
    await queue.enqueue("b")
    assert [await queue.remove(job_id) for job_id in ("a", "a", "never there")] == [True, False, False]
    assert await queue.rest() == ["b"]


async def test_jobs_take_the_place_of_their_order(queue: Queue) -> None:
    """A job that arrives late or comes back takes the place of its order."""
    for job_id, order in (("b", 2), ("c", 3), ("a", 1)):
        await queue.enqueue(job_id, order=order)
    assert (await queue.dequeue()).job_id == "a"
    await queue.enqueue("a", order=1)
    assert await queue.rest() == ["a", "b", "c"]


async def test_dequeue_selects_by_routes_and_queues(queue: Queue) -> None:
    """A dequeue selects by routes and queues, an empty filter selects nothing, and no filter selects everything."""
    await queue.enqueue("a", route="x", queue="q1")
    await queue.enqueue("b", route="y", queue="q2")
    await queue.enqueue("c")
    assert await queue.rest(pb.Wanted()) == []
    assert await queue.rest(pb.Wanted(routes=["x", "y"], queues=["default"])) == []
    assert await queue.rest(pb.Wanted(routes=["sim"])) == ["c"], "a job without a route is simulated"
    assert await queue.rest(pb.Wanted(routes=["y", "x"], queues=["q2"])) == ["b"]
    assert await queue.rest() == ["a"]


async def test_urgent_jobs_go_first(queue: Queue) -> None:
    """Jobs leave by priority, where zero is the lowest and the default is in the middle."""
    await queue.enqueue("low", priority=0)
    await queue.enqueue("usual")
    await queue.enqueue("high", priority=9)
    assert await queue.rest() == ["high", "usual", "low"]


async def test_delayed_job_is_not_found_before_its_time(queue: Queue) -> None:
    """A delayed job can be removed at once, but is dequeued only when it is due."""
    clock = queue.owner.clock
    for job_id in ("a", "b"):
        await queue.enqueue(job_id, not_before_ms=clock.wall_ms() + 1_000)
    assert (await queue.enqueue("a")).existing
    clock.advance(0.999)
    assert await queue.rest() == []
    assert await queue.remove("b")
    clock.advance(0.001)
    assert await queue.rest() == ["a"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"job_id": ""}, "JOB_ID_EMPTY"),
        ({"job_id": "x" * (limits.JOB_ID_CHARS_MAX + 1)}, "JOB_ID_TOO_LONG"),
        ({"job_id": "a\0b"}, "JOB_ID_INVALID"),
        ({"job_id": "a\r\nb"}, "JOB_ID_INVALID"),
        ({"queue": "no queue"}, "QUEUE_NAME_INVALID"),
        ({"queue": "q" * (limits.NAME_CHARS_MAX + 1)}, "QUEUE_NAME_INVALID"),
        ({"route": "../x"}, "ROUTE_INVALID"),
        ({"priority": limits.PRIORITY_MAX + 1}, "OPTION_OUT_OF_RANGE"),
        ({"not_before_ms": -1}, "OPTION_OUT_OF_RANGE"),
        ({"not_before_ms": 1 << 62}, "DELAY_TOO_LONG"),
        ({"enqueued_at_ms": -1}, "OPTION_OUT_OF_RANGE"),
    ],
)
async def test_malformed_enqueue_is_refused(fields: dict[str, Any], reason: str) -> None:
    """Each invalid field of an enqueue is INVALID_ARGUMENT with its own reason, and nothing is enqueued."""
    async with queue_at(None) as queue:
        error = await queue.owner.refusal(queue.enqueue(**{"job_id": "a", **fields}))
        assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, reason)


async def test_values_at_their_limits_are_taken(queue: Queue) -> None:
    """The queue service accepts the longest id and names, both ends of the priorities and the longest delay."""
    name = "n" * limits.NAME_CHARS_MAX
    now_ms = queue.owner.clock.wall_ms()
    await queue.enqueue("x" * limits.JOB_ID_CHARS_MAX, queue=name, route=name, priority=limits.PRIORITY_MAX)
    await queue.enqueue("b", priority=limits.PRIORITY_MIN, order=(1 << 64) - 1, enqueued_at_ms=(1 << 63) - 1)
    await queue.enqueue("later", not_before_ms=now_ms + limits.DELAY_MS_MAX)
    assert await queue.rest() == ["x" * limits.JOB_ID_CHARS_MAX, "b"]


async def test_malformed_dequeue_and_remove_are_refused(queue: Queue) -> None:
    """A dequeue or remove with an invalid worker, route, queue or id, or with too many filters, is refused."""
    await queue.enqueue("a")
    many = [f"r{number}" for number in range(101)]
    for call, reason in (
        (queue.dequeue(worker_id=""), "WORKER_ID_INVALID"),
        (queue.dequeue(worker_id="a b"), "WORKER_ID_INVALID"),
        (queue.dequeue(pb.Wanted(routes=[""])), "ROUTE_INVALID"),
        (queue.dequeue(pb.Wanted(routes=["x"], queues=["no queue"])), "QUEUE_NAME_INVALID"),
        (queue.dequeue(pb.Wanted(routes=many, queues=many)), "WANTED_TOO_LARGE"),
        (queue.remove(""), "JOB_ID_EMPTY"),
        (queue.remove("x" * 129), "JOB_ID_TOO_LONG"),
    ):
        error = await queue.owner.refusal(call)
        assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, reason)
    assert await queue.rest() == ["a"]


@pytest.mark.parametrize("method", ["EnqueueJob", "DequeueJob", "RemoveJobIfPresent"])
async def test_bytes_that_are_no_message_are_refused(method: str) -> None:
    """A truncated message, and text that is not UTF-8, are refused."""
    async with queue_at(None) as queue:
        for data in (b"\x0a\xff", b"\x0a\x02\xff\xfe"):
            error = await queue.owner.refusal(queue.owner.raw(SERVICE + method, data))
            assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, "MESSAGE_MALFORMED")


async def test_queue_knows_no_other_domain(queue: Queue) -> None:
    """The queue service serves no methods of other services."""
    for method in ("JobInternalService/GetJobRecord", "ResultInternalService/GetResult", "QueueInternalService/Peek"):
        error = await queue.owner.refusal(queue.owner.raw(f"/taskqueue.internal.v1.{method}", b""))
        assert error.code == Code.UNIMPLEMENTED


async def test_full_queue_says_so(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above its limit the queue service refuses new jobs as retryable, and still finds the waiting ones."""
    await queue.enqueue("a")
    monkeypatch.setattr(limits, "JOBS_HELD_MAX", 1)
    error = await queue.owner.refusal(queue.enqueue("b"))
    assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    assert (await queue.enqueue("a")).existing


@pytest.mark.parametrize("compact_bytes", [64 << 20, 4_096], ids=["journal", "snapshot"])
async def test_waiting_jobs_survive_a_restart(tmp_path: Path, compact_bytes: int) -> None:
    """After a restart, waiting jobs keep their places and delays, and dequeued or removed ones stay gone."""
    clock = ManualClock()
    options: dict[str, Any] = {"clock": clock, "compact_bytes": compact_bytes}
    async with queue_at(tmp_path / "queue", **options) as queue:
        for number in range(100):
            await queue.enqueue(f"gone-{number}")
        for number in range(100):
            await queue.remove(f"gone-{number}")
        for job_id, order in (("c", 3), ("a", 1), ("b", 2)):
            await queue.enqueue(job_id, order=order)
        await queue.enqueue("later", order=4, not_before_ms=clock.wall_ms() + 60_000)
        assert (await queue.dequeue()).job_id == "a"
    assert bool(list((tmp_path / "queue").glob("*.snap*"))) == (compact_bytes == 4_096)
    async with queue_at(tmp_path / "queue", **options) as queue:
        assert len(queue.line) == 3
        assert (await queue.enqueue("b")).existing
        assert not (await queue.enqueue("a", order=1)).existing
        assert (await queue.dequeue()).job_id == "a"
    clock.advance(60)
    async with queue_at(tmp_path / "queue", **options) as queue:
        assert await queue.rest() == ["b", "c", "later"]
    async with queue_at(tmp_path / "queue", **options) as queue:
        assert await queue.rest() == []


async def test_queue_service_stores_only_waiting_jobs(queue: Queue) -> None:
    """Once all jobs have left, the queue service stores nothing about them."""
    for number in range(20):
        await queue.enqueue(f"job-{number}", queue=f"q{number}", route=f"r{number}")
    await queue.remove("job-7")
    await queue.rest()
    assert len(queue.line) == 0
    assert len(list(queue.line.image())) == 1


def test_only_the_queue_service_changes_the_line(root: Path) -> None:
    """Only the queue service and its role use the state of the waiting jobs."""
    assert servers_with(root, "topologies.microservices.state.waiting_jobs") == {
        "topologies/microservices/services/queue_service.py",
    }
