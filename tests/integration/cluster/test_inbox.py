"""The inbox: jobs that users submit with SQL inside their own transactions."""

import random
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.core.model import BackoffRule, Extra, NewJob, Template
from holdfast.core.owner import owner_index
from holdfast.core.validation import check_job, check_template
from holdfast.errors import Code
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.inbox import PostgresInbox
from holdfast.topologies.cluster.ports import Append, InboxRow
from tests.integration.cluster.cluster_work import chain

SHARDS = 2
DAY_S = 86_400


@pytest.fixture
def inboxes(address: DatabaseAddress) -> Iterator[list[PostgresInbox]]:
    """The inboxes of both shards."""
    inboxes = [PostgresInbox(address, shard) for shard in range(SHARDS)]
    yield inboxes
    for inbox in inboxes:
        inbox.close()


def all_rows(inboxes: list[PostgresInbox]) -> list[InboxRow]:
    """Returns the waiting rows of all shards."""
    return [row for inbox in inboxes for row in inbox.waiting(1_000, 1 << 30)]


def submit(connection: psycopg.Connection, name: str = "echo", payload: object = "", **options: object) -> str:
    """Submits a job with SQL, and returns its id."""
    given = "".join(f", {option} => %({option})s" for option in options)
    statement = f"SELECT holdfast.submit(%(name)s, %(payload)s{given})"
    found = connection.execute(statement.encode(), {"name": name, "payload": payload, **options}).fetchone()
    assert found is not None
    return str(found[0])


def shard_of(connection: psycopg.Connection, job_id: str) -> int:
    """Returns the shard in whose inbox a job waits."""
    ((shard,),) = connection.execute("SELECT shard FROM holdfast.inbox WHERE job_id = %s", [job_id]).fetchall()
    return int(shard)


def test_every_option_arrives(inboxes: list[PostgresInbox], admin: psycopg.Connection) -> None:
    """A row has every option of the job as a submit through a client would have it."""
    ((now_ms,),) = admin.execute("SELECT holdfast.now_ms()").fetchall()
    found = admin.execute(
        """
        SELECT holdfast.submit(
            'email.send', '{"to": "ä"}', queue => 'mail', priority => 7, max_attempts => 4, max_losses => 2,
            timeout_s => 1.5, not_before => to_timestamp(1000000000.25), unique_key => 'u',
            request_id => 'r', labels => '{"b": "2", "a": "1"}', headers => '{"trace": "x"}', backoff => 'fixed',
            backoff_base_s => 2, backoff_max_s => 2.5)"""
    ).fetchone()
    assert found is not None
    (row,) = all_rows(inboxes)
    assert row.template == Template("email.send", "mail", 7, 4, 2, 1_500, BackoffRule(0, 2_000, 2_500))
    extra = Extra("r", (("a", "1"), ("b", "2")), (("trace", "x"),), unique_key="u")
    assert row.job == NewJob(str(found[0]), 0, '{"to": "ä"}'.encode(), 1_000_000_000_250, extra)
    assert 0 <= row.submitted_ms - now_ms < 60_000
    assert check_template(row.template) is None
    assert check_job(row.job, 1, row.submitted_ms) is None


def test_defaults_are_those_of_every_client(inboxes: list[PostgresInbox], admin: psycopg.Connection) -> None:
    """A job that is submitted without options has the defaults of a template, and no extra fields."""
    found = admin.execute("SELECT holdfast.submit('echo')").fetchone()
    (row,) = all_rows(inboxes)
    assert found is not None
    assert (row.template, row.job) == (Template("echo"), NewJob(str(found[0]), 0))


def test_payload_may_be_text_json_or_bytes(inboxes: list[PostgresInbox], admin: psycopg.Connection) -> None:
    """A payload is kept as it is: text in UTF-8, JSON as text, bytes unchanged."""
    admin.execute("SELECT holdfast.submit('echo', 'täxt'), holdfast.submit('echo', '{\"a\": 1}'::jsonb)")
    admin.execute("SELECT holdfast.submit('echo', %b)", [b"\0\xff"])
    assert {row.job.payload for row in all_rows(inboxes)} == {b"\0\xff", "täxt".encode(), b'{"a": 1}'}


def test_rolled_back_submit_leaves_nothing(inboxes: list[PostgresInbox], cluster: str) -> None:
    """A job is there if and only if the user's transaction was committed."""
    with psycopg.connect(cluster) as user:
        user.execute("CREATE TABLE orders (id text)")
        user.commit()
        submit(user, "rolled.back")
        user.execute("INSERT INTO orders VALUES ('rolled back')")
        user.rollback()
        kept = submit(user, "committed")
        user.execute("INSERT INTO orders VALUES ('committed')")
        assert all_rows(inboxes) == [], "an open transaction"
        user.commit()
    assert [row.job.id for row in all_rows(inboxes)] == [kept]


def test_job_goes_to_the_owner_of_its_id(admin: psycopg.Connection) -> None:
    """Without keys jobs go to all shards, and each id is a UUIDv4 that its shard owns."""
    ids = [submit(admin) for _ in range(64)]
    assert {uuid.UUID(job_id).version for job_id in ids} == {4}
    shards = [shard_of(admin, job_id) for job_id in ids]
    assert shards == [owner_index(job_id, SHARDS) for job_id in ids]
    assert set(shards) == {0, 1}


def test_keys_choose_the_shard_as_for_clients(admin: psycopg.Connection) -> None:
    """The request id, or else the unique key, chooses the shard, which owns the id of the job too."""
    for number in range(16):
        key = f"kéy {number}"
        both = submit(admin, request_id=key, unique_key="another")
        unique = submit(admin, unique_key=key)
        for job_id in (both, unique):
            assert shard_of(admin, job_id) == owner_index(key, SHARDS) == owner_index(job_id, SHARDS)


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 64, 1_000, 1_024])
def test_owner_in_sql_is_the_owner_of_clients(admin: psycopg.Connection, shards: int) -> None:
    """The routing of keys in SQL equals that of clients, for any number of shards."""
    keys = [random.Random(number).randbytes(9).hex() + "ö" for number in range(200)]
    found = admin.execute("SELECT holdfast.owner(k, %s) FROM unnest(%s::text[]) AS k", [shards, keys]).fetchall()
    assert [owner for (owner,) in found] == [owner_index(key, shards) for key in keys]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": ""}, "the job type must be 1 to 128 letters"),
        ({"name": "a b"}, "the job type must be 1 to 128 letters, .* got 'a b'"),
        ({"name": "x" * (limits.TYPE_CHARS_MAX + 1)}, "the job type"),
        ({"name": "ok\n"}, "the job type"),
        ({"name": None}, "the job type"),
        ({"queue": "ä"}, "the queue name"),
        ({"queue": "x" * (limits.NAME_CHARS_MAX + 1)}, "the queue name"),
        ({"priority": limits.PRIORITY_MIN - 1}, "priority must be from 0 to 9, got -1"),
        ({"priority": limits.PRIORITY_MAX + 1}, "priority must be from 0 to 9, got 10"),
        ({"max_attempts": 0}, "max_attempts must be from 1 to 100, got 0"),
        ({"max_attempts": limits.ATTEMPTS_MAX + 1}, "max_attempts"),
        ({"max_losses": -1}, "max_losses"),
        ({"max_losses": limits.LOSSES_MAX + 1}, "max_losses"),
        ({"timeout_s": -1}, "timeout_s must be from 0 to 86400, got -1"),
        ({"timeout_s": limits.TIMEOUT_MS_MAX / 1_000 + 1}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"delay_s": -1}, "delay_s"),
        ({"delay_s": limits.DELAY_MS_MAX / 1_000 + 1}, "delay_s"),
        ({"delay_s": float("inf")}, "delay_s"),
        ({"not_before": "infinity"}, "due within a year"),
        ({"not_before": "1960-01-01"}, "due within a year"),
        ({"request_id": "x" * (limits.REQUEST_ID_CHARS_MAX + 1)}, "the request id must be at most 256 characters"),
        ({"unique_key": "x" * (limits.UNIQUE_KEY_CHARS_MAX + 1)}, "the unique key must be at most 256 characters"),
        ({"request_id": "a\x1bb"}, "the request id must be printable"),
        ({"labels": "[]"}, "the labels must be a JSON object"),
        ({"labels": '{"a": 1}'}, "the label 'a' must be a text"),
        ({"labels": '{"": "x"}'}, "each label name"),
        ({"headers": '{"a\\u0007": "x"}'}, "each header name"),
        ({"backoff": "linear"}, "backoff must be 'fixed', 'exponential' or 'quadratic', got 'linear'"),
        ({"backoff": "fixed", "backoff_base_s": limits.BACKOFF_MS_MAX / 1_000 + 1}, "backoff_base_s"),
        ({"payload": None}, "the payload"),
    ],
)
def test_invalid_job_is_refused(
    inboxes: list[PostgresInbox], admin: psycopg.Connection, options: dict[str, object], words: str
) -> None:
    """An option that no client may send fails in the user's statement, with a sentence that names it."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=words) as refused:
        submit(admin, **typed(options))  # type: ignore[arg-type]
    assert refused.value.diag.message_detail
    assert all_rows(inboxes) == []


def typed(options: dict[str, object]) -> dict[str, object]:
    """Adds a payload, as text: a parameter without a type would fit several functions."""
    return {"payload": "{}", **options}


def test_largest_values_are_accepted(inboxes: list[PostgresInbox], admin: psycopg.Connection) -> None:
    """The limits of SQL are those of every client, and what SQL accepts at them the ledger accepts too."""
    pairs = {f"{number:03}" + "k" * (limits.LABEL_KEY_CHARS_MAX - 3): "ä" * limits.LABEL_VALUE_CHARS_MAX
             for number in range(limits.LABELS_MAX)}  # fmt: skip
    made = Jsonb(pairs)
    submit(
        admin,
        "x" * limits.TYPE_CHARS_MAX,
        b"x" * limits.PAYLOAD_BYTES_MAX,
        queue="q" * limits.NAME_CHARS_MAX,
        priority=limits.PRIORITY_MAX,
        max_attempts=limits.ATTEMPTS_MAX,
        max_losses=limits.LOSSES_MAX,
        timeout_s=limits.TIMEOUT_MS_MAX / 1_000,
        delay_s=limits.DELAY_MS_MAX / 1_000,
        request_id="ä" * limits.REQUEST_ID_CHARS_MAX,
        unique_key="ä" * limits.UNIQUE_KEY_CHARS_MAX,
        labels=made,
        headers=made,
        backoff="quadratic",
        backoff_base_s=limits.BACKOFF_MS_MAX / 1_000,
        backoff_max_s=limits.BACKOFF_MS_MAX / 1_000,
    )
    (row,) = all_rows(inboxes)
    assert check_template(row.template) is None
    assert check_job(row.job, 1, row.submitted_ms) is None
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="at most 64 labels"):
        submit(admin, "x", "", labels=Jsonb({**pairs, "one more": ""}))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="at most 1048576 bytes, got 1048577"):
        submit(admin, "x", b"x" * (limits.PAYLOAD_BYTES_MAX + 1))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="at most 1024 characters, got 1025"):
        submit(admin, "x", "", headers=Jsonb({"a": "x" * (limits.HEADER_VALUE_CHARS_MAX + 1)}))


def test_user_needs_no_rights_on_tables(inboxes: list[PostgresInbox], admin: psycopg.Connection, cluster: str) -> None:
    """A role that may use the schema submits jobs, and can neither read nor change the tables."""
    role = f"user_{uuid.uuid4().hex}"
    admin.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA holdfast TO {role}".encode())
    try:
        with psycopg.connect(cluster, autocommit=True) as user:
            user.execute(f"SET ROLE {role}".encode())
            submit(user)
            takes = b"SELECT holdfast.take(0, 0, 'a', 'a', '1 s')"
            for statement in (b"SELECT FROM holdfast.inbox", b"DELETE FROM holdfast.frames", takes):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    user.execute(statement)
        assert len(all_rows(inboxes)) == 1
    finally:
        admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_rows_are_read_in_bounded_parts(inboxes: list[PostgresInbox], admin: psycopg.Connection) -> None:
    """A read is bounded by rows and bytes, returns at least one row, and leaves out what the leader holds already."""
    admin.execute("SELECT holdfast.submit('echo', repeat('x', 100), request_id => 'same') FROM generate_series(1, 5)")
    inbox = inboxes[owner_index("same", SHARDS)]
    rows = inbox.waiting(100, 1 << 30)
    numbers = [row.row for row in rows]
    assert numbers == sorted(numbers)
    assert [row.row for row in inbox.waiting(2, 1 << 30)] == numbers[:2]
    assert [row.row for row in inbox.waiting(100, 1)] == numbers[:1]
    assert [row.row for row in inbox.waiting(100, 250)] == numbers[:3]
    assert [row.row for row in inbox.waiting(2, 1 << 30, numbers[:2])] == numbers[2:4]
    assert inbox.waiting(100, 1 << 30, numbers) == []


def test_row_that_was_committed_later_is_found(inboxes: list[PostgresInbox], cluster: str) -> None:
    """A row is found although a later one was read and taken before its transaction was committed."""
    with psycopg.connect(cluster) as slow, psycopg.connect(cluster) as quick:
        first = submit(slow, request_id="same")
        second = submit(quick, request_id="same")
        quick.commit()
        (taken,) = all_rows(inboxes)
        slow.commit()
        inbox = inboxes[owner_index("same", SHARDS)]
        (late,) = inbox.waiting(10, 1 << 30, [taken.row])
    assert (taken.job.id, late.job.id) == (second, first)
    assert late.row < taken.row


def test_refused_rows_are_moved_with_the_reason(
    inboxes: list[PostgresInbox], writer: PostgresFrameWriter, admin: psycopg.Connection
) -> None:
    """A refused row goes to the rejected ones with its reason and its job, only under the epoch that leads."""
    key = next(key for key in map(str, range(99)) if owner_index(key, SHARDS) == 0)
    kept, refused = (submit(admin, "email.send", "{}", request_id=key) for _ in range(2))
    (first, second) = inboxes[0].waiting(10, 1 << 30)
    reasons = {second.row: Refusal(Code.FAILED_PRECONDITION, "QUEUE_DRAINING", "the queue is draining")}
    assert inboxes[0].reject(reasons, 7) == Append.FENCED
    assert inboxes[0].reject(reasons, 1) == Append.WRITTEN
    assert inboxes[0].reject(reasons, 1) == Append.WRITTEN
    found = admin.execute("SELECT job_id::text, type, reason, message FROM holdfast.rejected").fetchall()
    assert found == [(refused, "email.send", "QUEUE_DRAINING", "the queue is draining")]
    assert [row.job.id for row in all_rows(inboxes)] == [kept]
    assert writer.append(chain(b"jobs")[0], [first.row]) == Append.WRITTEN
    assert all_rows(inboxes) == []
