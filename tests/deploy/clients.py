"""What clients do to a design in containers, the same for both."""

from collections.abc import Iterable

import grpc

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.waiting import eventually
from tests.e2e.wire import TERMINAL, Wire, refusal

#: How many jobs run at a time, in either design.
SLOTS = 6
_AN_HOUR_MS = 3_600_000
_UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


def check_the_five_methods(wire: Wire) -> None:
    """Every public method does what the frozen contract says of it."""
    check_submit_status_and_result(wire)
    check_cancel_and_list(wire)
    for call in (wire.status, wire.result, wire.cancel):
        assert refusal(lambda call=call: call(_UNKNOWN_ID)).code is grpc.StatusCode.NOT_FOUND  # type: ignore[misc]


def check_submit_status_and_result(wire: Wire) -> None:
    """A key finds its job, another payload under it is refused, and the job ends with its output."""
    # Long enough that workers fetch no more jobs than they have slots; the next check counts on it.
    spec = {"key": "a-key", "ms": 100, "size": 10, "labels": {"a": "1"}}
    accepted = wire.submit(**spec)  # type: ignore[arg-type]
    assert accepted.initial_status == public.QUEUED
    assert wire.new(**spec) == accepted.job_id
    assert refusal(lambda: wire.new(**spec | {"ms": 101})).code is grpc.StatusCode.FAILED_PRECONDITION
    job = wire.wait_for(accepted.job_id)
    assert job.status == public.DONE
    assert accepted.accepted_at_ms == job.created_at_ms <= job.started_at_ms <= job.finished_at_ms
    result = wire.result(accepted.job_id)
    assert (result.result_ready, result.terminal_status, result.output_bytes) == (True, public.DONE, b"." * 10)
    assert (len(result.checksum), result.runtime_ms >= 99) == (64, True)


def check_cancel_and_list(wire: Wire) -> None:
    """With every slot taken a job waits, is canceled at once, and is listed as such; what runs is asked to stop."""
    running = [wire.new(ms=_AN_HOUR_MS) for _ in range(SLOTS)]
    for job_id in running:
        wire.wait_for(job_id, public.RUNNING)
    waiting = wire.new(ms=_AN_HOUR_MS)
    assert not wire.result(waiting).result_ready
    answer = wire.cancel(waiting, "not needed")
    assert (answer.accepted, answer.already_terminal, answer.current_status) == (True, False, public.CANCELED)
    result = wire.result(waiting)
    assert (result.terminal_status, result.output_summary) == (public.CANCELED, "not needed")
    assert wire.cancel(waiting).already_terminal
    assert {job.job_id for job in wire.all_jobs(public.RUNNING)} == set(running)
    for job_id in running:
        assert wire.cancel(job_id, "enough").accepted
    for job_id in running:
        assert wire.wait_for(job_id).status == public.CANCELED
    assert {job.job_id for job in wire.all_jobs(public.CANCELED)} >= {waiting, *running}


def state_of(wire: Wire, job_id: str) -> int | grpc.StatusCode:
    """The job's status, or the code of a refusal to tell."""
    try:
        return wire.status(job_id, timeout_s=5.0).status
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code


def check_all_end(wire: Wire, job_ids: Iterable[str]) -> None:
    """Every one of these jobs is DONE in the end, and listed once."""
    wanted = set(job_ids)
    for job_id in wanted:
        state = eventually(lambda job_id=job_id: state_of(wire, job_id), TERMINAL.__contains__)  # type: ignore[misc]
        assert state == public.DONE
    listed = [job.job_id for job in wire.all_jobs() if job.job_id in wanted]
    assert sorted(listed) == sorted(wanted)
