"""Submits as rows: new jobs, existing jobs and refusals."""

import uuid

import pytest

from holdfast import limits
from holdfast.core.lifecycle import QUEUED
from holdfast.core.model import BackoffRule, Extra, QueueMode, Template
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobDraft
from holdfast.topologies.pipeline.backend.store import WorkerKind
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.store_work import ECHO, claim, ended, insert, report, running, start


async def test_every_word_of_a_submission_is_kept(store: PostgresStore) -> None:
    """The store returns template, extra and payload as they were submitted."""
    template = Template("a.b", "q-1", 9, 7, 4, 1_234, BackoffRule(2, 10, 20))
    extra = Extra("r", (("k", "v"), ("a", "b")), (("h", "\0"),), 3, 4, "old", "u")
    made = await store.rows.insert([ECHO, template], [JobDraft(1, b"\0\xff", extra=extra, not_before_ms=1)])
    view = await store.rows.get(made.job_ids[0])
    assert (view.template, view.extra, view.state, view.not_before_ms) == (template, extra, QUEUED, 1)
    assert view.created_ms == made.at_ms > 0
    assert await store.rows.payload(view.id) == b"\0\xff"


async def test_jobs_of_a_batch_keep_their_order(store: PostgresStore) -> None:
    """The jobs of a batch are claimed in their order of submission."""
    made = await store.rows.insert([ECHO], [JobDraft(payload=b"%d" % number) for number in range(1_000)])
    assert len(set(made.job_ids)) == 1_000
    claimed = [ticket.job_id for _ in range(4) for ticket in await claim(store, count=250)]
    assert claimed == made.job_ids


async def test_same_id_finds_the_first_job(store: PostgresStore) -> None:
    """A client's own job id creates one job, and another payload under it is refused."""
    draft = JobDraft(payload=b"a", id=str(uuid.uuid4()))
    first = await store.rows.insert([ECHO], [draft])
    again = await store.rows.insert([ECHO], [draft])
    assert (first.job_ids, first.existing) == ([draft.id], frozenset())
    assert (again.job_ids, again.existing) == ([draft.id], frozenset({0}))
    other = await store.rows.insert([ECHO], [JobDraft(payload=b"b", id=draft.id)])
    assert (other.job_ids, other.refusals[0].reason) == ([""], "JOB_ID_REUSED")


async def test_same_request_id_finds_the_first_job(store: PostgresStore) -> None:
    """A request id names one job, also after its end, and headers are not compared."""
    run = await start(store, await insert(store, request_id="r", headers=(("trace", "1"),)))
    assert await report(store, run) == ""
    again = await store.rows.insert([ECHO], [JobDraft(extra=Extra("r", headers=(("trace", "2"),)))])
    assert (again.job_ids, again.existing) == ([run.job_id], frozenset({0}))
    for template, draft in (
        (Template("other"), JobDraft(extra=Extra("r"))),
        (ECHO, JobDraft(payload=b"x", extra=Extra("r"))),
        (ECHO, JobDraft(extra=Extra("r", labels=(("k", "v"),)))),
    ):
        other = await store.rows.insert([template], [draft])
        assert (other.job_ids, other.refusals[0].reason) == ([""], "REQUEST_ID_REUSED")


async def test_unique_key_finds_the_job_that_has_not_ended(store: PostgresStore) -> None:
    """A submit with a unique key returns the unfinished job of that type and key, and the job's end frees the key."""
    first = await insert(store, unique_key="k")
    twin = await store.rows.insert([ECHO], [JobDraft(payload=b"other", extra=Extra(unique_key="k"))])
    assert (twin.job_ids, twin.existing) == ([first], frozenset({0}))
    stranger = await insert(store, Template("other"), unique_key="k")
    assert stranger != first
    run = await start(store, first)
    assert await insert(store, unique_key="k") == first
    assert await report(store, run) == ""
    assert await insert(store, unique_key="k") != first


async def test_twins_in_one_batch_are_one_job(store: PostgresStore) -> None:
    """Equal drafts in one batch are handled as if they were submitted one after the other."""
    given = str(uuid.uuid4())
    drafts = [
        JobDraft(extra=Extra("r")),
        JobDraft(extra=Extra("r")),
        JobDraft(payload=b"x", extra=Extra("r")),
        JobDraft(id=given),
        JobDraft(id=given),
        JobDraft(extra=Extra(unique_key="u")),
        JobDraft(payload=b"y", extra=Extra(unique_key="u")),
        JobDraft(payload=b"last"),
    ]
    made = await store.rows.insert([ECHO], drafts)
    ids = made.job_ids
    assert (ids[0], ids[2], ids[3], ids[5]) == (ids[1], "", ids[4], ids[6])
    assert made.existing == {1, 4, 6}
    assert {at: refusal.reason for at, refusal in made.refusals.items()} == {2: "REQUEST_ID_REUSED"}
    assert (await store.queues.states())[QUEUED] == 4


async def test_draining_queue_takes_nothing_new(store: PostgresStore) -> None:
    """A draining queue refuses new jobs, returns existing ones, and does not affect the rest of a batch."""
    old = await insert(store, request_id="r")
    await store.queues.set_mode("default", QueueMode.DRAINING, "")
    made = await store.rows.insert(
        [ECHO, Template("echo", "open")], [JobDraft(extra=Extra("r")), JobDraft(), JobDraft(1)]
    )
    assert made.job_ids[0] == old
    assert made.refusals[1].reason == "QUEUE_DRAINING"
    assert made.job_ids[2]
    await store.queues.set_mode("default", QueueMode.OPEN, "")
    assert await insert(store)


async def test_bad_drafts_cost_the_others_nothing(store: PostgresStore) -> None:
    """An invalid draft is refused by itself, with the reason that every backend gives."""
    drafts = [
        JobDraft(),
        JobDraft(template=1),
        JobDraft(payload=bytes(limits.PAYLOAD_BYTES_MAX + 1)),
        JobDraft(delay_ms=limits.DELAY_MS_MAX + 60_000),
        JobDraft(not_before_ms=1 << 62),
        JobDraft(id="no uuid"),
        JobDraft(extra=Extra(request_id="\0")),
        JobDraft(extra=Extra(labels=(("k", "\ud800"),))),
    ]
    made = await store.rows.insert([ECHO], drafts)
    assert made.job_ids[0]
    assert [refusal.reason for _, refusal in sorted(made.refusals.items())] == [
        "TEMPLATE_INDEX_INVALID",
        "PAYLOAD_TOO_LARGE",
        "DELAY_TOO_LONG",
        "DELAY_TOO_LONG",
        "JOB_ID_INVALID",
        "REQUEST_ID_INVALID",
        "LABEL_VALUE_INVALID",
    ]


@pytest.mark.parametrize(
    ("templates", "drafts"),
    [([ECHO], []), ([Template("")], [JobDraft()]), ([Template("echo", "a b")], [JobDraft()])],
)
async def test_bad_submission_is_refused_whole(
    store: PostgresStore, templates: list[Template], drafts: list[JobDraft]
) -> None:
    """An invalid submit raises an error and creates no job."""
    with pytest.raises(InvalidArgumentError):
        await store.rows.insert(templates, drafts)
    assert sum((await store.queues.states()).values()) == 0


HOSTILE = (
    "",
    "\0",
    "'; DROP TABLE holdfast.jobs; --",
    "%s %(x)s %%",
    "\\",
    "{}",
    '"\\u0000"',
    "\u202e\U0001f4a9",
    "\n\t",
)


async def test_hostile_words_are_only_words(store: PostgresStore) -> None:
    """Labels, headers, payloads and results may contain SQL or any other text, which is stored as text."""
    for word in HOSTILE:
        labels = (("k", word), ("%s", "x"))
        job_id = await insert(store, payload=word.encode(), labels=labels, headers=labels)
        run = await start(store, job_id)
        assert (run.labels, run.headers) == (dict(labels), dict(labels))
        assert await report(store, run, 4, summary=word, failure_reason=word, output=word.encode()) == ""
        view = await store.rows.get(job_id)
        assert view.failure_reason == word.replace("\0", "\ufffd")
        assert (await store.rows.result(job_id)).output == word.encode()


async def test_free_text_types_run_as_simulated_work(store: PostgresStore) -> None:
    """A job of the frozen contract keeps its type and is routed to workers for simulated work."""
    run = await running(store, Template("any text %s", simulated=True))
    assert (run.type, run.simulated) == ("any text %s", True)
    await insert(store, Template("any text %s", simulated=True))
    (ticket,) = await store.claims.claim(1, 1, [WorkerKind(("sim",))], [])
    assert ticket.route == "sim"


async def test_ended_jobs_are_counted(store: PostgresStore) -> None:
    """The counts follow every job through its states."""
    await ended(store)
    await insert(store)
    assert await store.queues.states() == {1: 1, 2: 0, 3: 1, 4: 0, 5: 0}
