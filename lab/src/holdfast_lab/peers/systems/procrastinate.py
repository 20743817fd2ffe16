"""Procrastinate on PostgreSQL."""

import asyncio
import sys
from importlib.metadata import version

import uvloop

from holdfast_lab.measure.timing import in_lanes
from holdfast_lab.peers import trial_environment
from holdfast_lab.peers.stores import POSTGRES
from holdfast_lab.peers.system import BATCHES, CALLERS, SystemDescription, batches
from holdfast_lab.peers.tasks import procrastinate_app
from holdfast_lab.peers.work import ARGUMENT

#: Slots of all worker processes together.
_SLOTS = 15
_POLL_S = 0.001
_COUNT = "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status = 'succeeded'"
_COUNT_KEPT = _COUNT.replace("=", "<>")


class Procrastinate:
    """Coroutines in `procrastinate worker`, which listens for jobs; callers poll for ends."""

    about = SystemDescription(
        title="Procrastinate",
        version=version("procrastinate"),
        settings=f"`procrastinate worker`, {_SLOTS} slots in three processes or one, LISTEN (default), coroutines, "
        f"bulk by `batch_defer_async`, {BATCHES} batches of 500 at a time, a pool of "
        f"{procrastinate_app.CONNECTIONS_MAX} connections; it reports no ends: the state is polled every ms",
        durability=POSTGRES.durability,
        after_a_kill="stays `doing` until a job of the user retries stalled jobs",
        chunk=4_000,
    )

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._runner.run(_open())

    def worker_command(self) -> list[str]:
        command = [sys.executable, "-m", "procrastinate", f"--app={procrastinate_app.__name__}.app"]
        return [*command, "--log-level=warning", "worker", f"--concurrency={_SLOTS // trial_environment.workers()}"]

    def enqueue_many(self, count: int) -> None:
        self._runner.run(_enqueue(count))

    def submit_each(self, count: int) -> None:
        self._runner.run(_submit(count, 1))

    def submit_together(self, count: int) -> None:
        self._runner.run(_submit(count, CALLERS))

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        jobs = [{"index": index, "seconds": seconds} for index in indexes]
        self._runner.run(procrastinate_app.pause.batch_defer_async(*jobs))

    def submit_and_wait(self) -> None:
        self._runner.run(_submit_and_wait())

    def count_done(self) -> int:
        return self._count(_COUNT)

    def count_kept(self) -> int:
        return self._count(_COUNT_KEPT)

    def _count(self, query: str) -> int:
        return int(self._runner.run(procrastinate_app.app.connector.execute_query_one_async(query))["jobs"])

    def close(self) -> None:
        self._runner.run(procrastinate_app.app.close_async())
        self._runner.close()


async def _open() -> None:
    await procrastinate_app.app.open_async()
    await procrastinate_app.app.schema_manager.apply_schema_async()


async def _enqueue(count: int) -> None:
    job = {"argument": ARGUMENT}
    await in_lanes([procrastinate_app.nothing.batch_defer_async(*[job] * size) for size in batches(count)], BATCHES)


async def _submit(count: int, callers: int) -> None:
    await in_lanes([procrastinate_app.nothing.defer_async(argument=ARGUMENT) for _ in range(count)], callers)


async def _submit_and_wait() -> None:
    job_id = await procrastinate_app.nothing.defer_async(argument=ARGUMENT)
    while (await procrastinate_app.app.job_manager.get_job_status_async(job_id)).value != "succeeded":  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
