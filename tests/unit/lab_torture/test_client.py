"""The calls of a client, and its records of them."""

import asyncio
import inspect
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast_lab.history.files import Writer, read_records
from holdfast_lab.history.records import DONE, Answered, Asked, JobSnapshot, Lost, Record, Refused
from holdfast_lab.torture.load.call_log import CallLog, CallTally
from holdfast_lab.torture.load.client import Options, TortureClient
from holdfast_lab.torture.load.interfaces import JobOrder, LostError, Page, RefusedError, StrangeError, SubmitReply
from holdfast_lab.torture.load.random_orders import OrderGenerator


class Nodes:
    """An interface whose jobs are done at once, and whose pause fails after some nodes have paused."""

    via = "grpc"
    has_ids = has_options = True

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.calls: list[str] = []
        self.after_pause = asyncio.Event()
        self._numbers = itertools.count()

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if "pause" in self.calls[:-1]:
            self.after_pause.set()

    async def submit(self, orders: Sequence[JobOrder]) -> SubmitReply:
        self._called("submit")
        return SubmitReply([f"job-{next(self._numbers)}" for _ in orders])

    async def get(self, job_id: str) -> JobSnapshot:
        self._called("get")
        return JobSnapshot(job_id, DONE)

    async def result(self, job_id: str, wait_s: float = 0.0) -> JobSnapshot:
        del wait_s
        return await self.get(job_id)

    async def cancel(self, job_id: str) -> JobSnapshot:
        return await self.get(job_id)

    async def retry(self, job_id: str, key: str) -> str:
        self._called("retry")
        return f"{job_id}-{key}"

    async def list(self, queue: str, cursor: str, size: int) -> Page:
        self._called("list")
        del queue, cursor, size
        return Page([])

    async def set_paused(self, queue: str, *, is_paused: bool) -> None:
        del queue
        self._called("pause" if is_paused else "resume")
        if is_paused:
            raise self.failure

    async def close(self) -> None:
        """Does nothing."""


@pytest.mark.parametrize("failure", [LostError("UNAVAILABLE"), RefusedError("RESOURCE_EXHAUSTED", "NO_SPACE")])
async def test_queue_that_may_be_paused_is_resumed_before_anything_else(tmp_path: Path, failure: Exception) -> None:
    """A failed pause is followed by a resume, because some nodes may have paused."""
    interface, stopping = Nodes(failure), asyncio.Event()
    with Writer(tmp_path / "client.jsonl") as writer:
        log = CallLog("c", "grpc", writer, CallTally())
        running = asyncio.create_task(
            TortureClient("c", interface, OrderGenerator(1, "c"), log, Options(has_pause=True)).run(stopping)
        )
        await asyncio.wait([running, asyncio.create_task(interface.after_pause.wait())], return_when="FIRST_COMPLETED")
        stopping.set()
        await running
    assert interface.calls[interface.calls.index("pause") + 1] == "resume"


async def answering(outcome: Exception | SubmitReply) -> SubmitReply:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def noted(path: Path, tally: CallTally, outcome: Exception | SubmitReply) -> list[Record]:
    """Returns the records of a submit with this outcome."""
    order = OrderGenerator(1, "c").waiting()
    with Writer(path / "client.jsonl") as writer:
        try:
            await CallLog("c", "grpc", writer, tally).submit([order], answering(outcome))
        except LostError:
            assert not isinstance(outcome, SubmitReply | RefusedError)
    return list(read_records(path))


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (SubmitReply(["job"]), Answered),
        (RefusedError("FAILED_PRECONDITION", "KEY_REUSED"), Refused),
        (LostError("UNAVAILABLE"), Lost),
        (StrangeError("INTERNAL"), Lost),
        (KeyError("id"), Lost),
    ],
    ids=["answered", "refused", "lost", "strange", "unreadable"],
)
async def test_every_call_is_recorded_with_its_outcome(
    tmp_path: Path, outcome: Exception | SubmitReply, kind: type[Record]
) -> None:
    """A lost response is neither answered nor refused, and a response that is not in the contract is a finding too."""
    tally = CallTally()
    asked, ended = await noted(tmp_path, tally, outcome)
    assert isinstance(asked, Asked)
    assert isinstance(ended, kind)
    assert len(tally.strange) == isinstance(outcome, StrangeError | KeyError)


async def test_call_that_cannot_be_recorded_is_not_sent() -> None:
    """A call that cannot be recorded is not sent."""
    asked = answering(SubmitReply(["job"]))
    with Writer(Path("/dev/full")) as writer, pytest.raises(OSError, match="No space left"):
        await CallLog("c", "grpc", writer, CallTally()).submit([OrderGenerator(1, "c").waiting()], asked)
    assert inspect.getcoroutinestate(asked) == inspect.CORO_CLOSED


async def test_call_that_is_given_up_is_unknown(tmp_path: Path) -> None:
    """A call that is cancelled has an unknown outcome."""
    with Writer(tmp_path / "client.jsonl") as writer:
        log = CallLog("c", "grpc", writer, CallTally())
        asking = asyncio.create_task(log.do("pause", asyncio.get_running_loop().create_future()))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert [type(record) for record in read_records(tmp_path)] == [Asked, Lost]
