"""The records of the job service: the effect of each decision, and equal states from replay and images."""

import random
from typing import Any, cast

import msgspec
import pytest

from holdfast import limits
from holdfast.core.commands import Evict, Refusal
from holdfast.core.footprint import held_bytes
from holdfast.core.lifecycle import LEGAL, QUEUED, RUNNING, State
from holdfast.core.model import Extra, JobRecord, NewJob, Template
from holdfast.errors import Code
from holdfast.topologies.microservices.state.record_events import (
    CreateReply,
    Move,
    Moved,
    MoveReply,
    RecordDecision,
    Shared,
    SpentBudget,
)
from holdfast.topologies.microservices.state.records import Records

ECHO = Template("echo", max_attempts=3)
DONE, FAILED, CANCELED = State.DONE, State.FAILED, State.CANCELED


class Desk:
    """Records, a clock, and every event in its encoded form for a replay."""

    def __init__(self, dedup_keys_max: int = 0) -> None:
        self.keys_max = dedup_keys_max
        self.records = Records(dedup_keys_max)
        self.journal: list[bytes] = []
        self.now_ms = 1_000

    def take(self, decided: RecordDecision | Refusal) -> Any:  # noqa: ANN401 - the reply is of any type
        if isinstance(decided, Refusal):
            return decided
        if decided.event is not None:
            data = self.records.encode(decided.event)
            self.journal.append(data)
            self.records.apply(self.records.decode(data))
            audit(self.records)
        return decided.reply

    def create(self, job_id: str, template: Template = ECHO, payload: bytes = b"", **extra: str) -> Any:  # noqa: ANN401
        new = NewJob(job_id, 0, payload, 0, Extra(**cast("Any", extra)) if extra else None)
        return self.take(self.records.create(template, new, self.now_ms, is_id_given=False))

    def move(self, job_id: str, source: State, target: State, **options: object) -> Any:  # noqa: ANN401
        return self.take(self.records.move(Move(job_id, source, target, **cast("Any", options)), self.now_ms))

    def start(self, job_id: str, worker: str = "w") -> int:
        reply: MoveReply = self.move(job_id, QUEUED, RUNNING, worker=worker)
        assert reply.applied
        return reply.token

    def job(self, job_id: str) -> JobRecord:
        return self.records.state.jobs[job_id]

    def replayed(self) -> Records:
        records = Records(self.keys_max)
        for data in self.journal:
            records.apply(records.decode(data))
        return records


def audit(records: Records) -> None:
    """Checks every cross-reference; the audit of the ledger's state expects leases, and records have none."""
    ledger_state = records.state
    assert not ledger_state.leases
    assert not ledger_state.ready.lanes
    assert not ledger_state.ready.delayed
    running = {job.id for job in ledger_state.jobs.values() if job.state == RUNNING}
    assert set(records.workers) <= running
    assert records.shared <= set(ledger_state.jobs)
    for state in State:
        assert ledger_state.listing.count([state]) == sum(job.state == state for job in ledger_state.jobs.values())
    live = {job.id for job in ledger_state.jobs.values() if job.unique_key and job.state in (QUEUED, RUNNING)}
    assert {job.id for job in ledger_state.unique.values()} == live
    assert ledger_state.bytes_held == sum(map(held_bytes, ledger_state.jobs.values()))
    assert ledger_state.finished.bytes_held == sum(job.bytes_held for job in ledger_state.finished)


def dumped(records: Records) -> list[bytes]:
    return list(records.image())


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_request_id_finds_the_first_record_and_marks_it(desk: Desk) -> None:
    """A repeated submit returns the existing record, and a different one with the same request id is refused."""
    first: CreateReply = desk.create("a", request_id="r")
    assert (first.job_id, first.is_new, first.number) == ("a", True, 1)
    events = len(desk.journal)
    again = desk.create("b", request_id="r")
    assert (again.job_id, again.is_new, again.number, again.created_ms) == ("a", False, 1, 1_000)
    assert desk.records.shared == {"a"}
    assert len(desk.journal) == events + 1
    desk.create("c", request_id="r")
    assert len(desk.journal) == events + 1, "the record is marked once"
    refusal = desk.create("d", payload=b"other", request_id="r")
    assert (refusal.code, refusal.reason) == (Code.FAILED_PRECONDITION, "REQUEST_ID_REUSED")


def test_request_ids_are_forgotten_in_order_where_they_are_bounded() -> None:
    """If request ids are limited, a new one replaces the oldest, whose job stays."""
    desk = Desk(dedup_keys_max=2)
    for name in ("a", "b", "c"):
        desk.create(name, request_id=name)
    assert desk.create("d", request_id="b").job_id == "b"
    assert desk.create("e", request_id="a").is_new
    assert "a" in desk.records.state.jobs


def test_unique_key_holds_until_the_end(desk: Desk) -> None:
    """A submit with the unique key of an unfinished job returns that job, and creates a new one afterwards."""
    desk.create("a", unique_key="u")
    assert desk.create("b", unique_key="u").job_id == "a"
    desk.start("a")
    desk.move("a", RUNNING, DONE)
    assert desk.create("c", unique_key="u").is_new


def test_order_numbers_grow_and_are_never_reused(desk: Desk) -> None:
    """A deleted job leaves a gap in the order numbers."""
    assert desk.create("a").number == 1
    assert desk.take(desk.records.delete("a", QUEUED, desk.now_ms)).applied
    assert desk.create("b").number == 2
    again = Records()
    again.restore(desk.records.image())
    assert again.state.next_number == 3


def test_deletion_takes_the_keys_along(desk: Desk) -> None:
    """After a deletion the request id and the unique key create a new job."""
    desk.create("a", payload=b"xy", request_id="r", unique_key="u")
    desk.take(desk.records.delete("a", QUEUED, desk.now_ms))
    assert desk.records.job("a") is None
    assert desk.create("b", payload=b"other", request_id="r", unique_key="u").is_new


def test_shared_record_is_not_deleted(desk: Desk) -> None:
    """A record that a second submit has found is not deleted, and the reply holds its state."""
    desk.create("a", request_id="r")
    desk.create("b", request_id="r")
    reply: MoveReply = desk.take(desk.records.delete("a", QUEUED, desk.now_ms))
    assert (reply.applied, reply.state, reply.why_not) == (False, QUEUED, "JOB_SHARED")
    assert desk.records.job("a") is not None


@pytest.mark.parametrize("state", [RUNNING, DONE])
def test_deletion_is_guarded_by_the_status(desk: Desk, state: State) -> None:
    """A deletion changes nothing under another state, and deletes the record under the expected one."""
    desk.create("a", payload=b"xy", request_id="r", unique_key="u")
    desk.start("a")
    if state == DONE:
        desk.move("a", RUNNING, DONE)
    reply: MoveReply = desk.take(desk.records.delete("a", QUEUED, desk.now_ms))
    assert (reply.applied, reply.state) == (False, state)
    assert desk.take(desk.records.delete("a", state, desk.now_ms)).applied
    assert desk.records.job("a") is None
    assert desk.records.digest == 0


def test_every_move_that_the_table_does_not_know_is_refused(desk: Desk) -> None:
    """Illegal transitions are refused whatever the job's state, and nothing changes."""
    desk.create("a")
    desk.start("a")
    before = dumped(desk.records)
    for source in State:
        for target in State:
            if (source, target) not in LEGAL:
                refusal = desk.move("a", source, target)
                assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "TRANSITION_ILLEGAL")
    assert dumped(desk.records) == before


def test_guard_that_does_not_hold_is_an_answer(desk: Desk) -> None:
    """A move whose expected state does not hold is not applied, and the reply holds the actual state."""
    desk.create("a")
    reply: MoveReply = desk.move("a", RUNNING, DONE)
    assert (reply.applied, reply.state, reply.why_not) == (False, QUEUED, "STATUS_MISMATCH")
    desk.move("a", QUEUED, CANCELED, reason="enough")
    for source, target in ((QUEUED, RUNNING), (RUNNING, DONE), (RUNNING, QUEUED)):
        assert desk.move("a", source, target).state == CANCELED
    assert desk.move("nobody", QUEUED, RUNNING).code == Code.NOT_FOUND


def test_token_is_made_by_the_start_and_fences_every_way_out(desk: Desk) -> None:
    """Each start has a larger token, a move with an older token is not applied, and token 0 means the current one."""
    desk.create("a")
    desk.create("b")
    old = desk.start("a")
    other = desk.start("b")
    desk.move("a", RUNNING, QUEUED, token=old)
    new = desk.start("a", "w2")
    assert old < other < new
    for target in (DONE, FAILED, CANCELED, QUEUED):
        for token in (old, other, new + 1):
            reply: MoveReply = desk.move("a", RUNNING, target, token=token)
            assert (reply.applied, reply.state, reply.why_not) == (False, RUNNING, "STALE_TOKEN")
    assert desk.records.workers == {"a": "w2", "b": "w"}
    assert desk.move("a", RUNNING, DONE, token=new).applied
    assert desk.move("b", RUNNING, DONE).applied
    assert desk.records.workers == {}


def test_budgets_times_and_attempts_follow_the_ledger(desk: Desk) -> None:
    """Failures and losses are counted, a lease that was handed back is not, and attempts count the runs."""
    desk.create("a")
    job = desk.job("a")
    assert (job.attempts, job.started_ms) == (0, 0)
    desk.now_ms = 2_000
    desk.start("a")
    assert (job.attempts, job.started_ms) == (1, 2_000)
    assert desk.move("a", RUNNING, QUEUED, spends=SpentBudget.FAILURE, not_before_ms=9_000).attempt == 1
    assert (job.attempts, job.failures, job.not_before_ms) == (1, 1, 9_000)
    desk.now_ms = 9_000
    desk.start("a")
    assert desk.move("a", RUNNING, QUEUED, spends=SpentBudget.LOSS).attempt == 2
    assert (job.attempts, job.losses, job.not_before_ms) == (2, 1, 9_000)
    desk.start("a")
    assert desk.move("a", RUNNING, QUEUED).attempt == 2
    assert job.attempts == 2
    desk.now_ms = 13_000
    desk.start("a")
    reply: MoveReply = desk.move("a", RUNNING, FAILED, reason="ValueError")
    assert (reply.attempt, reply.worker, reply.before) == (3, "w", RUNNING)
    assert (job.attempts, job.failed_attempts, job.started_ms, job.finished_ms) == (3, 2, 13_000, 13_000)
    assert job.result is not None
    assert job.result.failure_reason == "ValueError"


def test_loss_that_ends_a_job_is_an_attempt_but_no_failure(desk: Desk) -> None:
    """A job that lost too many workers fails, and the loss counts as one attempt and no failure."""
    desk.create("a")
    desk.start("a")
    reply: MoveReply = desk.move("a", RUNNING, FAILED, reason="WORKER_LOST", spends=SpentBudget.LOSS)
    job = desk.job("a")
    assert (reply.attempt, job.attempts, job.losses, job.failed_attempts) == (1, 1, 1, 0)


def test_job_that_comes_back_for_nothing_too_often_spends_a_loss(desk: Desk) -> None:
    """Above the ledger's limit of unspent grants each further one counts as a loss, so that no job loops for ever."""
    desk.create("a")
    for _ in range(limits.UNSPENT_GRANTS_MAX):
        desk.start("a")
        desk.move("a", RUNNING, QUEUED)
    assert desk.job("a").losses == 0
    desk.start("a")
    desk.move("a", RUNNING, QUEUED)
    assert desk.job("a").losses == 1


def test_queued_cancel_ends_the_job_and_says_so(desk: Desk) -> None:
    """The cancel of a queued job ends it, marks it as requested and spends nothing."""
    desk.create("a")
    desk.move("a", QUEUED, CANCELED, reason="enough")
    job = desk.job("a")
    assert (job.state, job.cancel_requested, job.attempts, job.finished_ms) == (CANCELED, True, 0, 1_000)
    assert job.result is not None
    assert job.result.summary == "enough"


def test_cancel_request_keeps_its_first_reason(desk: Desk) -> None:
    """A cancel request keeps its first reason, survives a requeue, and changes nothing once the job has ended."""
    desk.create("a")
    assert desk.take(desk.records.request_cancel("a", "first", desk.now_ms)).state == QUEUED
    events = len(desk.journal)
    assert desk.take(desk.records.request_cancel("a", "second", desk.now_ms)).applied
    assert len(desk.journal) == events
    desk.start("a")
    desk.move("a", RUNNING, QUEUED)
    job = desk.job("a")
    assert (job.cancel_requested, job.cancel_reason) == (True, "first")
    desk.start("a")
    desk.move("a", RUNNING, DONE)
    reply: MoveReply = desk.take(desk.records.request_cancel("a", "third", desk.now_ms))
    assert (reply.applied, reply.state) == (False, DONE)
    assert desk.take(desk.records.request_cancel("b", "", desk.now_ms)).code == Code.NOT_FOUND
    assert desk.take(desk.records.request_cancel("a", "x" * 2_000, desk.now_ms)).code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"source": QUEUED, "target": RUNNING, "spends": SpentBudget.LOSS}, "SPENDS_INVALID"),
        ({"source": RUNNING, "target": DONE, "not_before_ms": 5}, "DELAY_INVALID"),
        ({"source": RUNNING, "target": QUEUED, "not_before_ms": -5}, "DELAY_TOO_LONG"),
        ({"source": RUNNING, "target": QUEUED, "not_before_ms": 1 << 60}, "DELAY_TOO_LONG"),
    ],
)
def test_senseless_moves_are_invalid(desk: Desk, options: dict[str, Any], reason: str) -> None:
    """A move that spends a budget of a waiting job, or sets an invalid due time, is refused."""
    desk.create("a")
    refusal = desk.move("a", **options)
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, reason)


def test_long_reason_of_a_worker_is_cut(desk: Desk) -> None:
    """The failure reason of a worker is cut to its limit."""
    desk.create("a")
    desk.start("a")
    desk.move("a", RUNNING, FAILED, reason="x" * 5_000)
    result = desk.job("a").result
    assert result is not None
    assert len(result.failure_reason) == limits.REASON_CHARS_MAX


def test_finished_records_are_forgotten_by_age_and_number(desk: Desk) -> None:
    """Finished records are evicted oldest first, by age and by number, with their request id and their mark."""
    for index, name in enumerate(("a", "b", "c")):
        desk.now_ms = 1_000 * (index + 1)
        desk.create(name, request_id=name)
        desk.create("again", request_id=name)
        desk.move(name, QUEUED, CANCELED)
    desk.create("d")
    assert desk.take(desk.records.evict(Evict(10_000, 10, 1 << 30), desk.now_ms)) == 0
    assert desk.take(desk.records.evict(Evict(10_000, 2, 1 << 30), desk.now_ms)) == 1
    assert list(desk.records.state.jobs) == ["b", "c", "d"]
    desk.now_ms = 12_000
    assert desk.take(desk.records.evict(Evict(10_000, 10, 1 << 30), desk.now_ms)) == 1
    assert list(desk.records.state.jobs) == ["c", "d"]
    assert desk.records.shared == {"c"}
    assert desk.create("e", request_id="a").is_new


def test_pages_are_by_creation_and_then_by_id(desk: Desk) -> None:
    """Pages are ordered by creation time in either direction, and ids ascend within a millisecond."""
    for name in ("b", "a"):
        desk.create(name)
    desk.now_ms += 1
    desk.create("c")
    newest, more = desk.records.page((), 0, 10, newest_first=True)
    assert ([job.id for job in newest], more) == (["c", "a", "b"], False)
    oldest, more = desk.records.page({QUEUED}, 1, 1, newest_first=False)
    assert ([job.id for job in oldest], more) == (["b"], True)
    found, place = desk.records.scan({QUEUED}, None, 2, newest_first=False, wants=lambda _: True)
    assert [job.id for job in found] == ["a", "b"]
    rest, place = desk.records.scan({QUEUED}, place, 2, newest_first=False, wants=lambda _: True)
    assert ([job.id for job in rest], place) == (["c"], None)


def test_events_of_today_are_read_for_ever() -> None:
    """The bytes of each kind of event on disk stay readable."""
    records = Records()
    for data, event in (
        (b"\x93\x65\x07\xa1a", Shared(7, "a")),
        (b"\x99\x67\x07\xa1a\x02\x09\xa1w\xa0\x00\x00", Moved(7, "a", 2, 9, "w")),
    ):
        assert records.encode(event) == data
        assert records.decode(data) == event
    with pytest.raises(msgspec.ValidationError):
        records.decode(b"\x93\x64\x07\xa1a")


@pytest.mark.parametrize("seed", range(8))
def test_replay_and_image_give_the_same_state(seed: int) -> None:
    """Random commands give the same state live, by replay and from an image."""
    rng = random.Random(seed)
    desk = Desk()
    ids: list[str] = []
    for number in range(300):
        desk.now_ms += rng.randrange(3)
        _something(rng, desk, ids, f"job-{number}")
    live = dumped(desk.records)
    assert dumped(desk.replayed()) == live
    again = Records()
    again.restore(live)
    audit(again)
    assert (dumped(again), again.digest) == (live, desk.records.digest)
    assert desk.replayed().digest == desk.records.digest
    for _ in range(50):
        events = len(desk.journal)
        _something(rng, desk, ids, f"late-{len(ids)}")
        for data in desk.journal[events:]:
            again.apply(again.decode(data))
    assert dumped(again) == dumped(desk.records), "a restored image continues like its source"


def _something(rng: random.Random, desk: Desk, ids: list[str], fresh: str) -> None:
    name = rng.choice(ids) if ids and rng.random() < 0.9 else fresh
    what = rng.randrange(7)
    if what <= 1:
        ids.append(fresh)
        keys: dict[str, Any] = {"request_id": f"r{rng.randrange(40)}", "unique_key": f"u{rng.randrange(60)}"}
        desk.create(fresh, payload=bytes(rng.randrange(5)), **(keys if rng.random() < 0.7 else {}))
    elif what == 2:
        desk.take(desk.records.delete(name, rng.choice(list(State)), desk.now_ms))
    elif what == 3:
        desk.take(desk.records.request_cancel(name, "because", desk.now_ms))
    elif what == 4:
        desk.take(desk.records.evict(Evict(100, rng.randrange(5, 50), 1 << 20), desk.now_ms))
    else:
        source, target = rng.choice([pair for pair in LEGAL if pair[0]])
        spends = rng.choice(list(SpentBudget)) if source == RUNNING else SpentBudget.NOTHING
        worker = rng.choice(["", "w1", "w2"])
        desk.move(name, State(source), State(target), worker=worker, spends=spends)


def test_job_that_is_not_due_is_not_started(desk: Desk) -> None:
    """A job that came back is not started before its due time, whatever the queue service grants."""
    job_id = "j"
    desk.create(job_id)
    token = desk.start(job_id)
    desk.move(job_id, RUNNING, QUEUED, token=token, not_before_ms=desk.now_ms + 5_000, spends=SpentBudget.FAILURE)
    early = desk.move(job_id, QUEUED, RUNNING, worker="w")
    assert (early.applied, early.state, early.why_not) == (False, QUEUED, "NOT_DUE")
    desk.now_ms += 5_000
    assert desk.move(job_id, QUEUED, RUNNING, worker="w").applied
