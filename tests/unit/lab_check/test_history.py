"""Interpretation of records before the rules: calls, responses, faults and counts."""

from collections import Counter
from math import inf

import pytest
from msgspec.structs import replace

from holdfast_lab.check.calls import Call, JobSubmission
from holdfast_lab.check.faults import FiredFaults
from holdfast_lab.check.history import History
from holdfast_lab.check.verdict import Status
from holdfast_lab.history.records import (
    CANCELED,
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    Answered,
    Asked,
    Began,
    Broken,
    DamageFact,
    Ended,
    EndFact,
    GrantFact,
    JobFact,
    JobSnapshot,
    JobSpec,
    Lost,
    Record,
    Refused,
    Run,
)
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.neighbours import suspects
from tests.unit.lab_check.plants import shown
from tests.unit.lab_check.sound_history import sound

RUN = Run("made-up", 1)
MINUTE_US = 60_000_000


def call(answer: Answered | Refused | Lost | None = None, at_us: int = 10) -> Call:
    return Call(Asked(at_us, "op", "client", "submit", "grpc", [JobSpec("a", key="k"), JobSpec("b", key="k")]), answer)


def ask(answer: Answered | Refused | Lost | None, index: int = 0) -> JobSubmission:
    one = call(answer)
    return JobSubmission(one, index, one.asked.wanted[index])


# -- calls


def test_call_is_answered_refused_or_unknown() -> None:
    """A call succeeded, was refused, or is unknown, by a loss or without any response."""
    answers = [Answered(11, "op"), Refused(11, "op", "NOT_FOUND"), Lost(11, "op"), None]
    calls = [call(answer) for answer in answers]
    assert [one.answered is not None for one in calls] == [True, False, False, False]
    assert [one.is_refused for one in calls] == [False, True, False, False]
    assert [one.is_unknown for one in calls] == [False, False, True, True]
    assert [one.heard_us for one in calls] == [11, 11, 11, inf]
    assert [one.is_refused_as("NOT_FOUND") for one in calls] == [False, True, False, False]
    assert not calls[1].is_refused_as("INTERNAL")


def test_job_of_a_batch_has_the_answer_that_is_its_own() -> None:
    """Each job of a batch has its own outcome: an id, a refusal, or none."""
    assert [ask(Answered(11, "op", ["a", "b"]), index).id for index in (0, 1)] == ["a", "b"]
    assert [ask(Answered(11, "op", ["a"]), index).id for index in (0, 1)] == ["a", ""]
    partly = Answered(11, "op", ["a", "b"], {1: "QUEUE_FULL"})
    assert [ask(partly, index).id for index in (0, 1)] == ["a", ""]
    assert [ask(partly, index).is_refused for index in (0, 1)] == [False, True]
    assert [ask(Refused(11, "op", "INTERNAL"), index).is_refused for index in (0, 1)] == [True, True]
    assert not ask(None).is_refused


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Refused(11, "op", "failed_precondition"), True),
        (Refused(11, "op", "RESOURCE_EXHAUSTED"), False),
        (Answered(11, "op", [""], {0: "request_id_reused"}), True),
        (Answered(11, "op", [""], {0: "FAILED_PRECONDITION"}), True),
        (Answered(11, "op", [""], {0: "QUEUE_FULL"}), False),
        (Answered(11, "op", ["", ""], {1: "REQUEST_ID_REUSED"}), False),
        (Lost(11, "op"), False),
        (None, False),
    ],
)
def test_refusal_for_a_key_is_told_from_others(answer: Answered | Refused | Lost | None, *, expected: bool) -> None:
    """A refusal counts for the key only if this job was refused because its key is in use, alone or in a batch."""
    assert ask(answer).is_refused_for_its_key is expected


# -- faults


@pytest.mark.parametrize(("heard_us", "expected"), [(19, False), (20, True), (10_000, True)])
def test_response_after_a_duplication_may_be_a_second_one(heard_us: int, *, expected: bool) -> None:
    """Any response after the start of a duplication may be a second one, because duplicated connections live on."""
    faults = FiredFaults(RUN, [Broken(40, 50, "duplicate"), Broken(20, 30, "duplicate"), Broken(1, 2, "kill")])
    refused = call(Refused(heard_us, "op", "INTERNAL"))
    assert faults.may_double(refused) is expected
    assert faults.may_be_done(refused) is expected
    assert faults.may_be_done(JobSubmission(refused, 0, refused.asked.wanted[0])) is expected
    assert faults.may_be_done(call(Lost(heard_us, "op")))


@pytest.mark.parametrize(
    ("asked_us", "heard_us", "expected"),
    [(1, 19, False), (1, 20, True), (25, 26, True), (30, 99, True), (31, 99, False)],
)
def test_call_is_asked_while_connections_are_doubled(asked_us: int, heard_us: int, *, expected: bool) -> None:
    """A call overlaps a duplication from the fault's first moment to its last."""
    faults = FiredFaults(RUN, [Broken(20, 30, "duplicate"), Broken(0, 100, "kill")])
    assert faults.are_doubling(call(Answered(heard_us, "op"), asked_us)) is expected


def test_nothing_is_doubled_without_such_a_fault() -> None:
    """Other faults duplicate nothing."""
    faults = FiredFaults(RUN, [Broken(0, 100, "kill")])
    assert not faults.may_double(call())
    assert not faults.are_doubling(call())


@pytest.mark.parametrize(
    ("from_us", "until_us", "expected"),
    [
        (0, MINUTE_US - 1, False),
        (0, MINUTE_US, True),
        (2 * MINUTE_US + 5, 9 * MINUTE_US, True),
        (2 * MINUTE_US + 6, 9 * MINUTE_US, False),
    ],
)
def test_fault_is_at_work_until_a_minute_after_it(from_us: int, until_us: int, *, expected: bool) -> None:
    """A fault counts as active until a minute after its end, and never before its start."""
    assert FiredFaults(RUN, [Broken(MINUTE_US, MINUTE_US + 5, "kill")]).are_at_work(from_us, until_us) is expected


def test_clocks_are_wrong_where_they_were_to_be_stepped_or_were() -> None:
    """Clocks are not trusted if a clock fault was enabled or fired."""
    assert not FiredFaults(RUN, [Broken(1, 2, "kill")]).have_stepped_clocks
    assert FiredFaults(RUN, [Broken(1, 2, "clock-step")]).have_stepped_clocks
    assert FiredFaults(replace(RUN, faults=["kill", "clock-step"]), []).have_stepped_clocks


# -- histories


def test_records_are_counted_by_kind() -> None:
    """A verdict contains the number of records of each kind."""
    it = Changed(*sound())
    assert it.judge().read == Counter(type(one).__name__ for one in it.records)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_of_two_answers_the_first_one_counts(*, is_reversed: bool) -> None:
    """The earlier of two responses counts, in whatever order they were read, and the second one is a gap."""
    answers: list[Record] = [Answered(11, "op", ["a"]), Answered(12, "op", ["b"])]
    history = History(RUN, [call().asked, *(reversed(answers) if is_reversed else answers)])
    assert history.told.keys() == {"a"}
    assert history.gaps == ["op was answered twice"]


def test_end_in_the_microsecond_of_its_beginning_is_valid() -> None:
    """A response and an end may have the same microsecond as their beginning."""
    records: list[Record] = [call().asked, Answered(10, "op"), Began(5, "r", "a", 1, "worker"), Ended(5, "r", "done")]
    assert History(RUN, records).gaps == []


def test_job_is_certain_from_the_first_that_is_known_of_it() -> None:
    """A job is certain from its first acknowledgement, state after QUEUED, or attempt, in any order of the records."""
    records: list[Record] = [
        Began(9, "later", "begun", 2, "worker"),
        Began(8, "first", "begun", 1, "worker"),
        Asked(1, "submit", "client", "submit", "grpc", [JobSpec("begun")]),
        Answered(20, "submit", ["begun"]),
        Asked(2, "retry", "client", "retry", "grpc", job_id="old"),
        Answered(7, "retry", ["told"]),
        Asked(1, "again", "client", "submit", "grpc", [JobSpec("told", id="told")]),
        Answered(9, "again", ["told"]),
        Asked(3, "list", "client", "list", "grpc"),
        Answered(
            5, "list", seen=[JobSnapshot("shown", RUNNING), JobSnapshot("told", QUEUED), JobSnapshot("waits", QUEUED)]
        ),
        Asked(3, "get", "client", "get", "grpc", job_id="shown"),
        Answered(4, "get", seen=[JobSnapshot("shown", DONE)]),
    ]
    for some in (records, records[::-1]):
        history = History(RUN, some)
        assert history.certain_us == {"begun": 8, "told": 7, "shown": 4}
        assert history.acknowledged_us == {"begun": 20, "told": 7}
        assert [one.token for one in history.begun["begun"]] == [1, 2]


def test_name_of_a_job_comes_from_any_source() -> None:
    """The name of a job comes from the store, from its submit, from the job that was retried, or from a response."""
    records: list[Record] = [
        JobFact("there", "there", DONE),
        Asked(1, "submit", "client", "submit", "grpc", [JobSpec("told")]),
        Answered(2, "submit", ["told-id"]),
        Asked(3, "retry", "client", "retry", "grpc", job_id="told-id"),
        Answered(4, "retry", ["again"]),
        Asked(5, "list", "client", "list", "grpc"),
        Answered(6, "list", seen=[JobSnapshot("shown-id", DONE), JobSnapshot("shown-id", DONE, "shown")]),
    ]
    history = History(RUN, records)
    ids = ("there", "told-id", "again", "shown-id", "unknown")
    assert [history.name_of(one) for one in ids] == ["there", "told", "told", "shown", ""]


@pytest.mark.parametrize(("state", "place", "expected"), [(DONE, 5, True), (DONE, 0, False), (FAILED, 5, False)])
def test_grant_comes_after_an_end_of_that_state(state: int, place: int, *, expected: bool) -> None:
    """A grant counts as after an end only if the store keeps the order of both."""
    history = History(RUN, [EndFact("a", state, place=place), GrantFact("a", 1, 4), GrantFact("a", 2, 6)])
    assert history.granted_after_end("a", DONE) is expected


# -- interfaces


@pytest.mark.parametrize(
    ("grpc", "http"),
    [
        (JobSnapshot("x", DONE), JobSnapshot("x", FAILED)),
        (JobSnapshot("x", DONE, run="one"), JobSnapshot("x", DONE, run="two")),
        (JobSnapshot("x", DONE, attempts=1), JobSnapshot("x", DONE, attempts=2)),
        (JobSnapshot("x", DONE, "one"), JobSnapshot("x", DONE, "two")),
        (JobSnapshot("x", FAILED, reason="ONE"), JobSnapshot("x", FAILED, reason="TWO")),
    ],
)
def test_interfaces_that_tell_an_end_in_two_ways_are_found(grpc: JobSnapshot, http: JobSnapshot) -> None:
    """Any differing attribute is found."""
    assert suspects(both_ways(grpc, http), "interfaces") == ["x"]
    assert suspects(both_ways(grpc, grpc), "interfaces") == []


@pytest.mark.parametrize(
    ("grpc", "http"),
    [
        (JobSnapshot("x", RUNNING), JobSnapshot("x", DONE)),
        (JobSnapshot("x", QUEUED, attempts=1), JobSnapshot("x", RUNNING, attempts=2)),
        (JobSnapshot("x", DONE, "one", 1, "run"), JobSnapshot("x", DONE)),
        (JobSnapshot("x", DONE), JobSnapshot("x", DONE, "one", 1, "run", "ONE")),
    ],
)
def test_attributes_missing_in_one_response_are_not_compared(grpc: JobSnapshot, http: JobSnapshot) -> None:
    """States before the end may differ between two responses, and missing attributes are not compared."""
    assert suspects(both_ways(grpc, http), "interfaces") == []


def test_states_are_told_by_name() -> None:
    """A finding shows what each interface said, with the names of states."""
    (finding,) = both_ways(JobSnapshot("x", DONE), JobSnapshot("x", FAILED)).judge().ruling("interfaces").findings
    assert finding.text == "has the state DONE over gRPC and FAILED over HTTP"
    (finding,) = (
        both_ways(JobSnapshot("x", DONE, attempts=1), JobSnapshot("x", DONE, attempts=2))
        .judge()
        .ruling("interfaces")
        .findings
    )
    assert finding.text == "has the attempts 1 over gRPC and 2 over HTTP"


def both_ways(grpc: JobSnapshot, http: JobSnapshot) -> Changed:
    it = Changed(*sound())
    it.add(JobFact("x", "x", DONE))
    shown(it, grpc)
    shown(it, http)
    it.replace(Asked, {"op": it.all(Asked, job_id="x")[-1].op}, via="http")
    return it


@pytest.mark.parametrize(
    ("interfaces", "status"),
    [(["grpc", "http"], Status.KEPT), (["http"], Status.NOT_OFFERED), (["grpc"], Status.NOT_OFFERED)],
)
def test_interfaces_are_compared_where_both_are_offered(interfaces: list[str], status: Status) -> None:
    """Interfaces are compared only if both are offered."""
    it = Changed(*sound())
    it.run = replace(it.run, interfaces=interfaces)
    assert it.judge().ruling("interfaces").status is status


# -- rulings


@pytest.mark.parametrize("count", [1, 100, 101, 250])
def test_findings_are_all_counted_and_the_first_are_shown(count: int) -> None:
    """All findings are counted, and the first hundred are kept."""
    it = Changed(*sound())
    it.add(*(DamageFact(f"damage {number}") for number in range(count)))
    ruling = it.judge().ruling("sound")
    assert (ruling.count, [one.text for one in ruling.findings]) == (
        count,
        [f"damage {number}" for number in range(min(count, 100))],
    )


def test_finding_outweighs_every_doubt() -> None:
    """One finding makes the verdict broken, even if the other rules are unknown."""
    it = Changed(replace(sound()[0], schedules=[], faults=["pause"]), [JobFact("a", "a", CANCELED)])
    verdict = it.judge()
    assert verdict.ruling("unasked").status is Status.BROKEN
    assert verdict.status is Status.BROKEN
    assert verdict.unknown
    assert not verdict.is_kept
