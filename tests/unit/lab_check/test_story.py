"""The evidence of a finding: its lines, their wording and their order."""

from holdfast_lab.check.history import History
from holdfast_lab.check.story import state_name, story
from holdfast_lab.history.records import (
    CANCELED,
    DONE,
    FAILED,
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
    TickFact,
)

SECOND_US = 1_000_000
BATCH = [JobSpec("other"), JobSpec("one", id="i", key="k", digest="d", delay_ms=5, fails=2), JobSpec("one")]
RECORDS: list[Record] = [
    # this job
    Asked(10 * SECOND_US, "c/1", "c", "submit", "grpc", BATCH),
    Answered(11 * SECOND_US, "c/1", ["x", "a", ""], {2: "QUEUE_FULL"}, [1]),
    Asked(12 * SECOND_US, "c/2", "c", "cancel", "http", job_id="a"),
    Refused(13 * SECOND_US, "c/2", "INTERNAL", "no idea"),
    Asked(14 * SECOND_US, "c/3", "c", "get", "grpc", job_id="a"),
    Lost(15 * SECOND_US, "c/3"),
    Asked(16 * SECOND_US, "c/4", "c", "get", "grpc", job_id="a"),
    Lost(17 * SECOND_US, "c/4", "UNAVAILABLE"),
    Asked(18 * SECOND_US, "c/5", "c", "list", "grpc"),
    Answered(19 * SECOND_US, "c/5", seen=[JobSnapshot("x", DONE), JobSnapshot("a", FAILED, "one", 2, "r", "LOST")]),
    Asked(20 * SECOND_US, "c/6", "c", "retry", "grpc", job_id="a"),
    Answered(21 * SECOND_US, "c/6", ["b"]),
    Asked(22 * SECOND_US, "c/7", "c", "get", "grpc", job_id="a"),
    Answered(23 * SECOND_US, "c/7"),
    Began(24 * SECOND_US, "r1", "a", 7, "w", 1, 1_700_000_000_000),
    Ended(25 * SECOND_US, "r1", "failed"),
    Began(26 * SECOND_US, "r2", "a", 8, "w", 2),
    # other jobs
    Asked(12 * SECOND_US, "d/1", "d", "submit", "grpc", [JobSpec("else")]),
    Answered(13 * SECOND_US, "d/1", ["x"]),
    Began(14 * SECOND_US, "r3", "x", 9, "w"),
    # from 10 s to 26 s, and a second before and after
    Broken(8 * SECOND_US, 9 * SECOND_US - 1, "too-early", "server"),
    Broken(8 * SECOND_US, 9 * SECOND_US, "kill", "server", "at last"),
    Broken(27 * SECOND_US, 27 * SECOND_US, "cut", "client"),
    Broken(27 * SECOND_US + 1, 28 * SECOND_US, "too-late", "client"),
    # the store
    JobFact("a", "one", DONE, "t", "q", 1, 2, "node-1", "k", 3, 4, 5, 6, "r1", "s", "o"),
    JobFact("a", "one", CANCELED),
    GrantFact("a", 7, 1, "node-1", 99),
    GrantFact("a", 8, 2),
    EndFact("a", DONE, 7),
    EndFact("a", 9),
    TickFact("s", 5, "fired", "a"),
    DamageFact("torn", "a"),
    DamageFact("elsewhere", "x"),
    JobFact("x", "other", DONE),
    GrantFact("x", 9, 3),
]
TOLD = """\
8.0 fault: kill server for 1.000 s at last
10.0 c: sends over grpc: submit one id=i key=k digest=d delay_ms=5 fails=2; one (of 3) [c/1]
11.0 c: receives: id a (existing), refused QUEUE_FULL [c/1]
12.0 c: sends over http: cancel a [c/2]
13.0 c: is refused: INTERNAL no idea [c/2]
14.0 c: sends over grpc: get a [c/3]
15.0 c: gets no response: lost [c/3]
16.0 c: sends over grpc: get a [c/4]
17.0 c: gets no response: UNAVAILABLE [c/4]
18.0 c: sends over grpc: list [c/5]
19.0 c: receives: a FAILED attempts=2 run=r reason=LOST [c/5]
20.0 c: sends over grpc: retry a [c/6]
21.0 c: receives: id b [c/6]
22.0 c: sends over grpc: get a [c/7]
23.0 c: receives: done [c/7]
24.0 worker w: begins a, attempt 1 under token 7, as run r1 at 1700000000000 ms of the wall clock
25.0 worker w: run r1 ended failed
26.0 worker w: begins a, attempt 2 under token 8, as run r2
27.0 fault: cut client for 0.000 s
None node-1: has a DONE name=one number=2 key=k grants=5 token=6 run=r1 not_before_ms=3 schedule=s retry_of=o
None store: has a CANCELED name=one
None node-1: granted a under token 7, place 1 at 99 ms
None store: granted a under token 8, place 2
None store: accepted the end DONE of a under token 7
None store: accepted the end state 9 of a
None store: tick 5 of s: fired, job a
None store: damage: torn"""


def told(
    *job_ids: str, names: tuple[str, ...] = (), ops: tuple[str, ...] = (), records: tuple[Record, ...] = ()
) -> str:
    lines = story(History(Run("made-up", 1), RECORDS), job_ids, names, ops, records)
    return "\n".join(f"{line.at_us / 1e6 if line.at_us else None} {line.who}: {line.what}" for line in lines)


def test_everything_is_told_of_a_job_and_nothing_of_others() -> None:
    """The story has the job's calls, attempts and faults in order of time, and then the state of the store."""
    assert told("a") == TOLD


def test_every_line_carries_its_record() -> None:
    """Every line has its record, for programs."""
    lines = story(History(Run("made-up", 1), RECORDS), ["a"])
    assert len({id(line.record) for line in lines}) == len(lines)
    assert all(any(line.record is record for record in RECORDS) for line in lines)


def test_job_that_a_retry_made_is_told_with_that_retry() -> None:
    """A job that a retry created is shown with that retry, and with the calls of the original job."""
    lines = told("b").splitlines()
    assert "20.0 c: sends over grpc: retry a [c/6]" in lines
    assert "10.0 c: sends over grpc: submit one id=i key=k digest=d delay_ms=5 fails=2; one (of 3) [c/1]" in lines


def test_names_calls_and_records_are_told_beside_jobs() -> None:
    """Calls, names and records that belong to no existing job are shown, and only once."""
    assert told(names=("else",)).splitlines() == [
        "12.0 d: sends over grpc: submit else [d/1]",
        "13.0 d: receives: id x [d/1]",
    ]
    assert told("", ops=("d/1", "unknown")).splitlines() == [
        "12.0 d: sends over grpc: submit [d/1]",
        "13.0 d: receives: id x [d/1]",
    ]
    tick, damage = TickFact("t", 6, "skipped"), DamageFact("torn")
    assert told(records=(tick, damage)).splitlines() == ["None store: tick 6 of t: skipped", "None store: damage: torn"]
    known = next(one for one in RECORDS if isinstance(one, TickFact))
    assert told("a", records=(known,)) == TOLD


def test_many_faults_are_told_as_far_as_they_explain_anything() -> None:
    """At most the first twenty faults are shown."""
    broken: list[Record] = [Broken(number, number, "cut") for number in range(1, 30)]
    lines = story(History(Run("made-up", 1), [Began(1, "r", "a", 1, "w"), *broken]), ["a"])
    assert [line.at_us for line in lines if line.who == "fault"] == list(range(1, 21))


def test_states_go_by_the_names_of_the_contract() -> None:
    """States are shown by name, and an unknown one by its number."""
    names = ["state 0", "QUEUED", "RUNNING", "DONE", "FAILED", "CANCELED", "state 6"]
    assert [state_name(state) for state in range(7)] == names
