"""The checker detects each planted error."""

import random

import pytest

from holdfast.core import commands, events
from holdfast.core.commands import CancelReply, GrantedLease, ReportReply, ReportRow, Submitted
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import Extra, NewJob, Note, Now, QueueMode, Template
from holdfast.errors import Code
from holdfast.journal.file import FileJournal
from holdfast.journal.port import JournalConfig
from holdfast.ledger.recovery import recover
from holdfast_lab.simulation.disk import SimDisk
from holdfast_lab.simulation.model import ModelViolation
from holdfast_lab.simulation.response_checks import JobSeen, PageSeen, ResponseChecks
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import Violation
from holdfast_lab.simulation.witness import LogWitness

SETTINGS = SwarmSettings(seed=1, events=1)
TEMPLATE = Template("type")


class Bench:
    """A ledger whose decisions go directly into the log that the witness reads."""

    def __init__(self) -> None:
        self.ledger = Ledger(LedgerConfig())
        self.log = LogWitness(SETTINGS)
        self.response_checks = ResponseChecks(self.log)
        self.ms = 1_000

    def do(self, command: commands.AnyCommand, *, is_witnessed: bool = True) -> object:
        self.ms += 1
        decision = self.ledger.decide(command, Now(self.ms, self.ms))
        assert not isinstance(decision, commands.Refusal)
        if decision.event is not None:
            self.ledger.apply(decision.event)
            if is_witnessed:
                self.witness(decision.event)
        return decision.reply

    def witness(self, event: events.AnyEvent) -> None:
        body = events.join([events.encode_one(event)])
        self.log.writing(body, 1, self.ledger.digest)
        self.log.wrote(body, 1, self.ledger.digest, self.ledger.position)


def submit(job_id: str) -> commands.Submit:
    return commands.Submit([TEMPLATE], [NewJob(job_id, 0, b"payload")])


@pytest.fixture
def bench() -> Bench:
    """One job, submitted and granted to w1 under token 1."""
    bench = Bench()
    bench.do(submit("a"))
    bench.do(commands.GrantLeases("w1", frozenset({"type"}), frozenset(), 1, 1_000))
    return bench


def lease(token: int, job_id: str = "a") -> GrantedLease:
    return GrantedLease(token, job_id, TEMPLATE, b"payload", 1)


def test_acknowledgement_before_durability_is_noticed(bench: Bench) -> None:
    """The acknowledgement of an id that is not in the log is a violation."""
    reply = bench.do(submit("b"), is_witnessed=False)
    with pytest.raises(Violation, match="before it was durable"):
        bench.response_checks.submitted_reply(submit("b"), reply)


def test_acknowledgement_of_another_payload_is_noticed(bench: Bench) -> None:
    """The acknowledgement of an id that was submitted with another payload is a violation."""
    other = commands.Submit([TEMPLATE], [NewJob("a", 0, b"other")])
    with pytest.raises(Violation, match="another submission"):
        bench.response_checks.submitted_reply(other, Submitted(["a"], 1, {}))


def test_read_ahead_of_the_log_is_noticed(bench: Bench) -> None:
    """A read that shows events that are not durable is a violation."""
    bench.do(submit("b"), is_witnessed=False)
    with pytest.raises(Violation, match="left before position"):
        bench.response_checks.saw_job(JobSeen(bench.ledger, "b"))
    with pytest.raises(Violation, match="left before position"):
        bench.response_checks.saw_page(PageSeen(bench.ledger, frozenset(), 0, 10, newest_first=False))


def test_wrong_page_is_noticed(bench: Bench) -> None:
    """A page that omits a job of the log is a violation."""
    page = PageSeen(bench.ledger, frozenset(), 0, 10, newest_first=False)
    page.ids = []
    with pytest.raises(Violation, match="not what the log gives"):
        bench.response_checks.saw_page(page)


def test_lost_job_is_noticed(bench: Bench) -> None:
    """A read that does not find an acknowledged, unfinished job is a violation."""
    bench.response_checks.submitted_reply(submit("a"), Submitted(["a"], 1, {}))
    with pytest.raises(Violation, match="unknown now"):
        bench.response_checks.saw_job(JobSeen(Ledger(LedgerConfig()), "a"))


def test_cancel_before_durability_is_noticed(bench: Bench) -> None:
    """The acknowledgement of a cancel that is not in the log is a violation."""
    with pytest.raises(Violation, match="durable"):
        bench.response_checks.canceled_reply("a", CancelReply(CANCELED, was_terminal=False))


def test_lease_that_is_not_durable_or_handed_out_twice_is_noticed(bench: Bench) -> None:
    """A lease that is not durable, goes to another worker, or is sent twice is a violation."""
    with pytest.raises(Violation, match="before it was durable"):
        bench.response_checks.leased("w1", [lease(2)])
    with pytest.raises(Violation, match="went to another worker"):
        bench.response_checks.leased("w2", [lease(1)])
    bench.response_checks.leased("w1", [lease(1)])
    with pytest.raises(Violation, match="twice"):
        bench.response_checks.leased("w1", [lease(1)])


def test_run_without_a_grant_is_noticed(bench: Bench) -> None:
    """A job that runs more often than it was granted, or twice under one token, is a violation."""
    bench.response_checks.started("w1", lease(1))
    with pytest.raises(Violation, match="run twice"):
        bench.response_checks.started("w1", lease(1))
    with pytest.raises(Violation, match="more often"):
        bench.response_checks.started("w1", lease(7))


def test_report_that_left_no_trace_is_noticed(bench: Bench) -> None:
    """The acknowledgement of a report whose outcome is not in the log, by row or by batch, is a violation."""
    row = ReportRow("a", 1, DONE)
    with pytest.raises(Violation, match="before it was durable"):
        bench.response_checks.reported_reply(commands.Report("w1", [row]), ReportReply([""]))
    with pytest.raises(Violation, match="is lost"):
        bench.response_checks.acknowledged("w1", [row])


def test_report_that_counts_as_something_else_is_noticed(bench: Bench) -> None:
    """An accepted report that differs from the outcome in the log is a violation."""
    bench.do(commands.Report("w1", [ReportRow("a", 1, DONE)]))
    with pytest.raises(Violation, match="stands as"):
        bench.response_checks.reported_reply(commands.Report("w1", [ReportRow("a", 1, FAILED)]), ReportReply([""]))
    with pytest.raises(Violation, match="came from another"):
        bench.response_checks.reported_reply(commands.Report("w2", [ReportRow("a", 1, DONE)]), ReportReply([""]))


def test_changed_end_is_noticed(bench: Bench) -> None:
    """A read of an unfinished job after a read showed it as finished is a violation."""
    early = JobSeen(bench.ledger, "a")
    bench.do(commands.Report("w1", [ReportRow("a", 1, DONE, b"out")]))
    bench.response_checks.saw_job(JobSeen(bench.ledger, "a"))
    with pytest.raises(Violation, match="not any more"):
        bench.response_checks.saw_job(early)


def test_early_eviction_is_noticed(bench: Bench) -> None:
    """The removal of a finished job within its retention is a violation."""
    bench.do(commands.Report("w1", [ReportRow("a", 1, DONE)]))
    with pytest.raises(Violation, match="to be retained"):
        bench.do(commands.Evict(0, 0, 0))


def test_wrong_digest_is_noticed(bench: Bench) -> None:
    """A frame whose digest differs from that of its replay is a violation."""
    body = events.join([events.encode_one(events.Started(2_000, 9))])
    bench.log.writing(body, 1, 77)
    with pytest.raises(Violation, match="another digest"):
        bench.log.wrote(body, 1, 77, 3)


def test_illegal_event_is_noticed(bench: Bench) -> None:
    """The independent model rejects an illegal event, even if the core accepts it."""
    body = events.join([events.encode_one(events.Granted(2_000, "w2", 1_000, 2, ["a"]))])
    bench.log.writing(body, 1, 0)
    with pytest.raises(ModelViolation, match="granted while RUNNING"):
        bench.log.wrote(body, 1, 0, 3)


def test_state_that_differs_from_the_log_is_noticed(bench: Bench) -> None:
    """A live job with one wrong field fails the comparison."""
    bench.ledger.state.jobs["a"].grants = 5
    with pytest.raises(ModelViolation, match="attempts"):
        bench.log.compare(bench.ledger)


def open_on(disk: SimDisk) -> tuple[FileJournal, Ledger]:
    recovered = recover(disk, JournalConfig(extent_bytes=4_096), LedgerConfig(), now_ms=1, new_cluster_id=bytes(16))
    return recovered.journal, recovered.ledger


def test_recovery_that_lost_a_durable_frame_is_noticed(bench: Bench) -> None:
    """A recovered journal without a durable frame is a violation."""
    with pytest.raises(Violation, match="was durable"):
        bench.log.recovered(*open_on(SimDisk(random.Random(1))))


def test_recovery_of_a_frame_that_was_never_written_is_noticed() -> None:
    """A recovered journal with a frame that was never written is a violation."""
    disk = SimDisk(random.Random(1))
    journal, _ = open_on(disk)
    assert journal.reserve(300)
    journal.write(events.join([events.encode_one(events.Started(2_000, 1))]), 1, 0)
    journal.close()
    with pytest.raises(Violation, match="never written"):
        Bench().log.recovered(*open_on(disk))


def test_epoch_that_stands_still_is_noticed() -> None:
    """An opening whose epoch is not higher than the previous one is a violation."""
    bench = Bench()
    bench.log.epoch = 1
    with pytest.raises(Violation, match="epoch 1 follows epoch 1"):
        bench.log.recovered(*open_on(SimDisk(random.Random(1))))


def test_job_that_is_new_twice_is_noticed(bench: Bench) -> None:
    """A repeated submission that is reported as new is a violation."""
    bench.response_checks.submitted_reply(submit("a"), Submitted(["a"], 1, {}))
    bench.response_checks.submitted_reply(submit("a"), Submitted(["a"], 1, {}, frozenset({0})))
    with pytest.raises(Violation, match="new more often"):
        bench.response_checks.submitted_reply(submit("a"), Submitted(["a"], 1, {}))


def test_job_found_under_a_key_that_it_does_not_have_is_noticed(bench: Bench) -> None:
    """A reply with an existing job of another unique key is a violation."""
    other = commands.Submit([TEMPLATE], [NewJob("b", 0, b"", 0, Extra(unique_key="u"))])
    with pytest.raises(Violation, match="another submission"):
        bench.response_checks.submitted_reply(other, Submitted(["a"], 1, {}, frozenset({0})))


@pytest.mark.parametrize(
    ("reason", "words"), [("JOB_ID_REUSED", "true repetition"), ("QUEUE_DRAINING", "was never drained")]
)
def test_refusal_without_a_cause_is_noticed(bench: Bench, reason: str, words: str) -> None:
    """A refused repetition, or a refusal for a queue that was never drained, is a violation."""
    refusal = commands.Refusal(Code.FAILED_PRECONDITION, reason, "")
    with pytest.raises(Violation, match=words):
        bench.response_checks.submitted_reply(submit("a"), Submitted([""], 1, {0: refusal}))


def test_lease_from_a_paused_queue_is_noticed(bench: Bench) -> None:
    """A lease from a queue that was paused at the grant is a violation."""
    bench.log.modes["default"] = [(1, QueueMode.PAUSED)]
    with pytest.raises(Violation, match="paused queue"):
        bench.response_checks.leased("w1", [lease(1)])


def test_note_that_left_no_trace_or_came_from_another_is_noticed(bench: Bench) -> None:
    """An acknowledged note that is not in the log, or is from another worker, is a violation."""
    note = commands.TakeNotes("w1", [Note("a", 1, 5, "words")])
    with pytest.raises(Violation, match="before it was durable"):
        bench.response_checks.noted_reply(note, [""])
    bench.do(note)
    bench.response_checks.noted_reply(note, [""])
    with pytest.raises(Violation, match="does not hold"):
        bench.response_checks.noted_reply(commands.TakeNotes("w2", note.notes), [""])


def test_note_under_no_lease_is_noticed(bench: Bench) -> None:
    """The model rejects a note in the log whose lease is not live."""
    body = events.join([events.encode_one(events.Noted(2_000, "w1", [Note("a", 7)]))])
    bench.log.writing(body, 1, 0)
    with pytest.raises(ModelViolation, match="not live"):
        bench.log.wrote(body, 1, 0, 3)
