"""`python -m holdfast.lab.faults.wrong_clock`: finished jobs, and one start under a wall clock that is wrong by days.

A hundred jobs are submitted with request ids and canceled. The server is started once with its clock stepped, and then
again with the true time. Counted are the jobs that are still known, the request ids that still find their job, and how
far the log's time is from the true time.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec

from holdfast.lab.faults.one_job import server_arguments, start
from holdfast.lab.torture.faults.clockwork import FileClock
from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc

T = TypeVar("T")

_JOBS = 100
_DAYS = (8, -8)
_DAY_MS = 86_400_000
_CALL_S = 30.0


class Kept(msgspec.Struct, frozen=True):
    """What is left after one wrong start."""

    days: int
    jobs: int
    jobs_known: int
    request_ids_known: int
    log_ahead_s: float


async def measure(days: int) -> Kept:
    """One clock."""
    with tempfile.TemporaryDirectory(prefix="holdfast-clock-") as name:
        folder = Path(name)
        clock = FileClock(folder / "clock")
        ids = await _served(folder, clock, _fill)
        clock.step(days * _DAY_MS)
        await _served(folder, clock, _look)
        clock.step(0)
        return await _served(folder, clock, lambda stub: _counted(stub, ids, days))


async def _served(folder: Path, clock: FileClock, use: Callable[[Any], Awaitable[T]]) -> T:
    """What `use` gives, with a server that runs meanwhile."""
    server = await start(folder, *server_arguments(0), environment=clock.environment)
    try:
        async with grpc.aio.insecure_channel(str(server.ready["grpc"])) as channel:
            return await use(rpc.TaskQueuePublicServiceStub(channel))
    finally:
        await server.end()


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


async def _counted(stub: Any, ids: list[str], days: int) -> Kept:  # noqa: ANN401
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
    return Kept(days, len(ids), known, found, round(status.created_at_ms / 1_000 - time.time(), 1))


async def measure_all() -> list[Kept]:
    """One clock after the other."""
    return [await measure(days) for days in _DAYS]


def main() -> int:
    """Reads the options, measures, and leaves no process."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.lab.faults.wrong_clock", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = asyncio.run(measure_all())
    if parser.parse_args().json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return 0
    rows = [
        f"| {one.days:+} days | {one.jobs_known} of {one.jobs} | {one.request_ids_known} of {one.jobs} |"
        f" {one.log_ahead_s} s |"
        for one in found
    ]
    head = ["| clock of one start | jobs still known | request ids still known | log time ahead |", "|---|---|---|---|"]
    sys.stdout.write("\n".join([*head, *rows]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
