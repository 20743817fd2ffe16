"""SAQ on Redis."""

import asyncio
import sys
from importlib.metadata import version

from saq import Status

from holdfast_lab.peers.stores import REDIS
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.tasks import saq_app

_POLL_S = 0.001


class Saq:
    """Coroutines in `saq`."""

    about = SystemDescription(
        title="SAQ",
        version=version("saq"),
        settings="`saq`, 10 at a time (default), coroutines, no prefetch, no call for many: `enqueue` 20 at a time "
        "(its own bound), `Queue.apply` polling every ms (default: 500) for a result",
        durability=REDIS.durability,
        after_a_kill="moved to a list of active jobs; swept every 60 s once past their timeout (10 s), and aborted "
        "rather than run again, since `retries` is 1",
    )

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._sent = 0

    def worker_command(self) -> list[str]:
        return [sys.executable, "-m", "saq", "holdfast_lab.peers.tasks.saq_app.settings"]

    def enqueue_many(self, count: int) -> None:
        self._runner.run(self._send([{} for _ in range(count)], "nothing"))

    def submit_each(self, count: int) -> None:
        self._runner.run(self._send_each(count))

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        self._runner.run(self._send([{"index": index, "seconds": seconds} for index in indexes], "pause"))

    async def _send(self, arguments: list[dict[str, float]], function: str) -> None:
        await asyncio.gather(*(saq_app.queue.enqueue(function, **one) for one in arguments))
        self._sent += len(arguments)

    async def _send_each(self, count: int) -> None:
        for _ in range(count):
            await saq_app.queue.enqueue("nothing")
        self._sent += count

    def submit_and_wait(self) -> None:
        # Not `Job.refresh(until_complete)`: it never returns if the job ends just before it subscribes.
        self._runner.run(saq_app.queue.apply("nothing", timeout=60, poll_interval=_POLL_S))

    def count_done(self) -> int:
        return self._sent - int(self._runner.run(saq_app.queue.count("incomplete")))

    def count_kept(self) -> int:
        return self._runner.run(_count_unfinished())

    def close(self) -> None:
        self._runner.run(saq_app.queue.disconnect())
        self._runner.close()


async def _count_unfinished() -> int:
    """The number of jobs that wait, run or were given up; the count of incomplete jobs has no given-up ones.

    No-ops are left out: SAQ sweeps some while the worker starts, which has nothing to do with the kill.
    """
    statuses = [status for status in Status if status is not Status.COMPLETE]
    jobs = [job async for job in saq_app.queue.iter_jobs(statuses)]
    return sum(job.function == "pause" for job in jobs)
