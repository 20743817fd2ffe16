"""The frozen calls of workers: heartbeats, fetches, outcome reports and their fencing tokens."""

import hashlib
import time
from typing import Any
from uuid import uuid4

import grpc
import pytest

from holdfast.proto import taskqueue_internal_pb2 as internal
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast.server.grpc.work_service import fetch_hint_ms
from tests.contract.jobs import NO_JOB, assigned, fetched, reported
from tests.contract.refusals import Case, check_refusal, check_refusal_is_logged, every
from tests.contract.served import WITH_WORKER_CALLS, Served, Serving, Topology
from tests.e2e.grpc_client import TERMINAL, Wire, refusal
from tests.e2e.wait_until import eventually

BRIEF_MS = 1_000
#: The shortest grace, in any topology, before a heartbeat that does not name a new assignment takes the job back.
GRACE_S = 2.0
OUTPUT_BYTES_MAX = 262_144
_INVALID = grpc.StatusCode.INVALID_ARGUMENT
CASES = [
    Case("WorkerHeartbeat", _INVALID, "WORKER_ID_INVALID", lambda wire: wire.heartbeat("")),
    Case("FetchWork", _INVALID, "WORKER_ID_INVALID", lambda wire: wire.fetch("")),
    Case("ReportWorkOutcome", _INVALID, "OUTCOME_INVALID", lambda wire: wire.report("w", NO_JOB, 0)),
]


@pytest.fixture(scope="module", params=WITH_WORKER_CALLS, ids=lambda topology: topology.value)
def topology(request: pytest.FixtureRequest) -> Topology:
    """The topologies that serve the calls of workers."""
    found: Topology = request.param
    return found


@pytest.fixture(scope="module")
def brief(serve: Serving) -> Served:
    """A topology with short leases."""
    return serve(lease_ms=BRIEF_MS, heartbeat_ms=100)


def taken_away(wire: Wire, worker: str) -> internal.FetchWorkResponse:
    """A job that the worker fetched and lost again, because its heartbeats do not name it."""
    work = assigned(wire, worker)
    eventually(
        lambda: (wire.heartbeat(worker, running={}), wire.status(work.job_id).status)[1],
        lambda status: status == public.QUEUED,
    )
    return work


def test_heartbeat_is_accepted_and_names_the_next(wire: Wire) -> None:
    """The server accepts a heartbeat, also a repeated one, and requests the next in 1000 ms."""
    answers = [wire.heartbeat("beating") for _ in range(3)]
    assert [(answer.accepted, answer.next_heartbeat_in_ms) for answer in answers] == [(True, 1_000)] * 3


def test_idle_worker_is_told_to_wait_200_ms(wire: Wire) -> None:
    """A fetch without work assigns nothing and returns the default hint of 200 ms."""
    for job in wire.all_jobs(public.QUEUED):
        wire.cancel(job.job_id)
    assert wire.fetch("idle") == internal.FetchWorkResponse(retry_after_ms=200)


def test_assignment_carries_the_spec_and_its_lease(wire: Wire) -> None:
    """An assignment has the id, the whole spec, a token, the number of the attempt and the job's options."""
    work = assigned(wire, job_type="encode", ms=5, size=6, labels={"a": "1", "b": "2"})
    spec = public.JobSpec(job_type="encode", work_duration_ms=5, payload_size_bytes=6, labels={"a": "1", "b": "2"})
    assert work.spec == spec
    assert work.token > 0
    assert work.attempt == 1
    assert (work.options.max_attempts, work.options.queue) == (1, "default")
    assert work.retry_after_ms == 0


def test_each_fetch_hands_out_another_job_in_submit_order(serve: Serving, server: Served) -> None:
    """Each fetch returns the next oldest job (of a node), with a higher token."""
    is_split = serve.topology is Topology.MONOLITH
    wire = (serve(lease_ms=120_000, heartbeat_ms=1_000, nodes=1) if is_split else server).wire
    first = assigned(wire)
    ids = [wire.new() for _ in range(4)]
    fetched = [wire.fetch("w") for _ in range(4)]
    assert [work.job_id for work in fetched] == ids
    tokens = [first.token, *(work.token for work in fetched)]
    assert tokens == sorted(set(tokens))


def test_first_terminal_report_stays(wire: Wire) -> None:
    """After a reported success, a report of a failure or of another output changes nothing."""
    work = assigned(wire)
    assert wire.report("w", work.job_id, token=work.token, output_bytes=b"first")
    before = wire.status(work.job_id), wire.result(work.job_id)
    assert not wire.report("w", work.job_id, public.JOB_OUTCOME_FAILED, token=work.token)
    wire.report("w", work.job_id, token=work.token, output_bytes=b"second")
    assert (wire.status(work.job_id), wire.result(work.job_id)) == before


def test_repeated_report_is_accepted_again(wire: Wire) -> None:
    """The server accepts a repeated report with the same token again."""
    work = assigned(wire)
    answers = [wire.report("w", work.job_id, token=work.token) for _ in range(3)]
    assert answers == [True, True, True]


def test_report_under_a_lost_token_is_refused_even_when_the_job_came_back(wire: Wire, server: Served) -> None:
    """A worker that lost a job and fetched it again is refused with the old token and accepted with the new one."""
    old = taken_away(wire, "again")
    new = fetched(wire, "again")
    assert new.job_id == old.job_id
    assert new.token > old.token
    assert not wire.report("again", old.job_id, token=old.token, output_bytes=b"old")
    assert wire.status(old.job_id).status == public.RUNNING
    assert wire.report("again", new.job_id, token=new.token, output_bytes=b"new")
    assert wire.result(new.job_id).output_bytes == b"new"
    refused = eventually(lambda: [line for line in server.lines("report_refused") if line["job_id"] == old.job_id])
    assert [(line["token"], line["reason"]) for line in refused] == [(old.token, "STALE_TOKEN")]


def test_token_zero_speaks_for_the_current_holder_alone(wire: Wire) -> None:
    """A report without a token is accepted from the worker that holds the job and refused from any other."""
    work = assigned(wire, "holder")
    assert not wire.report("stranger", work.job_id)
    assert not wire.report("stranger", work.job_id, token=work.token)
    assert wire.status(work.job_id).status == public.RUNNING
    assert wire.report("holder", work.job_id)
    assert wire.status(work.job_id).status == public.DONE


def test_token_zero_of_a_former_holder_is_refused(wire: Wire) -> None:
    """A report without a token is refused from a worker that lost the job to another."""
    lost = taken_away(wire, "former")
    current = fetched(wire, "current")
    assert current.job_id == lost.job_id
    assert not wire.report("former", lost.job_id)
    assert wire.report("current", lost.job_id, token=current.token)


def test_report_on_a_queued_job_is_refused(wire: Wire) -> None:
    """A report on a queued job is refused."""
    job_id = wire.new()
    assert not wire.report("w", job_id)
    assert not wire.report("w", job_id, token=1)
    assert wire.status(job_id).status == public.QUEUED


def test_report_on_an_unknown_job_is_not_accepted_and_no_error(wire: Wire) -> None:
    """A report on an unknown job is OK and not accepted."""
    assert not wire.report("w", NO_JOB)


def test_report_without_an_outcome_is_an_invalid_argument(wire: Wire) -> None:
    """A report with an unspecified or unknown outcome is refused, and the job stays RUNNING."""
    work = assigned(wire)
    for outcome in (public.JOB_OUTCOME_UNSPECIFIED, 17):
        refused = refusal(lambda outcome=outcome: wire.report("w", work.job_id, outcome))  # type: ignore[misc]
        assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "OUTCOME_INVALID")
    assert wire.status(work.job_id).status == public.RUNNING


@pytest.mark.parametrize("worker", ["", "w" * 129, "two words", "../w", "w\n"])
def test_worker_id_must_be_a_name(wire: Wire, worker: str) -> None:
    """Every call of a worker refuses a malformed worker id."""
    calls = (
        lambda: wire.heartbeat(worker),
        lambda: wire.fetch(worker),
        lambda: wire.report(worker, NO_JOB),
    )
    for call in calls:
        refused = refusal(call)
        assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "WORKER_ID_INVALID")


def test_lost_fetch_reply_returns_the_job_after_its_grace(wire: Wire) -> None:
    """Heartbeats that do not name an assigned job return it to the queue without counting an attempt."""
    lost = taken_away(wire, "deaf")
    again = fetched(wire, "other")
    assert (again.job_id, again.attempt) == (lost.job_id, 1)
    assert wire.report("other", again.job_id, token=again.token)
    assert wire.status(lost.job_id).status == public.DONE


def test_young_grant_survives_a_heartbeat_that_crossed_it(wire: Wire) -> None:
    """A heartbeat that was sent before the assignment arrived does not take the job back at once."""
    is_young = False
    while not is_young:  # repeats while a pause of the machine was longer than the grace
        began_s = time.monotonic()
        work = assigned(wire, "quick")
        wire.heartbeat("quick", running={})
        is_young = time.monotonic() - began_s < GRACE_S
    assert wire.status(work.job_id).status == public.RUNNING
    assert wire.report("quick", work.job_id, token=work.token)


def test_heartbeat_without_a_list_takes_nothing_away(brief: Served) -> None:
    """A worker whose heartbeats contain no list of jobs keeps its job beyond the length of its lease."""
    bare = Bare(brief.wire)
    while not bare.is_heard:  # repeats while a pause of the machine was longer than the lease
        bare.outlive_a_lease()
    assert (bare.status, bare.is_accepted) == (public.RUNNING, True)


class Bare:
    """A worker whose heartbeats name no jobs."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        #: Whether the time between two heartbeats was always shorter than the lease.
        self.is_heard = False
        self.status = public.JOB_STATUS_UNSPECIFIED
        self.is_accepted = False

    def outlive_a_lease(self) -> None:
        """Holds a job until a silent worker has lost its own job, and then reports."""
        wire, heard_s, is_lost = self._wire, time.monotonic(), False
        kept, others = assigned(wire, "bare").job_id, wire.new()
        lost = fetched(wire, "silent").job_id
        self.is_heard = lost == others
        while self.is_heard and not is_lost:
            sent_s = time.monotonic()
            wire.heartbeat("bare")
            is_lost = wire.status(lost).status == public.QUEUED
            self.status = wire.status(kept).status
            self.is_heard, heard_s = is_within_a_lease(heard_s), sent_s
        self.is_accepted = wire.report("bare", kept)
        self.is_heard &= is_within_a_lease(heard_s)
        for job_id in (kept, lost):  # waits until both jobs have left RUNNING
            wire.wait_for(job_id, public.QUEUED, *TERMINAL)


def is_within_a_lease(began_s: float) -> bool:
    return time.monotonic() - began_s < BRIEF_MS / 1_000


def test_silent_worker_is_given_up_and_its_job_goes_to_another(brief: Served) -> None:
    """A worker without heartbeats loses its job when the lease ends, and its late report changes nothing."""
    wire = brief.wire
    lost = assigned(wire, "silent")
    job_id = lost.job_id
    wire.wait_for(job_id, public.QUEUED)
    assert not wire.report("silent", job_id, token=lost.token)
    again = eventually(lambda: wire.fetch("lively"), lambda work: work.job_id == job_id)
    assert again.token > lost.token


@pytest.mark.parametrize("has_list", [True, False])
def test_cancel_rides_on_the_heartbeat(wire: Wire, has_list: bool) -> None:  # noqa: FBT001
    """Every heartbeat response names a job with a requested cancel to its holder, and not to other workers."""
    work = assigned(wire, "rider")
    named = {work.job_id: work.token} if has_list else None
    assert list(wire.heartbeat("rider", named).cancel) == []
    wire.cancel(work.job_id)
    for _ in range(2):
        eventually(lambda: list(wire.heartbeat("rider", named).cancel) == [work.job_id])
    assert list(wire.heartbeat("bystander").cancel) == []
    wire.report("rider", work.job_id, public.JOB_OUTCOME_CANCELED, token=work.token)
    assert list(wire.heartbeat("rider", {}).cancel) == []


def test_running_job_that_is_canceled_and_lost_ends_canceled(wire: Wire) -> None:
    """A job with a requested cancel ends CANCELED with its reason when its worker loses it."""
    work = assigned(wire, "vanishing")
    wire.cancel(work.job_id, "enough")
    eventually(lambda: (wire.heartbeat("vanishing", {}), wire.status(work.job_id).status)[1] == public.CANCELED)
    assert wire.result(work.job_id).output_summary != ""


def test_terminal_states_never_change(wire: Wire) -> None:
    """Neither a cancel nor a report changes a job that is DONE, FAILED or CANCELED."""
    queued = wire.new()
    wire.cancel(queued)
    ended = [
        queued,
        reported(wire, public.JOB_OUTCOME_SUCCEEDED, output_bytes=b"x"),
        reported(wire, public.JOB_OUTCOME_FAILED, failure_reason="y"),
    ]
    before = [(wire.status(job_id), wire.result(job_id)) for job_id in ended]
    for job_id in ended:
        wire.cancel(job_id, "late")
        for outcome in (public.JOB_OUTCOME_SUCCEEDED, public.JOB_OUTCOME_FAILED, public.JOB_OUTCOME_CANCELED):
            wire.report("w", job_id, outcome, output_bytes=b"late")
    assert [(wire.status(job_id), wire.result(job_id)) for job_id in ended] == before


def test_outcome_is_stored_as_it_was_reported(wire: Wire) -> None:
    """The result has the reported output, summary and runtime, and a checksum that the server computes."""
    fields: dict[str, Any] = {"output_bytes": b"\0output\xff", "output_summary": "fine", "runtime_ms": 12}
    job_id = reported(wire, public.JOB_OUTCOME_SUCCEEDED, **fields, checksum="a worker may say anything")
    checksum = hashlib.sha256(b"\0output\xff").hexdigest()
    expected = public.GetJobResultResponse(
        job_id=job_id, result_ready=True, terminal_status=public.DONE, checksum=checksum, **fields
    )
    assert wire.result(job_id) == expected


def test_failure_is_stored_as_it_was_reported(wire: Wire) -> None:
    """The result of a failure has the reported runtime, and the reason as its summary."""
    job_id = reported(wire, public.JOB_OUTCOME_FAILED, failure_reason="no luck", runtime_ms=3)
    result = wire.result(job_id)
    assert (result.terminal_status, result.output_summary, result.runtime_ms) == (public.FAILED, "no luck", 3)


def test_success_is_stored_without_the_failure_reason_of_its_report(wire: Wire) -> None:
    """A success whose report also has a failure reason is stored without that reason."""
    job_id = reported(wire, public.JOB_OUTCOME_SUCCEEDED, failure_reason="confused")
    assert wire.status(job_id).failure_reason == ""


def test_server_accepts_output_at_the_cap_and_refuses_more(wire: Wire) -> None:
    """An output of 256 KiB is stored whole; a report with one byte more makes the job FAILED and stores no output."""
    fitting = reported(wire, public.JOB_OUTCOME_SUCCEEDED, output_bytes=b"x" * OUTPUT_BYTES_MAX)
    assert len(wire.result(fitting).output_bytes) == OUTPUT_BYTES_MAX
    over = reported(wire, public.JOB_OUTCOME_SUCCEEDED, output_bytes=b"x" * (OUTPUT_BYTES_MAX + 1))
    assert (wire.status(over).status, wire.status(over).failure_reason) == (public.FAILED, "OUTPUT_TOO_LARGE")
    assert wire.result(over).output_bytes == b""


def test_words_of_a_worker_that_stops_are_the_summary(wire: Wire) -> None:
    """A worker that reports a requested cancel makes the job CANCELED with the worker's summary."""
    work = assigned(wire)
    wire.cancel(work.job_id, "not needed")
    fields = {"token": work.token, "output_summary": "stopped half-way"}
    assert wire.report("w", work.job_id, public.JOB_OUTCOME_CANCELED, **fields)
    result = wire.result(work.job_id)
    assert (result.terminal_status, result.output_summary) == (public.CANCELED, "stopped half-way")


def test_success_after_a_cancel_request_counts(wire: Wire) -> None:
    """A job whose cancel was requested is DONE when its worker reports a success."""
    work = assigned(wire)
    wire.cancel(work.job_id)
    assert wire.report("w", work.job_id, token=work.token)
    assert wire.status(work.job_id).status == public.DONE


def test_canceled_report_without_a_cancel_request_is_a_failure(wire: Wire) -> None:
    """A worker that reports a cancel which no client requested makes the job FAILED."""
    work = assigned(wire)
    assert wire.report("w", work.job_id, public.JOB_OUTCOME_CANCELED, token=work.token)
    assert wire.status(work.job_id).status == public.FAILED


def test_a_report_that_is_not_accepted_is_no_error(wire: Wire, server: Served) -> None:
    """A report on a finished job is OK, not accepted, and not logged as a refused call."""
    job_id, unknown = wire.new(), str(uuid4())
    wire.cancel(job_id)
    assert not wire.report("w", job_id)
    refusal(lambda: wire.status(unknown))
    lines = eventually(
        lambda: server.lines("refused"), lambda found: any(line.get("job_id") == unknown for line in found)
    )
    assert not [line for line in lines if line.get("job_id") == job_id]


@every(CASES)
def test_refused_worker_call_carries_a_status_with_its_reason(wire: Wire, case: Case) -> None:
    """A refused worker call has a google.rpc.Status that repeats code and message and names the reason."""
    check_refusal(wire, case)


@every(CASES)
def test_refused_worker_call_is_a_line_of_the_log(wire: Wire, server: Served, case: Case) -> None:
    """The server logs each refused worker call with time, method, code, message and the caller's address."""
    check_refusal_is_logged(server, wire, case)


def test_refused_moves_are_logged_with_their_reason(wire: Wire, server: Served) -> None:
    """The server logs a report on a finished job with job, worker and reason."""
    job_id = reported(wire, public.JOB_OUTCOME_SUCCEEDED)
    wire.report("latecomer", job_id, public.JOB_OUTCOME_FAILED)
    line = eventually(lambda: [line for line in server.lines("report_refused") if line["job_id"] == job_id])[0]
    assert (line["worker_id"], line["reason"], line["level"]) == ("latecomer", "ALREADY_FINISHED", "warning")


@pytest.mark.parametrize(
    ("wanted_ms", "hint_ms"), [(0, 50), (49, 50), (50, 50), (200, 200), (1_000, 1_000), (9_999, 1_000)]
)
def test_hint_to_an_idle_worker_stays_within_its_bounds(wanted_ms: int, hint_ms: int) -> None:
    """The server tells an idle worker to wait from 50 to 1000 ms, whatever value is configured."""
    assert fetch_hint_ms(wanted_ms) == hint_ms
