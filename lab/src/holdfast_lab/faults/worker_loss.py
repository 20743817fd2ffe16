"""Time from kill -9 of a worker to the next attempt of its job, for each topology.

`python -m holdfast_lab.faults.worker_loss`

Each run starts a topology with `holdfast up`, its default settings and its data on disk, submits one long job, kills
the process that runs it, and reads from the transition log when the job was started again. The supervisor restarts the
killed process, so the figures include the start of a new worker if no other one has a free slot. A second run stops the
process for four seconds (SIGSTOP) and continues it: the log shows whether it lost its job.
"""

import asyncio
import contextlib
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import msgspec

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc
from holdfast_lab.compare.topologies import TOPOLOGIES, RunningTopology, Topology, started
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.process_tree import argv, tree
from holdfast_lab.measure.rounds import orders
from holdfast_lab.measure.tables import markdown

#: The options of `holdfast up`: its own defaults, on free ports, with transitions in the log.
OPTIONS = ("--data", "data", "--port", "0", "--no-http", "--log-level", "info", "--log-format", "json")
PAUSE_S = 4.0
#: A worker that was considered lost appears in the log within this time after its pause.
_AFTER_PAUSE_S = 3.0
_JOB_MS = 300_000
_PATIENCE_S = 60.0
_LOOK_S = 0.01
_Line = dict[str, Any]


class TransitionTail:
    """The transitions of one job, read from the log of a running topology."""

    def __init__(self, log: Path, job_id: str) -> None:
        self._log = log
        self._job_id = job_id.encode()

    def lines(self) -> list[_Line]:
        """Returns all transitions so far, oldest first."""
        whole = self._log.read_bytes().rpartition(b"\n")[0]
        found = [msgspec.json.decode(line, type=_Line) for line in whole.splitlines() if self._job_id in line]
        moves = [line for line in found if line.get("event") == "transition"]
        return sorted(moves, key=lambda line: int(line["ts_ms"]))

    async def start(self, number: int) -> _Line:
        """Returns the start of this attempt, counted from 1; raises `TimeoutError` if it is not logged in time."""
        async with asyncio.timeout(_PATIENCE_S):
            # Other processes write the log, without a notification.
            while len(starts := [line for line in self.lines() if line["new_state"] == "RUNNING"]) < number:  # noqa: ASYNC110 - no notification
                await asyncio.sleep(_LOOK_S)
        return starts[number - 1]


async def kill_worker(topology: Topology) -> float:
    """Returns the seconds from the kill of the process that runs a job to the job's second start."""
    async with started(topology, options=OPTIONS) as running, _busy(running) as (tail, victim):
        killed_ms = time.time() * 1_000
        os.kill(victim, signal.SIGKILL)
        again = await tail.start(2)
        return (int(again["ts_ms"]) - killed_ms) / 1_000


async def stop_worker(topology: Topology) -> bool:
    """Whether a process that was stopped for `PAUSE_S` kept its job."""
    async with started(topology, options=OPTIONS) as running, _busy(running) as (tail, victim):
        os.kill(victim, signal.SIGSTOP)
        await asyncio.sleep(PAUSE_S)
        os.kill(victim, signal.SIGCONT)
        await asyncio.sleep(_AFTER_PAUSE_S)
        return all(line["old_state"] != "RUNNING" for line in tail.lines())


@contextlib.asynccontextmanager
async def _busy(running: RunningTopology) -> AsyncIterator[tuple[TransitionTail, int]]:
    """Yields a running job and the process that runs it; cancels the job afterwards."""
    async with grpc.aio.insecure_channel(running.targets[0]) as channel:
        stub: Any = rpc.TaskQueuePublicServiceStub(channel)
        spec = pb.JobSpec(job_type="sim", work_duration_ms=_JOB_MS)
        reply = await stub.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=_PATIENCE_S, wait_for_ready=True)
        tail = TransitionTail(running.log, reply.job_id)
        first = await tail.start(1)
        yield tail, _process_of(running, str(first["worker_id"]))
        await stub.CancelJob(pb.CancelJobRequest(job_id=reply.job_id), timeout=_PATIENCE_S, wait_for_ready=True)


def _process_of(running: RunningTopology, worker_id: str) -> int:
    """Returns the process of this worker; with several nodes the first one, to which the job was submitted."""
    topology = running.topology
    pids = [pid for pid in tree(running.pid) if topology.role(argv(pid)) == topology.victim]
    named = [pid for pid in pids if worker_id in argv(pid) or "0" in _value(argv(pid), "--index")]
    found = pids if len(pids) == 1 else named
    assert len(found) == 1, f"expected one {topology.victim} that runs the job, found {len(found)}"
    return found[0]


def _value(command: Sequence[str], option: str) -> Sequence[str]:
    """Returns the word after an option, if the command has it."""
    return command[command.index(option) + 1 :][:1] if option in command else []


class WorkerLossFigures(msgspec.Struct, frozen=True):
    """The figures of one topology."""

    topology: str
    again_s: list[float]
    kept_after_pause: bool


async def measure(names: Sequence[str], runs: int) -> list[WorkerLossFigures]:
    """The figures of these topologies, which take turns."""
    again_s: dict[str, list[float]] = {name: [] for name in names}
    for _, order in orders(names, runs):
        for name in order:
            again_s[name].append(await kill_worker(TOPOLOGIES[name]))
    return [WorkerLossFigures(name, sorted(again_s[name]), await stop_worker(TOPOLOGIES[name])) for name in names]


def main() -> None:
    """Print a table."""
    options = parser(__doc__)
    options.add_argument("--topologies", default=",".join(TOPOLOGIES), help="which, with commas (default: all)")
    options.add_argument("--runs", type=int, default=5, help="kills per topology (default: 5)")
    given = options.parse_args()
    names = given.topologies.split(",")
    if unknown := set(names) - TOPOLOGIES.keys():
        options.error(f"expected --topologies to be some of {', '.join(TOPOLOGIES)}, got {', '.join(sorted(unknown))}")
    if given.runs < 1:
        options.error(f"expected --runs to be at least 1, got {given.runs}")
    losses = asyncio.run(measure(names, given.runs))
    head = ("topology", "kill -9 to the next attempt, median of seconds (all runs)", "after a suspension of 4 s")
    rows = [
        (
            one.topology,
            f"{statistics.median(one.again_s):.2f} ({', '.join(f'{value:.2f}' for value in one.again_s)})",
            "kept" if one.kept_after_pause else "run again",
        )
        for one in losses
    ]
    show(losses, markdown(head, rows), as_json=given.json)


if __name__ == "__main__":
    main()
