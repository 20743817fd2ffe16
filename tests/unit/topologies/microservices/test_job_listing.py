"""Lists and searches of the job service, over gRPC."""

from collections.abc import AsyncIterator

import grpc
import pytest

from holdfast import limits
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from tests.unit.topologies.microservices.job_calls import CANCELED, QUEUED, RUNNING, JobCalls, serving


@pytest.fixture
async def job() -> AsyncIterator[JobCalls]:
    """A job service in memory."""
    async with serving() as calls:
        yield calls


def page(size: int = 0, token: str = "") -> public_pb.PageRequest:
    return public_pb.PageRequest(page_size=size, page_token=token)


async def fill(job: JobCalls, count: int, **labels: str) -> list[str]:
    spec = public_pb.JobSpec(job_type="t", labels=labels)
    return [(await job.create("", spec)).job_id for _ in range(count)]


async def test_pages_put_together_are_the_whole_list(job: JobCalls) -> None:
    """The pages together are the whole list by creation time and id, and the last page has no token."""
    await fill(job, 7)
    whole = (await job.list()).jobs
    assert [line.job_id for line in whole] == [
        line.job_id for line in sorted(whole, key=lambda line: (-line.created_at_ms, line.job_id))
    ]
    for sort, expected in (
        (public_pb.CREATED_AT_DESC, list(whole)),
        (public_pb.CREATED_AT_ASC, sorted(whole, key=lambda line: (line.created_at_ms, line.job_id))),
    ):
        found, token = list[public_pb.JobSummary](), ""
        while True:
            reply = await job.list(page=page(3, token), sort=sort)
            found += reply.jobs
            token = reply.page.next_page_token
            if not token:
                break
            assert token == str(len(found))
        assert found == expected


async def test_filter_and_sizes(job: JobCalls) -> None:
    """A list applies its status filter and page sizes, and leaves the fields of searches empty."""
    ids = await fill(job, 210)
    await job.move(ids[3], QUEUED, RUNNING)
    await job.move(ids[5], QUEUED, CANCELED)
    reply = await job.list(status_filter=[RUNNING, CANCELED])
    assert {line.job_id for line in reply.jobs} == {ids[3], ids[5]}
    assert not reply.records
    assert reply.next_cursor == ""
    assert len((await job.list()).jobs) == limits.PAGE_SIZE_DEFAULT
    assert len((await job.list(page=page(1_000))).jobs) == limits.PAGE_SIZE_MAX


async def test_search_goes_on_while_jobs_come_and_go(job: JobCalls) -> None:
    """A search finds each job that stays once, oldest first, with its record and without its payload."""
    ids = await fill(job, 6, kind="x")
    await fill(job, 2, kind="y")
    found, cursor = list[str](), ""
    while True:
        reply = await job.list(
            status_filter=[QUEUED],
            page=page(2),
            sort=public_pb.CREATED_AT_ASC,
            search=pb.JobSearch(labels={"kind": "x"}, cursor=cursor),
        )
        assert not reply.jobs
        found += [record.summary.job_id for record in reply.records]
        cursor = reply.next_cursor
        if not cursor:
            break
        if len(found) == 2:
            await job.move(found[0], QUEUED, CANCELED)
            await fill(job, 1, kind="y")
    assert sorted(found) == sorted(ids)
    running = await job.list(status_filter=[RUNNING], search=pb.JobSearch())
    assert (list(running.records), running.next_cursor) == ([], "")


async def test_search_by_queue_type_and_time(job: JobCalls) -> None:
    """A search finds jobs that match all of its conditions."""
    spec = public_pb.JobSpec(job_type="resize")
    created = await job.create("", spec, pb.JobOptions(queue="images", payload=b"pixels"))
    await fill(job, 2)

    async def search(**fields: object) -> list[pb.GetJobRecordResponse]:
        return list((await job.list(search=pb.JobSearch(**fields))).records)  # type: ignore[arg-type]

    (record,) = await search(queue="images", type="resize", created_from_ms=created.created_at_ms)
    assert (record.summary.job_id, record.options.payload) == (created.job_id, b"")
    assert record.order == created.order
    assert await search(queue="images", type="t") == []
    assert await search(created_before_ms=1) == []
    assert len(await search()) == 3


async def test_cursor_of_another_search_is_refused(job: JobCalls) -> None:
    """A cursor of another search is refused."""
    await fill(job, 3)
    cursor = (await job.list(page=page(1), search=pb.JobSearch(type="t"))).next_cursor
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await job.list(page=page(1), search=pb.JobSearch(type="u", cursor=cursor))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_part_of_a_search_fits_into_a_message(job: JobCalls) -> None:
    """A search over jobs with the longest labels is split into several messages, and none is missing."""
    labels = {f"label {number}": "x" * limits.LABEL_VALUE_CHARS_MAX for number in range(limits.LABELS_MAX)}
    ids = await fill(job, 60, **labels)
    found, cursor, parts = list[str](), "", 0
    while cursor or not parts:
        reply = await job.list(page=page(100), search=pb.JobSearch(cursor=cursor))
        assert reply.ByteSize() < limits.MESSAGE_BYTES_MAX
        found += [record.summary.job_id for record in reply.records]
        cursor, parts = reply.next_cursor, parts + 1
    assert sorted(found) == sorted(ids)
    assert parts > 1
