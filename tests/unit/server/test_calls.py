"""The table of methods, and responses that are split to fit."""

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import cast

from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import Extra, Template
from holdfast.limits import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX
from holdfast.ports import FeedPart, JobApi, JobQuery, JobView, SearchPage
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.backend import Backend
from holdfast.server.grpc.job_methods import JobCalls, closing, feed_messages
from holdfast.server.grpc.method_table import table


class Labelled:
    """A backend whose jobs have the maximum number of labels."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def find(self, _: JobQuery, cursor: str, size: int) -> SearchPage:
        self.sizes.append(size)
        extra = Extra(labels=tuple((f"{number}", "x" * 1_024) for number in range(64)))
        job = JobView("id", Template("brew"), State.QUEUED, 1, 0, 0, 0, False, "", 0, extra)
        return SearchPage([job] * size, "more")


def backend(jobs: object = None) -> Backend:
    return Backend(cast("JobApi", jobs))


def test_table_has_every_method_of_its_services() -> None:
    """The table has every method of the contract, with its request type and its kind of response."""
    services = [pb.DESCRIPTOR.services_by_name[name] for name in ("JobService", "AdminService", "ScheduleService")]
    expected = {
        f"{service.name}/{method.name}": (method.input_type.name, method.server_streaming)
        for service in services
        for method in service.methods
        if method.name != "Converse"
    }
    rows = table(backend()).items()
    assert {path: (row.request.DESCRIPTOR.name, row.is_stream) for path, row in rows} == expected


async def test_found_jobs_that_do_not_fit_into_a_message_come_in_smaller_parts() -> None:
    """If found jobs do not fit into a message, the server searches for fewer, and the cursor continues after them."""
    jobs = Labelled()
    response = await JobCalls(backend(jobs)).find(pb.FindJobsRequest(page_size=200))
    assert jobs.sizes == [200, 50]
    assert (len(response.jobs), response.next_cursor) == (50, "more")
    assert response.ByteSize() <= BATCH_BYTES_MAX


def test_long_part_of_the_feed_is_cut_without_a_gap() -> None:
    """A long part of the feed is split into messages that fit, and a reader can continue from each without a gap."""
    entries = [Entry(number // 3, 0, "j", "what", reason="r" * 1_024) for number in range(3, 10_000)]
    messages = list(feed_messages(FeedPart(entries, 5_000)))
    assert sum(len(message.entries) for message in messages) == len(entries)
    assert messages[-1].position == 5_000
    for message, after in pairwise(messages):
        assert message.ByteSize() < MESSAGE_BYTES_MAX
        assert all(entry.position > message.position for entry in after.entries)


async def test_iterator_ends_with_its_block() -> None:
    """An iterator is closed at the end of its block, not when it is garbage collected."""
    ended = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append(True)

    async with closing(numbers()) as iterator:
        assert await anext(iterator) == 1
    assert ended == [True]
