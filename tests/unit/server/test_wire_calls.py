"""The table of the wire's methods, and responses that are split to fit."""

from itertools import pairwise
from typing import Any, cast

import msgspec

from holdfast import limits
from holdfast.core.commands import Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import Extra, Template
from holdfast.limits import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX
from holdfast.ports import FeedPart, JobApi, JobDraft, JobQuery, JobView, ResultView, SearchPage
from holdfast.server.backend import Backend
from holdfast.server.wire.calls import _pieces, table
from holdfast.wire import methods
from holdfast.wire.messages import encode
from holdfast.wire.methods import FIND, JobSearch, WireMethod


class Labelled:
    """A backend whose jobs have the maximum number of labels."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def find(self, _: JobQuery, cursor: str, size: int) -> SearchPage:
        self.sizes.append(size)
        extra = Extra(labels=tuple((f"{number}", "x" * 1_024) for number in range(64)))
        job = JobView("id", Template("brew"), State.QUEUED, 1, 0, 0, 0, False, "", 0, extra)
        return SearchPage([job] * size, "more")


def backend(jobs: object) -> Backend:
    return Backend(cast("JobApi", jobs))


class Anything:
    """Jobs whose methods are never called."""

    def __getattr__(self, name: str) -> None:
        return None


def test_table_has_every_method_of_the_wire() -> None:
    """The table has every method that clients know, with its kind of response."""
    expected = {one.name: one.is_stream for one in vars(methods).values() if isinstance(one, WireMethod)}
    assert {name: row.is_stream for name, row in table(backend(Anything())).items()} == expected
    assert len(expected) > 20


def test_every_method_has_a_bound_for_its_reply() -> None:
    """A reply is reserved in full before its call starts, except those of streams and of calls that may start again."""
    rows = table(backend(Anything()))
    submission = methods.Submission([], [JobDraft()] * 7)
    reserved = {name: row.reply_bytes(submission) for name, row in rows.items() if row.reply_bytes is not None}
    assert {name for name, row in rows.items() if row.is_stream} == {methods.WATCH.name, methods.FEED.name}
    repeated = {name: row.repeated_bytes for name, row in rows.items() if row.repeated_bytes}
    assert repeated == {method.name: size for method, size in REPEATED.items()}
    assert rows.keys() - reserved.keys() == {methods.WATCH.name, methods.FEED.name, *repeated}
    large = {name: size for name, size in reserved.items() if size != SMALL_BYTES}
    assert large == {
        methods.SUBMIT.name: 7 * 512,
        **dict.fromkeys((one.name for one in LISTS), BATCH_BYTES_MAX),
        **dict.fromkeys((one.name for one in ONE_SCHEDULE), limits.PAYLOAD_BYTES_MAX),
    }


SMALL_BYTES, VIEW_BYTES, RESULT_BYTES = 4_096, 598_016, 270_336
LISTS = (methods.FIND, methods.HISTORY, methods.QUEUES, methods.WORKERS, methods.SCHEDULES)
ONE_SCHEDULE = (methods.SET_SCHEDULE, methods.PAUSE_SCHEDULE)
#: The methods that change nothing and return one thing: they may start again.
REPEATED: dict[WireMethod[Any, Any], int] = {
    methods.GET: VIEW_BYTES,
    methods.RESULT: RESULT_BYTES,
    methods.PAYLOAD: limits.PAYLOAD_BYTES_MAX,
    methods.EXPLAIN: SMALL_BYTES,
    methods.SETTLED: VIEW_BYTES + RESULT_BYTES,
    methods.CAPABILITIES: SMALL_BYTES,
    methods.STATS: SMALL_BYTES,
    methods.GET_SCHEDULE: limits.PAYLOAD_BYTES_MAX,
    methods.PREVIEW_SCHEDULE: SMALL_BYTES,
}


def test_bounds_hold_for_the_largest_jobs() -> None:
    """The largest view of a job, the largest result and the largest submission take no more than is reserved."""
    pairs = tuple(
        (f"{number:04}".rjust(limits.LABEL_KEY_CHARS_MAX, WIDE), WIDE * limits.LABEL_VALUE_CHARS_MAX)
        for number in range(limits.LABELS_MAX)
    )
    template = Template("t" * limits.TYPE_CHARS_MAX, "q" * limits.NAME_CHARS_MAX)
    extra = Extra(request_id=WIDE * limits.REQUEST_ID_CHARS_MAX, labels=pairs, headers=pairs)
    view = JobView("i" * 128, template, State.FAILED, 1, 1, 1, 1, True, WIDE * limits.REASON_CHARS_MAX, 1, extra)
    assert len(encode(view)) < VIEW_BYTES
    result = ResultView(State.DONE, bytes(limits.OUTPUT_BYTES_MAX), WIDE * limits.SUMMARY_CHARS_MAX)
    assert len(encode(result)) < RESULT_BYTES
    submitted = Submitted(["i" * limits.JOB_ID_CHARS_MAX] * limits.BATCH_JOBS_MAX, 1, {})
    assert len(encode(submitted)) < limits.BATCH_JOBS_MAX * 512


#: A character of four bytes.
WIDE = "\U0001f600"


def test_names_and_orders_of_the_wire_never_change() -> None:
    """A request has the fields of version 1 in their order; new ones come after them and have defaults."""
    assert {name: list(kind.__struct_fields__) for name, kind in requests().items()} == VERSION_1


def requests() -> dict[str, type[msgspec.Struct]]:
    return {
        name: one
        for name, one in vars(methods).items()
        if isinstance(one, type) and issubclass(one, methods.Request) and one is not methods.Request
    }


VERSION_1 = {
    "Submission": ["templates", "drafts"],
    "OneJob": ["job_id"],
    "JobCancel": ["job_id", "reason"],
    "JobRetry": ["job_id", "request_id"],
    "JobSearch": ["query", "cursor", "size"],
    "FeedStart": ["after"],
    "QueueChange": ["queue", "mode", "reason"],
    "QueuePurge": ["queue", "reason"],
    "OneWorker": ["worker_id"],
    "OneSchedule": ["name"],
    "ScheduleChange": ["spec"],
    "SchedulePause": ["name", "is_paused"],
    "SchedulePreview": ["spec", "after_ms", "count"],
}


async def test_found_jobs_that_do_not_fit_into_a_message_come_in_smaller_parts() -> None:
    """If found jobs do not fit into a message, the server searches for fewer, and the cursor continues after them."""
    jobs = Labelled()
    method = table(backend(_With(jobs)))[FIND.name]
    found = await method.handler(JobSearch(JobQuery(), "", 200))
    job_bytes = len(encode(found.jobs[0]))
    fitting = BATCH_BYTES_MAX // job_bytes
    assert jobs.sizes == [200, fitting]
    assert FIND.decode_response(encode(found)) == found
    assert (len(found.jobs), found.cursor) == (fitting, "more")
    assert BATCH_BYTES_MAX - job_bytes < len(encode(found)) < MESSAGE_BYTES_MAX


class _With(Anything):
    """Jobs of which only `find` is called."""

    def __init__(self, jobs: Labelled) -> None:
        self.find = jobs.find


def test_long_part_of_the_feed_is_cut_without_a_gap() -> None:
    """A long part of the feed is split into messages that fit, and a reader can continue from each without a gap."""
    entries = [Entry(number // 3, 0, "j", "what", reason="r" * 1_024) for number in range(3, 10_000)]
    pieces = _pieces(FeedPart(entries, 5_000))
    assert [entry for piece in pieces for entry in piece.entries] == entries
    assert pieces[-1].position == 5_000
    for piece, after in pairwise(pieces):
        assert len(encode(piece)) < MESSAGE_BYTES_MAX
        assert all(entry.position > piece.position for entry in after.entries)
