"""`python -m holdfast_lab.peers.tasks.nats_worker`: a minimal worker over a pull consumer of JetStream.

It asks for many jobs ahead and asks again before they run out, as the `consume` of other NATS clients does. The `fetch`
of nats-py either takes one job for each round trip, or waits for a full batch and so delays a lone job.

The result is published into a stream, without waiting for its acknowledgement, and then the job is acknowledged: the
server handles both in this order.
"""

import asyncio
from typing import Any

import msgspec
import nats

from holdfast_lab.peers import trial_environment, work
from holdfast_lab.peers.raw_job import RawJob, RawResult, decode_job, encode

JOBS = "JOBS"
WORKERS = "workers"
RESULT = "results"
AWAITED_RESULTS = f"{RESULT}.*"
AHEAD = 200
_NEXT = f"$JS.API.CONSUMER.MSG.NEXT.{JOBS}.{WORKERS}"
_ACKNOWLEDGED = b"+ACK"
_EXPIRES_NS = 3_600_000_000_000


def result_subject(ticket: int) -> str:
    """The subject of a result: one of its own if a caller waits for it."""
    return f"{RESULT}.{ticket}" if ticket else RESULT


class NatsWorker:
    """Runs no-ops as they come, and jobs that take time side by side."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - nats-py is not installed where types are checked
        self._client = client
        self._inbox: str = client.new_inbox()
        self._asked = 0
        self._pauses: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Subscribe, and ask for the first jobs."""
        await self._client.subscribe(self._inbox, cb=self._receive)
        await self._ask()

    async def _ask(self) -> None:
        self._asked += AHEAD
        request = msgspec.json.encode({"batch": AHEAD, "expires": _EXPIRES_NS})
        await self._client.publish(_NEXT, request, reply=self._inbox)

    async def _receive(self, message: Any) -> None:  # noqa: ANN401
        assert message.reply, f"JetStream refused a request: {message.headers}"
        self._asked -= 1
        if self._asked <= AHEAD // 2:
            await self._ask()
        job = decode_job(message.data)
        if job.function == "nothing":
            await self._report(message, job, work.nothing())
        else:
            task = asyncio.create_task(self._pause(message, job))
            self._pauses.add(task)
            task.add_done_callback(self._pauses.discard)

    async def _pause(self, message: Any, job: RawJob) -> None:  # noqa: ANN401
        index, seconds = job.arguments
        await self._report(message, job, await work.pause_async(int(index), seconds))

    async def _report(self, message: Any, job: RawJob, value: int) -> None:  # noqa: ANN401
        await self._client.publish(result_subject(job.ticket), encode(RawResult(value, job.ticket)))
        await self._client.publish(message.reply, _ACKNOWLEDGED)


async def main() -> None:
    """Work until killed."""
    client = await nats.connect(f"nats://{trial_environment.store_address()}")
    await NatsWorker(client).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
