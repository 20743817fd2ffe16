"""Every response that is not OK: its status, its details, its line in the log."""

from collections.abc import Callable
from uuid import uuid4

import grpc
import pytest

from tests.contract.served import Served
from tests.contract.test_status_and_result import NO_JOB
from tests.e2e.waiting import eventually
from tests.e2e.wire import Refused, Wire, refusal

PUBLIC = ("SubmitJob", "GetJobStatus", "GetJobResult", "CancelJob", "ListJobs")
REQUIRED = ("ts_ms", "level", "service", "method", "event", "grpc_code", "message")


def key_reused(wire: Wire) -> object:
    wire.new(key="reused")
    return wire.new(key="reused", ms=1)


CASES: list[tuple[str, grpc.StatusCode, str, Callable[[Wire], object]]] = [
    ("SubmitJob", grpc.StatusCode.INVALID_ARGUMENT, "JOB_TYPE_EMPTY", lambda wire: wire.new(job_type="")),
    ("SubmitJob", grpc.StatusCode.FAILED_PRECONDITION, "REQUEST_ID_REUSED", key_reused),
    ("GetJobStatus", grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", lambda wire: wire.status(NO_JOB)),
    ("GetJobResult", grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", lambda wire: wire.result(NO_JOB)),
    ("CancelJob", grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND", lambda wire: wire.cancel(NO_JOB)),
    ("ListJobs", grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", lambda wire: wire.page(token="x")),
    (
        "WorkerHeartbeat",
        grpc.StatusCode.INVALID_ARGUMENT,
        "WORKER_ID_INVALID",
        lambda wire: wire.heartbeat(""),
    ),
    ("FetchWork", grpc.StatusCode.INVALID_ARGUMENT, "WORKER_ID_INVALID", lambda wire: wire.fetch("")),
    (
        "ReportWorkOutcome",
        grpc.StatusCode.INVALID_ARGUMENT,
        "OUTCOME_INVALID",
        lambda wire: wire.report("w", NO_JOB, 0),
    ),
]
EVERY_CASE = pytest.mark.parametrize(
    ("method", "code", "reason", "call"), CASES, ids=[f"{case[0]}-{case[2]}" for case in CASES]
)


@EVERY_CASE
def test_refusal_carries_a_status_with_its_reason(
    wire: Wire, method: str, code: grpc.StatusCode, reason: str, call: Callable[[Wire], object]
) -> None:
    """The trailing metadata hold a google.rpc.Status that repeats code and message and names the reason."""
    refused = refusal(lambda: call(wire))
    assert refused.code == code
    assert (refused.status.code, refused.status.message) == (code.value[0], refused.message)
    assert (refused.info.reason, refused.info.domain) == (reason, "holdfast")
    assert refused.message, f"{method} says something to people too"


@EVERY_CASE
def test_refusal_is_a_line_of_the_log(
    wire: Wire,
    server: Served,
    method: str,
    code: grpc.StatusCode,
    reason: str,
    call: Callable[[Wire], object],
) -> None:
    """Each response that is not OK is logged with time, method, code, message and the caller's address."""
    before = len(server.lines("refused"))
    refused = refusal(lambda: call(wire))
    wanted = {"method": method, "grpc_code": code.name, "reason": reason, "message": refused.message}
    # What others were refused before may be written only now.
    line = eventually(
        lambda: [line for line in server.lines("refused")[before:] if wanted.items() <= line.items()], what=str(wanted)
    )[0]
    assert all(name in line for name in REQUIRED)
    assert line["peer"].startswith("ipv4:127.0.0.1:")


def test_refusal_that_names_a_job_is_logged_with_it(wire: Wire, server: Served) -> None:
    """The job id of the request stands in the line."""
    refusal(lambda: wire.status("11111111-0000-4000-8000-000000000000"))
    wanted = "11111111-0000-4000-8000-000000000000"
    assert eventually(lambda: [line for line in server.lines("refused") if line.get("job_id") == wanted])


def test_expected_outcomes_are_not_errors(wire: Wire, server: Served) -> None:
    """A result not ready, a cancel of what has ended and a refused report are OK, with a field for it."""
    job_id, unknown = wire.new(), str(uuid4())
    assert not wire.result(job_id).result_ready
    wire.cancel(job_id)
    assert wire.cancel(job_id).already_terminal
    assert not wire.report("w", job_id)
    refusal(lambda: wire.status(unknown))
    lines = eventually(  # of these two: others may be told of what was refused before
        lambda: [line for line in server.lines("refused") if line["method"] in PUBLIC],
        lambda found: any(line["job_id"] == unknown for line in found),
    )
    assert [line["job_id"] for line in lines if line["job_id"] in {job_id, unknown}] == [unknown]


def test_payloads_and_labels_are_not_logged(wire: Wire, server: Served) -> None:
    """What a job carries stays out of the log."""
    job_id = wire.new(labels={"secret-name": "secret-value"})
    wire.cancel(job_id)
    eventually(lambda: [line for line in server.lines("transition") if line["new_state"] == "CANCELED"])
    assert "secret" not in server.log


def test_every_line_of_the_log_is_json(wire: Wire, server: Served) -> None:
    """Standard error holds JSON objects, one a line, and nothing else."""
    wire.new()
    assert [line for line in server.log.splitlines() if not line.startswith("{")] == []
    assert all({"ts_ms", "level", "service", "event"} <= line.keys() for line in server.lines())


def test_unknown_method_is_unimplemented_and_logged(wire: Wire, server: Served) -> None:
    """A method that is not there is UNIMPLEMENTED, as are the services of other topologies, and logged."""
    for path in (
        "/taskqueue.v1.TaskQueuePublicService/DeleteEverything",
        "/taskqueue.internal.v1.JobInternalService/CreateJob",
        "/taskqueue.internal.v1.QueueInternalService/DequeueJob",
        "/taskqueue.internal.v1.ResultInternalService/StoreResult",
    ):
        refused: Refused = refusal(lambda path=path: wire.raw(path, b""))  # type: ignore[misc]
        assert (refused.code, refused.reason) == (grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN")
        assert eventually(lambda path=path: [line for line in server.lines() if line["method"] == path])  # type: ignore[misc]
