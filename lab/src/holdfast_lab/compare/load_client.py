"""One client's part of a load: closed or open loops of requests or of whole life cycles.

A closed loop begins a request when another has ended, and so slows down with the topology. An open loop begins requests
at times that were drawn in advance, and measures from them, so that it does not hide a stall. Nothing begins after the
end of the load; running requests may end within a grace.
"""

import asyncio
import random
import time
from collections import deque

import msgspec

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast_lab.compare.ingress import Router
from holdfast_lab.compare.recorded_calls import Caller, CallOutcome
from holdfast_lab.compare.records import GIVEN_UP, LOST, JobRun, Records
from holdfast_lab.compare.workloads import CANCEL, LIST, RESULT, STATUS, SUBMIT, Workload

GRACE_S = 12.0
#: Interval of polling a job, which grows.
POLL_FIRST_S, POLL_GROWTH, POLL_MAX_S = 0.001, 1.5, 0.1
#: Pause after a failed call, so that a closed loop does not spin on a node that is down.
ERROR_PAUSE_S = 0.02
_READINGS = 5
_KNOWN_MAX = 500
_NOT_FOUND = 5
_TERMINAL = frozenset({pb.DONE, pb.FAILED, pb.CANCELED})
_NS = 1_000_000_000


class ClientTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task of one client process."""

    targets: tuple[str, ...]
    workload: Workload
    seed: int
    index: int = 0
    clients: int = 1

    @property
    def lanes(self) -> int:
        """The share of the concurrency."""
        share, rest = divmod(self.workload.concurrency, self.clients)
        return share + (self.index < rest)


class ClientLoad:
    """The load of one client."""

    def __init__(self, task: ClientTask) -> None:
        self._task = task
        self._workload = task.workload
        name = f"{task.seed} {task.index} {task.workload.name}"
        self._draw = random.Random(name)
        #: A stream of its own: the other one depends on responses.
        self._moments = random.Random(f"{name} moments")
        self.records = Records()
        router = Router(len(task.targets), first=task.index * len(task.targets) // task.clients)
        self.caller = Caller(task.targets, router, self.records)
        self._known: deque[str] = deque(maxlen=_KNOWN_MAX)
        self._end = 0
        self._wall_ns = _wall_ahead_ns()

    async def run(self, start: int) -> None:
        """Run warm-up, load and grace from `start` on the monotonic clock."""
        self._end = start + int((self._workload.warm_up_s + self._workload.duration_s) * _NS)
        await _until(start)
        if self._workload.is_open:
            await self._open_loop(start)
        else:
            await asyncio.gather(*(self._lane() for _ in range(self._task.lanes)))

    async def _lane(self) -> None:
        while (now := time.monotonic_ns()) < self._end:
            if not await self._one(now):
                await asyncio.sleep(ERROR_PAUSE_S)

    async def _open_loop(self, start: int) -> None:
        rate = self._workload.rate / self._task.clients
        intended = start
        under_way: set[asyncio.Task[bool]] = set()
        while (intended := intended + int(self._moments.expovariate(rate) * _NS)) < self._end:
            await _until(intended)
            task = asyncio.create_task(self._one(intended))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)

    async def _one(self, intended: int) -> bool:
        """Run one request or one life cycle; whether it succeeded."""
        if self._workload.is_life_cycle:
            return await self._live(intended)
        return (await self._request(intended)).is_ok

    async def _request(self, intended: int) -> CallOutcome:
        method = self._draw.choices(range(len(self._workload.mix)), self._workload.mix)[0]
        if method == LIST:
            return await self.caller.list(intended)
        if method == SUBMIT or not self._known:
            return await self._submit(intended)
        job_id = self._known[self._draw.randrange(len(self._known))]
        calls = {STATUS: self.caller.status, RESULT: self.caller.result, CANCEL: self.caller.cancel}
        return await calls[method](intended, job_id)

    async def _submit(self, intended: int) -> CallOutcome:
        answer, _ = await self.caller.submit(intended, self._workload.job_ms, self._request_id())
        if answer.is_ok:
            self._known.append(answer.reply.job_id)
        return answer

    def _request_id(self) -> str:
        has_one = self._draw.random() < self._workload.request_ids
        return f"lab-{self._draw.getrandbits(96):024x}" if has_one else ""

    async def _live(self, intended: int) -> bool:
        answer, node = await self.caller.submit(intended, self._workload.job_ms, self._request_id())
        if not answer.is_ok:
            return False
        status, finished, seen = await self._watch(answer.reply.job_id)
        if status in _TERMINAL:
            fetched = await self.caller.result(time.monotonic_ns(), answer.reply.job_id)
            seen = fetched.end
        self.records.add_job(JobRun(intended, answer.end, finished, seen, status, node))
        return status not in {GIVEN_UP, LOST}

    async def _watch(self, job_id: str) -> tuple[int, int, int]:
        """Poll until the job has ended: its status, the time of its end as reported, and when that was seen."""
        pause_s = POLL_FIRST_S
        while time.monotonic_ns() < self._end + GRACE_S * _NS:
            answer = await self.caller.status(time.monotonic_ns(), job_id)
            if answer.code == _NOT_FOUND:
                return LOST, 0, answer.end
            if answer.is_ok and answer.reply.status in _TERMINAL:
                return answer.reply.status, self._steady(answer.reply.finished_at_ms), answer.end
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * POLL_GROWTH, POLL_MAX_S)
        return GIVEN_UP, 0, time.monotonic_ns()

    def _steady(self, wall_ms: int) -> int:
        """A reported wall time on the monotonic clock: the middle of its millisecond."""
        return wall_ms * 1_000_000 + 500_000 - self._wall_ns


def _wall_ahead_ns() -> int:
    """The difference of wall clock and monotonic clock, by the reading that was interrupted least."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(_READINGS)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return wall - (before + after) // 2


async def _until(moment: int) -> None:
    if (left := moment - time.monotonic_ns()) > 0:
        await asyncio.sleep(left / _NS)
