"""JetStream of NATS, raw: publish, a pull consumer, and a worker of ours."""

import asyncio
from importlib.metadata import version
from itertools import count
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from holdfast_lab.measure.processes import module
from holdfast_lab.peers import stores, trial_environment
from holdfast_lab.peers.raw_job import NOTHING, nothing_with, pauses
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.tasks.nats_worker import AHEAD, AWAITED_RESULTS, JOBS, RESULT, WORKERS, result_subject

_JOB = "jobs"
_RESULTS = "RESULTS"
_RESULT_S = 60


class NatsJetStream:
    """Jobs in a work-queue stream, results in a second stream; both in files."""

    about = SystemDescription(
        title="NATS JetStream, raw",
        version=f"{stores.version(stores.NATS)} (nats-py {version('nats-py')})",
        settings="work-queue stream in files; a minimal worker of ours over a durable pull consumer, "
        f"{AHEAD} jobs ahead, explicit acknowledgements; single jobs by `publish`, many by `publish_async`, 500 in "
        "flight; results in a second stream, published without waiting for the acknowledgement; the caller subscribes "
        "to its result",
        durability=stores.NATS.durability,
        after_a_kill="not acknowledged: redelivered after `ack_wait`, 30 s (default)",
    )

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._tickets = count(1)
        self._awaited: dict[str, asyncio.Future[None]] = {}
        self._runner.run(self._start())

    async def _start(self) -> None:
        self._client: Any = await nats.connect(f"nats://{trial_environment.store_address()}")
        self._stream: Any = self._client.jetstream()
        work_queue = RetentionPolicy.WORK_QUEUE
        for stream in (
            StreamConfig(name=JOBS, subjects=[_JOB], retention=work_queue, storage=StorageType.FILE),
            StreamConfig(name=_RESULTS, subjects=[RESULT, AWAITED_RESULTS], storage=StorageType.FILE),
        ):
            await self._stream.add_stream(stream)
        workers = ConsumerConfig(durable_name=WORKERS, ack_policy=AckPolicy.EXPLICIT)
        await self._stream.add_consumer(JOBS, workers)
        await self._client.subscribe(AWAITED_RESULTS, cb=self._receive)

    def worker_command(self) -> list[str]:
        return module("holdfast_lab.peers.tasks.nats_worker")

    def enqueue_many(self, count: int) -> None:
        self._runner.run(self._publish_all([NOTHING] * count))

    def submit_each(self, count: int) -> None:
        self._runner.run(self._publish_each(count))

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        self._runner.run(self._publish_all(pauses(indexes, seconds)))

    def submit_and_wait(self) -> None:
        self._runner.run(self._submit_and_wait())

    def count_done(self) -> int:
        return int(self._runner.run(self._stream.stream_info(_RESULTS)).state.messages)

    def count_kept(self) -> int:
        return int(self._runner.run(self._stream.stream_info(JOBS)).state.messages)

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    async def _publish_all(self, bodies: list[bytes]) -> None:
        await asyncio.gather(*[await self._stream.publish_async(_JOB, body) for body in bodies])

    async def _publish_each(self, count: int) -> None:
        for _ in range(count):
            await self._stream.publish(_JOB, NOTHING)

    async def _submit_and_wait(self) -> None:
        ticket = next(self._tickets)
        arrived = self._awaited[result_subject(ticket)] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(_RESULT_S):
            await self._stream.publish(_JOB, nothing_with(ticket))
            await arrived

    async def _receive(self, result: Any) -> None:  # noqa: ANN401 - nats-py is not installed where types are checked
        awaited = self._awaited.pop(result.subject, None)
        if awaited and not awaited.done():
            awaited.set_result(None)
