"""Client checks of a topology in containers."""

from collections.abc import Iterable

import grpc

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.grpc_client import TERMINAL, Wire, refusal
from tests.e2e.wait_until import eventually

#: The number of jobs that run at a time, in either topology.
SLOTS = 6
_AN_HOUR_MS = 3_600_000
_UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


def check_the_five_methods(wire: Wire) -> None:
    """Checks that every public method follows the frozen contract."""
    check_submit_status_and_result(wire)
    check_cancel_and_list(wire)
    for call in (wire.status, wire.result, wire.cancel):
        assert refusal(lambda call=call: call(_UNKNOWN_ID)).code is grpc.StatusCode.NOT_FOUND  # type: ignore[misc]


def check_submit_status_and_result(wire: Wire) -> None:
    """Checks that a key returns its job, that other content under it is refused, and that the job has its output."""
    # Long enough that workers fetch no more jobs than they have slots, which the next check requires.
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
    """Checks that a waiting job is canceled at once and listed, and that a running job is stopped by a cancel."""
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
    """Returns the job's status, or the status code of the error."""
    try:
        return wire.status(job_id, timeout_s=5.0).status
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code


def check_all_end(wire: Wire, job_ids: Iterable[str]) -> None:
    """Checks that all these jobs end DONE and are listed once."""
    wanted = set(job_ids)
    for job_id in wanted:
        state = eventually(lambda job_id=job_id: state_of(wire, job_id), TERMINAL.__contains__)  # type: ignore[misc]
        assert state == public.DONE
    listed = [job.job_id for job in wire.all_jobs() if job.job_id in wanted]
    assert sorted(listed) == sorted(wanted)
