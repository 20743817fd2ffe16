"""Finished jobs after a start with a wall clock that is wrong by days: `python -m holdfast_lab.faults.wrong_clock`.

A hundred jobs are submitted with request ids and canceled. The server is started once with its clock stepped, and then
again with the true time. The figures are the jobs that are still known, the request ids that still find their job, and
the difference between the log's time and the true time.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc
from holdfast_lab.faults.one_job import program, server_arguments
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.tables import markdown
from holdfast_lab.torture.faults.clock_file import FileClock

T = TypeVar("T")

_JOBS = 100
_DAYS = (8, -8)
_DAY_MS = 86_400_000
_CALL_S = 30.0


class WrongClockFigures(msgspec.Struct, frozen=True):
    """The figures after one start with a wrong clock."""

    days: int
    jobs: int
    jobs_known: int
    request_ids_known: int
    log_ahead_s: float


async def measure(days: int) -> WrongClockFigures:
    """Measures one clock."""
    with tempfile.TemporaryDirectory(prefix="holdfast-clock-") as name:
        folder = Path(name)
        clock = FileClock(folder / "clock")
        ids = await _served(folder, clock, _fill)
        clock.step(days * _DAY_MS)
        await _served(folder, clock, _look)
        clock.step(0)
        return await _served(folder, clock, lambda stub: _counted(stub, ids, days))


async def _served(folder: Path, clock: FileClock, use: Callable[[Any], Awaitable[T]]) -> T:
    """Runs a server and returns the result of `use`."""
    with program(folder, *server_arguments(0), environment=clock.environment) as (_, ready):
        async with grpc.aio.insecure_channel(ready["grpc"]) as channel:
            return await use(rpc.TaskQueuePublicServiceStub(channel))


async def _submit(stub: Any, number: int) -> str:  # noqa: ANN401 - generated
    request = pb.SubmitJobRequest(spec=pb.JobSpec(job_type="none"), client_request_id=f"request-{number}")
    return str((await stub.SubmitJob(request, timeout=_CALL_S)).job_id)


async def _fill(stub: Any) -> list[str]:  # noqa: ANN401
    ids = [await _submit(stub, number) for number in range(_JOBS)]
    for job_id in ids:
        await stub.CancelJob(pb.CancelJobRequest(job_id=job_id), timeout=_CALL_S)
    return ids


async def _look(stub: Any) -> None:  # noqa: ANN401
    await stub.ListJobs(pb.ListJobsRequest(), timeout=_CALL_S)


async def _counted(stub: Any, ids: list[str], days: int) -> WrongClockFigures:  # noqa: ANN401
    known = 0
    for job_id in ids:
        try:
            await stub.GetJobStatus(pb.GetJobStatusRequest(job_id=job_id), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
        else:
            known += 1
    again = [await _submit(stub, number) for number in range(_JOBS)]
    fresh = await _submit(stub, _JOBS)
    status = await stub.GetJobStatus(pb.GetJobStatusRequest(job_id=fresh), timeout=_CALL_S)
    found = sum(new == old for new, old in zip(again, ids, strict=True))
    return WrongClockFigures(days, len(ids), known, found, round(status.created_at_ms / 1_000 - time.time(), 1))


async def measure_all() -> list[WrongClockFigures]:
    """Measures one clock after the other."""
    return [await measure(days) for days in _DAYS]


def main() -> None:
    """Reads the options, measures, and leaves no process."""
    given = parser(__doc__).parse_args()
    found = asyncio.run(measure_all())
    head = ("clock of one start", "jobs still known", "request ids still known", "log time ahead")
    rows = [
        (
            f"{one.days:+} days",
            f"{one.jobs_known} of {one.jobs}",
            f"{one.request_ids_known} of {one.jobs}",
            f"{one.log_ahead_s} s",
        )
        for one in found
    ]
    show(found, markdown(head, rows), as_json=given.json)


if __name__ == "__main__":
    main()
