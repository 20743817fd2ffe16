"""The table of leases: holders, deadlines and verdicts."""

import pytest

from holdfast.core.model import Now
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.topologies.microservices.services.lease_table import EXPIRED, NOT_RUNNING, RELEASED, LeaseTable

LEASE_MS = 1_000


def at(served_ms: int) -> Now:
    return Now(0, served_ms)


def record(job_id: str, token: int, worker: str = "w", *, cancel_requested: bool = False) -> pb.GetJobRecordResponse:
    summary = public_pb.JobSummary(job_id=job_id, status=public_pb.RUNNING, cancel_requested=cancel_requested)
    return pb.GetJobRecordResponse(summary=summary, token=token, worker_id=worker)


@pytest.fixture
def table() -> LeaseTable:
    """An empty table."""
    return LeaseTable(LEASE_MS)


def test_lease_expires_when_its_time_is_over_and_not_before(table: LeaseTable) -> None:
    """A lease that is not extended expires exactly at its deadline."""
    lease = table.grant("a", 1, "w", at(0))
    table.expire(at(LEASE_MS - 1))
    assert table.over() == []
    table.expire(at(LEASE_MS))
    assert (table.over(), lease.verdict) == ([lease], EXPIRED)


def test_heartbeat_extends_listed_leases_and_returns_the_others(table: LeaseTable) -> None:
    """A heartbeat extends the leases that it lists, with or without token, and returns the others of its worker."""
    kept, frozen, missing = (table.grant(job_id, token, "w", at(0)) for token, job_id in enumerate("abc", 1))
    table.grant("d", 4, "other", at(0))
    assert table.extend("w", {"a": 1, "b": 0}, at(500)) == [missing]
    assert [lease.deadline_ms for lease in (kept, frozen, missing)] == [1_500, 1_500, 1_000]


def test_heartbeat_without_a_list_extends_everything_of_its_worker(table: LeaseTable) -> None:
    """A heartbeat without a list extends all leases of its worker, and no others."""
    mine, other = table.grant("a", 1, "w", at(0)), table.grant("b", 2, "other", at(0))
    assert table.extend("w", None, at(700)) == []
    table.expire(at(LEASE_MS))
    assert (mine.verdict, other.verdict) == (None, EXPIRED)


def test_wrong_token_names_nothing(table: LeaseTable) -> None:
    """A heartbeat with a token of an earlier run does not extend the lease."""
    lease = table.grant("a", 2, "w", at(0))
    assert table.extend("w", {"a": 1}, at(500)) == [lease]


def test_lease_that_is_over_is_never_extended_and_stays_until_it_is_dropped(table: LeaseTable) -> None:
    """A lease with a verdict keeps its first verdict, is never extended, and stays until it is dropped."""
    lease = table.grant("a", 1, "w", at(0))
    table.judge(lease, RELEASED)
    table.judge(lease, NOT_RUNNING)
    assert table.extend("w", None, at(500)) == []
    assert (lease.deadline_ms, lease.verdict) == (1_000, RELEASED)
    assert (table.of_worker("w"), table.held_by("w", "a", 1), table.over()) == ([], None, [lease])
    table.drop(lease)
    table.drop(lease)
    assert (len(table), table.over()) == (0, [])


def test_larger_token_replaces_and_smaller_comes_too_late(table: LeaseTable) -> None:
    """Of two runs of a job the table keeps the one with the larger token, in whichever order they arrive."""
    old = table.grant("a", 1, "w", at(0))
    new = table.grant("a", 2, "other", at(10))
    assert table.grant("a", 1, "w", at(20)) is new
    assert (old in table, table.get("a"), len(table)) == (False, new, 1)
    assert (table.of_worker("w"), table.of_worker("other")) == ([], [new])


def test_adoption_begins_a_lease_and_leaves_a_known_one(table: LeaseTable) -> None:
    """An adopted run gets the full time of a lease, and a known run only takes over its cancel request."""
    known = table.grant("a", 1, "w", at(0))
    assert table.adopt(record("a", 1, cancel_requested=True), at(900)) is known
    assert (known.deadline_ms, known.cancel_requested) == (1_000, True)
    adopted = table.adopt(record("b", 2, "ghost"), at(900))
    assert (adopted.deadline_ms, adopted.worker, adopted.is_confirmed) == (1_900, "ghost", False)
    table.extend("ghost", None, at(901))
    assert not adopted.is_confirmed
    table.extend("ghost", {"b": 2}, at(902))
    assert adopted.is_confirmed


def test_late_record_of_an_earlier_run_changes_nothing(table: LeaseTable) -> None:
    """The record of an earlier run does not cancel the present one."""
    lease = table.grant("a", 2, "w", at(0))
    table.adopt(record("a", 1, cancel_requested=True), at(10))
    assert not lease.cancel_requested


def test_ended_leases_are_forgotten_after_a_walk(table: LeaseTable) -> None:
    """After a walk, older leases that it did not see are dropped, and judged or younger ones stay."""
    seen, ended, moved = (table.grant(job_id, token, "w", at(0)) for token, job_id in enumerate("abc", 1))
    over = table.grant("d", 4, "w", at(0))
    table.judge(over, RELEASED)
    young = table.grant("e", 5, "w", at(100))
    table.forget_ended([("a", 1), ("c", 2)], 100)
    assert [lease in table for lease in (seen, ended, moved, over, young)] == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("worker", "token", "is_held"), [("w", 1, True), ("w", 0, True), ("w", 2, False), ("other", 1, False)]
)
def test_lease_is_its_holders_alone(table: LeaseTable, worker: str, token: int, is_held: bool) -> None:  # noqa: FBT001
    """A lease is found by its worker, with its token or with token 0."""
    table.grant("a", 1, "w", at(0))
    assert (table.held_by(worker, "a", token) is not None) is is_held
