"""ListJobs: order, pages, filters."""

from collections.abc import Iterator

import grpc
import pytest

from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.served import LEASE_MS, Serving, Topology
from tests.contract.worker_app import HOLD
from tests.e2e.grpc_client import Wire, refusal

JOBS = 210
SERVED_QUEUE = "served"


@pytest.fixture(scope="module")
def wire(serve: Serving) -> Wire:
    """A topology with 210 jobs, many of the same millisecond; 3 are RUNNING, 4 DONE, 5 CANCELED.

    The worker serves one queue; the jobs of the other queue stay QUEUED.
    """
    wire = serve(lease_ms=LEASE_MS, heartbeat_ms=1_000, nodes=1, slots=8, queues=SERVED_QUEUE).wire
    done = batch(wire, own.JobTemplate(type="echo", queue=SERVED_QUEUE), 4)
    held = batch(wire, own.JobTemplate(type=HOLD, queue=SERVED_QUEUE), 3)
    for _ in range(4):
        batch(wire, own.JobTemplate(type="sim"), 48)
    for job_id in [wire.new(job_type="single") for _ in range(11)][:5]:
        wire.cancel(job_id)
    for job_id in held:
        wire.wait_for(job_id, public.RUNNING)
    assert [wire.wait_for(job_id).status for job_id in done] == [public.DONE] * 4
    return wire


def batch(wire: Wire, template: own.JobTemplate, count: int) -> list[str]:
    """Submits equal jobs and returns their ids."""
    return list(wire.batch(own.SubmitJobsRequest(templates=[template], jobs=[own.NewJob()] * count)).job_ids)


def ids(jobs: object) -> list[str]:
    return [job.job_id for job in jobs]  # type: ignore[attr-defined]


def pages(wire: Wire, size: int, *states: int, sort: int = public.CREATED_AT_ASC) -> Iterator[list[str]]:
    token = ""
    while True:
        page = wire.page(*states, size=size, token=token, sort=sort)
        yield ids(page.jobs)
        token = page.page.next_page_token
        if not token:
            return


def test_oldest_first_is_by_creation_and_then_by_id(wire: Wire) -> None:
    """Ascending order sorts by creation time, and jobs of the same millisecond by ascending id."""
    jobs = wire.all_jobs(sort=public.CREATED_AT_ASC)
    assert ids(jobs) == ids(sorted(jobs, key=lambda job: (job.created_at_ms, job.job_id)))
    assert len(jobs) == JOBS


@pytest.mark.parametrize("sort", [public.CREATED_AT_DESC, public.JOB_SORT_UNSPECIFIED])
def test_newest_first_is_the_default_and_keeps_ids_ascending(serve: Serving, wire: Wire, sort: int) -> None:
    """Descending order reverses the times, but not the ids within a millisecond."""
    jobs = wire.all_jobs(sort=sort)
    assert ids(jobs) == ids(sorted(jobs, key=lambda job: (-job.created_at_ms, job.job_id)))
    is_shared = len({job.created_at_ms for job in jobs}) < JOBS
    # The services create jobs one by one, which takes longer than a millisecond; their order is tested in
    # tests/unit/topologies/microservices.
    assert is_shared or serve.topology is Topology.MICROSERVICES, "expected some jobs to share a millisecond"


def test_page_size_zero_means_fifty(wire: Wire) -> None:
    """A list request with page size 0 gets 50 jobs."""
    assert len(wire.page().jobs) == 50


@pytest.mark.parametrize("size", [201, 1_000, 2**32 - 1])
def test_page_size_above_the_maximum_means_the_maximum(wire: Wire, size: int) -> None:
    """A page has at most 200 jobs, whatever size the client requests."""
    assert len(wire.page(size=size).jobs) == 200


@pytest.mark.parametrize("size", [30, 50, 105, 200])
def test_pages_put_together_are_the_whole_list(wire: Wire, size: int) -> None:
    """A client that follows the page tokens gets every job once, in order, in full pages."""
    found = list(pages(wire, size))
    assert [job_id for page in found for job_id in page] == ids(wire.all_jobs())
    assert all(len(page) == size for page in found[:-1])
    assert 1 <= len(found[-1]) <= size


def test_token_is_an_offset_in_digits(wire: Wire) -> None:
    """The token after a page of 20 is 20, and a client may request any offset."""
    assert wire.page(size=20).page.next_page_token == "20"
    whole = ids(wire.all_jobs())
    assert ids(wire.page(size=5, token="13", sort=public.CREATED_AT_ASC).jobs) == whole[13:18]


def test_next_token_is_empty_at_the_end(wire: Wire) -> None:
    """The next token of the last page is empty, and so is a page past the end."""
    last = wire.page(size=200, token="200")
    assert (len(last.jobs), last.page.next_page_token) == (10, "")
    beyond = wire.page(token="9" * 19)
    assert (len(beyond.jobs), beyond.page.next_page_token) == (0, "")


@pytest.mark.parametrize(
    "token", ["x", "-1", "+1", " 1", "1.0", "0x1", "\uff11", "\u0663", "1" * 20, "1" * 5_000, "1\n", "\0"]
)
def test_a_token_that_is_no_offset_is_refused(wire: Wire, token: str) -> None:
    """A page token that is not an offset in ASCII digits of bounded length is INVALID_ARGUMENT."""
    refused = refusal(lambda: wire.page(token=token))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")


def test_empty_filter_lists_every_status(wire: Wire) -> None:
    """A list request without a filter returns jobs of every status."""
    counts = {state: len(wire.all_jobs(state)) for state in (public.RUNNING, public.DONE, public.CANCELED)}
    assert counts == {public.RUNNING: 3, public.DONE: 4, public.CANCELED: 5}
    assert {job.status for job in wire.all_jobs()} == {public.QUEUED, *counts}


@pytest.mark.parametrize("sort", [public.CREATED_AT_ASC, public.CREATED_AT_DESC])
@pytest.mark.parametrize("size", [1, 2])
def test_filter_keeps_the_named_statuses_in_order(wire: Wire, sort: int, size: int) -> None:
    """A filter with two statuses returns the jobs in either status, paged and sorted as usual."""
    wanted = (public.DONE, public.CANCELED)
    expected = [job.job_id for job in wire.all_jobs(sort=sort) if job.status in wanted]
    assert [job_id for page in pages(wire, size, *wanted, sort=sort) for job_id in page] == expected
    assert len(expected) == 9


def test_filter_that_nothing_matches_gives_an_empty_page(wire: Wire) -> None:
    """A filter that matches no job returns an empty page."""
    assert wire.page(public.FAILED) == public.ListJobsResponse(page=public.PageResponse())


@pytest.mark.parametrize("status", [public.JOB_STATUS_UNSPECIFIED, 6, 99])
def test_unknown_status_in_a_filter_is_refused(wire: Wire, status: int) -> None:
    """A filter with a status that no job can have is INVALID_ARGUMENT."""
    refused = refusal(lambda: wire.page(status))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "STATUS_INVALID")


def test_unknown_sort_is_refused(wire: Wire) -> None:
    """A list request with an unknown sort order is INVALID_ARGUMENT."""
    refused = refusal(lambda: wire.page(sort=7))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "SORT_INVALID")


def test_listed_job_agrees_with_its_status(wire: Wire) -> None:
    """Each job of a list agrees with GetJobStatus in every field that both have."""
    for line in wire.all_jobs(public.DONE, public.RUNNING, public.CANCELED):
        job = wire.status(line.job_id)
        shared = ("status", "created_at_ms", "started_at_ms", "finished_at_ms", "cancel_requested")
        assert [getattr(line, name) for name in shared] == [getattr(job, name) for name in shared]
        assert line.job_type in {"echo", HOLD, "single"}


def test_pages_come_from_the_live_list(serve: Serving) -> None:
    """Each page is computed when it is requested and includes jobs submitted since the page before."""
    wire = serve(nodes=1).wire
    for _ in range(4):
        wire.new()
    token = wire.page(size=2).page.next_page_token
    wire.cancel(wire.new())
    now = ids(wire.all_jobs(sort=public.CREATED_AT_DESC))
    assert ids(wire.page(size=3, token=token).jobs) == now[2:5]


def test_listing_can_be_repeated(wire: Wire) -> None:
    """Equal list requests return the same page while no job changes."""
    first = wire.page(public.QUEUED, size=30, token="10")
    assert [wire.page(public.QUEUED, size=30, token="10") for _ in range(3)] == [first] * 3
