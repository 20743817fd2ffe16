"""The job service over gRPC, for callers that use the whole internal contract or only its frozen part."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from structlog.testing import capture_logs

from holdfast.core.commands import Evict
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from tests.unit.topologies.microservices.job_calls import (
    CANCELED,
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    SPEC,
    JobCalls,
    serving,
)

Ask = Callable[[JobCalls], Coroutine[Any, Any, object]]


@pytest.fixture
async def job() -> AsyncIterator[JobCalls]:
    """A job service in memory."""
    async with serving() as calls:
        yield calls


async def refusal(asked: Coroutine[Any, Any, object]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asked
    return refused.value.code()


async def test_caller_of_the_frozen_fields_takes_a_job_through_its_life(job: JobCalls) -> None:
    """A caller that uses only the frozen fields creates simulated work, and the job service stamps all its times."""
    created = await job.create()
    assert (created.status, created.existing, created.order) == (QUEUED, False, 1)
    assert uuid.UUID(created.job_id).version == 4
    record = await job.get(created.job_id)
    assert record.spec == SPEC
    assert (record.options.simulated, record.options.max_attempts, record.options.queue) == (True, 1, "default")
    summary = record.summary
    assert summary.created_at_ms == created.created_at_ms > 0
    assert (summary.started_at_ms, summary.finished_at_ms, summary.job_type) == (0, 0, "resize an image")
    moved = await job.move(created.job_id, QUEUED, RUNNING, actor="coordinator")
    assert (moved.applied, moved.current_status, moved.token) == (True, RUNNING, 1)
    summary = (await job.get(created.job_id)).summary
    assert summary.started_at_ms >= summary.created_at_ms
    assert summary.finished_at_ms == 0
    moved = await job.move(created.job_id, RUNNING, FAILED, actor="coordinator", reason="ValueError: no")
    assert (moved.applied, moved.current_status, moved.token) == (True, FAILED, 0)
    record = await job.get(created.job_id)
    assert record.summary.finished_at_ms >= record.summary.started_at_ms > 0
    assert (record.failure_reason, record.attempts, record.failures) == ("ValueError: no", 1, 1)
    again = await job.get(created.job_id)
    again.now_ms = record.now_ms
    assert again == record, "reads can be repeated"


async def test_real_job_comes_back_as_it_was_submitted(job: JobCalls) -> None:
    """Options, payload, headers and keys of a job are kept, and a delay becomes a due time."""
    options = pb.JobOptions(
        queue="images",
        priority=0,
        max_attempts=4,
        max_losses=0,
        timeout_ms=900,
        payload=b"\x00pixels",
        headers={"trace": "t"},
        backoff=pb.RetryBackoff(kind=pb.BACKOFF_KIND_FIXED, base_ms=10, max_ms=20),
        retry_of="before",
        unique_key="one at a time",
        job_id=str(uuid.UUID(int=5, version=4)),
        delay_ms=60_000,
    )
    created = await job.create("r", public_pb.JobSpec(job_type="resize"), options)
    assert created.job_id == options.job_id
    record = await job.get(created.job_id)
    due_ms = record.options.not_before_ms
    assert due_ms == created.created_at_ms + 60_000
    options.ClearField("job_id")
    options.ClearField("delay_ms")
    options.not_before_ms = due_ms
    assert record.options == options
    record = await job.get(created.job_id, without_payload=True)
    assert record.options.payload == b""
    assert record.options.headers == {"trace": "t"}


async def test_request_id_finds_the_first_job_and_no_other(job: JobCalls) -> None:
    """A repeated request id returns the same job, and with another submission it is FAILED_PRECONDITION."""
    spec = public_pb.JobSpec(job_type="t", labels={"x": "1", "y": "2"})
    turned = public_pb.JobSpec(job_type="t", labels={"y": "2", "x": "1"})
    first = await job.create("r", spec)
    again = await job.create("r", turned)
    assert (again.job_id, again.existing, again.order) == (first.job_id, True, first.order)
    assert again.created_at_ms == first.created_at_ms
    await job.move(first.job_id, QUEUED, RUNNING)
    assert (await job.create("r", spec)).status == RUNNING
    for other in (
        public_pb.JobSpec(job_type="u", labels=spec.labels),
        public_pb.JobSpec(job_type="t", labels={"x": "1"}),
        public_pb.JobSpec(job_type="t", labels=spec.labels, work_duration_ms=1),
        public_pb.JobSpec(job_type="t", labels=spec.labels, payload_size_bytes=1),
    ):
        assert await refusal(job.create("r", other)) == grpc.StatusCode.FAILED_PRECONDITION
    assert (await job.create("", spec)).job_id != (await job.create("", spec)).job_id


async def test_memory_of_request_ids_is_bounded() -> None:
    """Above the limit of request ids the oldest is dropped, and creates a new job."""
    async with serving(keys_max=2) as job:
        ids = [(await job.create(key)).job_id for key in ("a", "b", "c")]
        assert (await job.create("b")).job_id == ids[1]
        assert (await job.create("c")).job_id == ids[2]
        assert not (await job.create("a")).existing


async def test_deletion_is_guarded_and_takes_the_request_id_along(job: JobCalls) -> None:
    """A deletion needs the expected status and a record that no second submit found, and frees the request id."""
    created = await job.create("r")
    reply = await job.delete(created.job_id, RUNNING)
    assert (reply.deleted, reply.current_status) == (False, QUEUED)
    reply = await job.delete(created.job_id)
    assert (reply.deleted, reply.current_status) == (True, QUEUED)
    assert await refusal(job.get(created.job_id)) == grpc.StatusCode.NOT_FOUND
    assert await refusal(job.delete(created.job_id)) == grpc.StatusCode.NOT_FOUND
    second = await job.create("r", public_pb.JobSpec(job_type="another"))
    assert not second.existing
    assert second.order > created.order
    assert (await job.create("r", public_pb.JobSpec(job_type="another"))).existing
    reply = await job.delete(second.job_id)
    assert (reply.deleted, reply.current_status) == (False, QUEUED), "a second submit has returned this job"


async def test_guard_that_does_not_hold_is_no_error(job: JobCalls) -> None:
    """A move with a wrong expected status is not applied, returns the actual one and is logged."""
    job_id, _ = await job.started()
    with capture_logs() as lines:
        reply = await job.move(job_id, QUEUED, CANCELED, actor="gateway")
    assert (reply.applied, reply.current_status) == (False, RUNNING)
    (line,) = [line for line in lines if line["event"] == "transition_refused"]
    assert (line["job_id"], line["reason"], line["current_status"]) == (job_id, "STATUS_MISMATCH", "RUNNING")


async def test_stale_token_moves_nothing(job: JobCalls) -> None:
    """A move with the token of an earlier run is refused, and the current holder's move is applied."""
    job_id, old = await job.started()
    await job.move(job_id, RUNNING, QUEUED, token=old, spends=pb.SPENDS_LOSS)
    new = (await job.move(job_id, QUEUED, RUNNING, worker_id="w2")).token
    assert new > old
    for target in (DONE, FAILED, CANCELED, QUEUED):
        reply = await job.move(job_id, RUNNING, target, token=old)
        assert (reply.applied, reply.current_status) == (False, RUNNING)
    record = await job.get(job_id)
    assert (record.token, record.worker_id, record.losses, record.attempts) == (new, "w2", 1, 2)
    assert (await job.move(job_id, RUNNING, DONE, token=new)).applied
    record = await job.get(job_id)
    assert (record.token, record.worker_id, record.attempts) == (new, "", 2)


async def test_returned_job_has_its_due_time_and_its_costs(job: JobCalls) -> None:
    """A retried job keeps its order, waits until it is due, and has spent a failure."""
    job_id, token = await job.started()
    before = await job.get(job_id)
    due_ms = before.summary.created_at_ms + 9_000
    await job.move(job_id, RUNNING, QUEUED, token=token, not_before_ms=due_ms, spends=pb.SPENDS_FAILURE)
    record = await job.get(job_id)
    assert (record.options.not_before_ms, record.failures, record.attempts) == (due_ms, 1, 1)
    assert (record.order, record.summary.status, record.worker_id) == (before.order, QUEUED, "")


async def test_terminal_states_never_change(job: JobCalls) -> None:
    """No move out of a terminal state is applied, whatever it expects."""
    for end in (DONE, FAILED, CANCELED):
        job_id, token = await job.started()
        await job.move(job_id, RUNNING, end, token=token)
        for source, target in ((QUEUED, RUNNING), (QUEUED, CANCELED), (RUNNING, DONE), (RUNNING, QUEUED)):
            reply = await job.move(job_id, source, target)
            assert (reply.applied, reply.current_status) == (False, end)
        for target in (QUEUED, RUNNING, DONE, FAILED, CANCELED):
            assert await refusal(job.move(job_id, end, target)) == grpc.StatusCode.INVALID_ARGUMENT
        assert (await job.get(job_id)).summary.status == end


async def test_illegal_move_is_refused_and_logged(job: JobCalls) -> None:
    """An illegal transition is refused, changes nothing and is logged."""
    job_id = (await job.create()).job_id
    with capture_logs() as lines:
        assert await refusal(job.move(job_id, QUEUED, DONE)) == grpc.StatusCode.INVALID_ARGUMENT
    (line,) = [line for line in lines if line["event"] == "refused"]
    assert (line["job_id"], line["reason"]) == (job_id, "TRANSITION_ILLEGAL")
    assert (await job.get(job_id)).summary.status == QUEUED


async def test_cancel_request_can_be_repeated_and_keeps_its_reason(job: JobCalls) -> None:
    """A cancel request can be repeated while the job has not ended, and its first reason stays."""
    job_id, token = await job.started()
    for reason in ("first", "second"):
        reply = await job.cancel(job_id, reason)
        assert (reply.applied, reply.current_status) == (True, RUNNING)
    record = await job.get(job_id)
    assert (record.summary.cancel_requested, record.cancel_reason) == (True, "first")
    await job.move(job_id, RUNNING, CANCELED, token=token)
    reply = await job.cancel(job_id)
    assert (reply.applied, reply.current_status) == (False, CANCELED)
    waiting = (await job.create()).job_id
    assert (await job.cancel(waiting)).current_status == QUEUED
    assert (await job.get(waiting)).summary.cancel_requested


@pytest.mark.parametrize(
    "asked",
    [
        lambda job: job.move("a", 0, RUNNING),
        lambda job: job.move("a", QUEUED, 0),
        lambda job: job.move("a", 9, RUNNING),
        lambda job: job.move("", QUEUED, RUNNING),
        lambda job: job.move("a", QUEUED, RUNNING, worker_id="no name"),
        lambda job: job.move("a", RUNNING, QUEUED, spends=9),
        lambda job: job.move("a", RUNNING, QUEUED, not_before_ms=-1),
        lambda job: job.delete("a", 0),
        lambda job: job.delete("", QUEUED),
        lambda job: job.get(""),
        lambda job: job.get("x" * 200),
        lambda job: job.cancel("a", cancel_requested=False),
        lambda job: job.cancel(""),
        lambda job: job.create("", public_pb.JobSpec()),
        lambda job: job.create("\n"),
        lambda job: job.create("", SPEC, pb.JobOptions(job_id="mine")),
        lambda job: job.create("", SPEC, pb.JobOptions(priority=99)),
        lambda job: job.create("", SPEC, pb.JobOptions(max_attempts=1_000)),
        lambda job: job.create("", SPEC, pb.JobOptions(backoff=pb.RetryBackoff(kind=cast("Any", 9)))),
        lambda job: job.list(status_filter=[7]),
        lambda job: job.list(page=public_pb.PageRequest(page_token="next")),
        lambda job: job.list(sort=9),
        lambda job: job.list(search=pb.JobSearch(cursor="mine")),
        lambda job: job.channel.unary_unary("/taskqueue.internal.v1.JobInternalService/CreateJob")(b"\xff\xff"),
    ],
)
async def test_malformed_request_is_an_invalid_argument(job: JobCalls, asked: Ask) -> None:
    """A malformed request, such as a move without its guard, is refused and changes nothing."""
    assert await refusal(_awaited(asked, job)) == grpc.StatusCode.INVALID_ARGUMENT
    assert not (await job.list()).jobs


async def _awaited(asked: Ask, job: JobCalls) -> object:
    return await asked(job)


@pytest.mark.parametrize(
    "asked",
    [
        lambda job: job.move("a", QUEUED, RUNNING),
        lambda job: job.delete("a", QUEUED),
        lambda job: job.get("a"),
        lambda job: job.cancel("a"),
    ],
)
async def test_unknown_job_is_not_found(job: JobCalls, asked: Ask) -> None:
    """Every call about an unknown job is NOT_FOUND."""
    assert await refusal(_awaited(asked, job)) == grpc.StatusCode.NOT_FOUND


async def test_every_transition_is_a_line(job: JobCalls) -> None:
    """Each transition and the first cancel request are logged with job, states, worker and attempt."""
    with capture_logs() as lines:
        job_id, token = await job.started()
        await job.cancel(job_id, "enough")
        await job.cancel(job_id, "enough")
        await job.move(job_id, RUNNING, QUEUED, token=token, spends=pb.SPENDS_FAILURE)
        await job.move(job_id, QUEUED, CANCELED, actor="gateway", reason="enough")
        undone = (await job.create()).job_id
        await job.delete(undone)
    told = [
        (line["job_id"], line["old_state"], line["new_state"], line["worker_id"], line["attempt"])
        for line in lines
        if line["event"] in ("transition", "cancel_requested")
    ]
    assert told == [
        (job_id, "", "QUEUED", "", 0),
        (job_id, "QUEUED", "RUNNING", "w", 1),
        (job_id, "RUNNING", "RUNNING", "w", 1),
        (job_id, "RUNNING", "QUEUED", "w", 1),
        (job_id, "QUEUED", "CANCELED", "", 1),
        (undone, "", "QUEUED", "", 0),
        (undone, "QUEUED", "", "", 0),
    ]


@pytest.mark.parametrize(
    ("retention", "kept"),
    [(Evict(1_000_000, 1, 1 << 20), 1), (Evict(20, 1_000, 1 << 20), 0), (Evict(1_000_000, 1_000, 3_000), 2)],
)
async def test_finished_records_beyond_the_bounds_are_forgotten(retention: Evict, kept: int) -> None:
    """Finished records above the limits of number, age or bytes are evicted, oldest first, with their request ids."""
    options = pb.JobOptions(simulated=True, payload=b"four")
    async with serving(retention=retention) as job:
        ids = [(await job.create(key, SPEC, options)).job_id for key in ("a", "b", "c")]
        for job_id in ids:
            await job.move(job_id, QUEUED, CANCELED)

        async def left() -> list[str]:
            found = (await job.list(sort=public_pb.CREATED_AT_ASC)).jobs
            return [summary.job_id for summary in found]

        async with asyncio.timeout(60):
            while sorted(await left()) != sorted(ids[len(ids) - kept :]):
                pass
        assert not (await job.create("a", SPEC, options)).existing


async def test_next_life_knows_everything(tmp_path: Path) -> None:
    """After a restart the service has its records, cancel flags, request ids and marks, and tokens still grow."""
    async with serving(tmp_path / "job") as job:
        job_id, token = await job.started()
        await job.cancel(job_id, "enough")
        shared = await job.create("r")
        await job.create("r")
        before = [await job.get(job_id), await job.get(shared.job_id)]
    async with serving(tmp_path / "job") as job:
        after = [await job.get(job_id), await job.get(shared.job_id)]
        for record in (*before, *after):
            record.ClearField("now_ms")
        assert after == before
        assert (await job.create("r")).job_id == shared.job_id
        assert not (await job.delete(shared.job_id)).deleted
        assert not (await job.move(job_id, RUNNING, DONE, token=token + 1)).applied
        assert (await job.move(job_id, RUNNING, DONE, token=token)).applied
        later = await job.create()
        assert later.order > shared.order
        assert (await job.move(later.job_id, QUEUED, RUNNING)).token > token
