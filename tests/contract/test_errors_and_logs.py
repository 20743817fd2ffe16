"""Every response that is not OK: its status, its details and its log line."""

from uuid import uuid4

import grpc

from tests.contract.jobs import NO_JOB, ended
from tests.contract.refusals import Case, check_refusal, check_refusal_is_logged, every
from tests.contract.served import Served
from tests.e2e.grpc_client import Refused, Wire, refusal
from tests.e2e.wait_until import eventually

PUBLIC = ("SubmitJob", "GetJobStatus", "GetJobResult", "CancelJob", "ListJobs")


def key_reused(wire: Wire) -> object:
    wire.new(key="reused")
    return wire.new(key="reused", ms=1)


CASES = [
    Case("SubmitJob", grpc.StatusCode.INVALID_ARGUMENT, "JOB_TYPE_EMPTY", lambda wire: wire.new(job_type="")),
    Case("SubmitJob", grpc.StatusCode.FAILED_PRECONDITION, "REQUEST_ID_REUSED", key_reused),
    Case("GetJobStatus", grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", lambda wire: wire.status(NO_JOB)),
    Case("GetJobResult", grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", lambda wire: wire.result(NO_JOB)),
    Case("CancelJob", grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", lambda wire: wire.cancel(NO_JOB)),
    Case("ListJobs", grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", lambda wire: wire.page(token="x")),
]


@every(CASES)
def test_refusal_carries_a_status_with_its_reason(wire: Wire, case: Case) -> None:
    """The trailing metadata of a refused call hold a google.rpc.Status that has its code, message and reason."""
    check_refusal(wire, case)


@every(CASES)
def test_refusal_is_a_line_of_the_log(wire: Wire, server: Served, case: Case) -> None:
    """The server logs each response that is not OK with time, method, code, message and the caller's address."""
    check_refusal_is_logged(server, wire, case)


def test_refusal_that_names_a_job_is_logged_with_it(wire: Wire, server: Served) -> None:
    """The server logs the job id of a refused request."""
    refusal(lambda: wire.status("11111111-0000-4000-8000-000000000000"))
    wanted = "11111111-0000-4000-8000-000000000000"
    assert eventually(lambda: [line for line in server.lines("refused") if line.get("job_id") == wanted])


def test_expected_outcomes_are_not_errors(wire: Wire, server: Served) -> None:
    """A result that is not ready and a cancel of a finished job are OK with a field that says so, and not logged."""
    job_id, unknown = wire.new(), str(uuid4())
    assert not wire.result(job_id).result_ready
    wire.cancel(job_id)
    assert wire.cancel(job_id).already_terminal
    refusal(lambda: wire.status(unknown))
    lines = eventually(  # only these two: earlier refusals may be logged at the same time
        lambda: [line for line in server.lines("refused") if line["method"] in PUBLIC],
        lambda found: any(line["job_id"] == unknown for line in found),
    )
    assert [line["job_id"] for line in lines if line["job_id"] in {job_id, unknown}] == [unknown]


def test_payloads_and_labels_are_not_logged(working: Wire, working_server: Served) -> None:
    """The log contains no payloads and labels of a job, whether it succeeds or fails."""
    failed = ""
    for labels in ({}, {"sim.fail": "BY_REQUEST"}):
        failed = ended(working, labels={"secret-name": "secret-value", **labels})
    eventually(lambda: [line for line in working_server.lines("job_failed") if line["job_id"] == failed])
    assert "secret" not in working_server.log


def test_every_line_of_the_log_is_json(working: Wire, working_server: Served) -> None:
    """Standard error consists of JSON objects, one per line."""
    ended(working)
    assert [line for line in working_server.log.splitlines() if not line.startswith("{")] == []
    assert all({"ts_ms", "level", "service", "event"} <= line.keys() for line in working_server.lines())


def test_unknown_method_is_unimplemented_and_logged(wire: Wire, server: Served) -> None:
    """A call of an unknown method, or of a service of another topology, is UNIMPLEMENTED and logged."""
    for path in (
        "/taskqueue.v1.TaskQueuePublicService/DeleteEverything",
        "/taskqueue.internal.v1.JobInternalService/CreateJob",
        "/taskqueue.internal.v1.QueueInternalService/DequeueJob",
        "/taskqueue.internal.v1.ResultInternalService/StoreResult",
    ):
        refused: Refused = refusal(lambda path=path: wire.raw(path, b""))  # type: ignore[misc]
        assert (refused.code, refused.reason) == (grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN")
        assert eventually(lambda path=path: [line for line in server.lines() if line["method"] == path])  # type: ignore[misc]


def test_every_transition_is_logged(working: Wire, working_server: Served) -> None:
    """The log shows each state change of a job with its worker and attempt."""
    job_id = ended(working)
    lines = eventually(
        lambda: [line for line in working_server.lines("transition") if line["job_id"] == job_id],
        lambda lines: len(lines) >= 3,
    )
    moves = {line["new_state"]: (line["old_state"], line["worker_id"], line["attempt"]) for line in lines}
    worker_id = moves["RUNNING"][1]
    assert worker_id
    assert moves["QUEUED"][1:] == ("", 0)
    assert moves["RUNNING"] == ("QUEUED", worker_id, 1)
    assert moves["DONE"] == ("RUNNING", worker_id, 1)
    assert all({"ts_ms", "service", "level", "method", "message", "priority"} <= line.keys() for line in lines)
