"""The server's side of a conversation, with a method table of the test."""

import asyncio
from collections.abc import AsyncIterator

from structlog.testing import capture_logs

from holdfast import limits
from holdfast.errors import NotFoundError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.auth.permissions import Scope
from holdfast.server.grpc import conversation as module
from holdfast.server.grpc.conversation import PENDING_BYTES_MAX, GrpcConversation
from holdfast.server.grpc.method_table import CallMethod


class Outlet:
    """Collects replies; the test controls whether it is writable."""

    def __init__(self) -> None:
        self.replies: asyncio.Queue[pb.Reply] = asyncio.Queue()
        self.writable = asyncio.Event()
        self.writable.set()
        self.holds: list[bool] = []

    def send(self, reply: pb.Reply) -> None:
        self.replies.put_nowait(reply)

    async def ready(self) -> None:
        await self.writable.wait()

    def hold(self, *, is_held: bool) -> None:
        self.holds.append(is_held)


class Handlers:
    """Methods that the test controls."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.given_up = 0
        self.table = {
            "Wait": CallMethod("Wait", Scope.READ, pb.SubmitJobsRequest, self.wait),
            "Fail": CallMethod("Fail", Scope.READ, pb.GetJobRequest, self.fail),
            "Break": CallMethod("Break", Scope.READ, pb.GetJobRequest, self.crash),
            "Count": CallMethod("Count", Scope.READ, pb.FeedRequest, self.count, is_stream=True),
            "Huge": CallMethod("Huge", Scope.READ, pb.GetJobRequest, self.huge),
        }

    async def wait(self, _: pb.SubmitJobsRequest) -> pb.Job:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return pb.Job(id="waited")

    async def fail(self, _: pb.GetJobRequest) -> pb.Job:
        raise NotFoundError("not here", reason="GONE")

    async def crash(self, _: pb.GetJobRequest) -> pb.Job:
        raise RuntimeError("password=hunter2")

    async def huge(self, _: pb.GetJobRequest) -> pb.Job:
        return pb.Job(output=b"x" * limits.MESSAGE_BYTES_MAX)

    async def count(self, request: pb.FeedRequest) -> AsyncIterator[pb.FeedResponse]:
        try:
            for position in range(request.after):
                yield pb.FeedResponse(position=position)
        finally:
            self.given_up += 1


def talk() -> tuple[GrpcConversation, Outlet, Handlers]:
    handlers, sink = Handlers(), Outlet()
    return GrpcConversation(handlers.table, sink, "test"), sink, handlers


async def test_refusal_is_answered_and_logged_with_its_job() -> None:
    """A refusal is returned with code, reason and message, and logged with method and job id."""
    conversation, sink, _ = talk()
    body = pb.GetJobRequest(job_id="j").SerializeToString()
    with capture_logs() as lines:
        conversation.take(pb.Call(id=3, method="Fail", body=body))
        reply = await sink.replies.get()
    assert (reply.id, reply.code, reply.reason, reply.message) == (3, "NOT_FOUND", "GONE", "not here")
    assert [(line["event"], line["method"], line["job_id"]) for line in lines] == [("refused", "Fail", "j")]


async def test_bug_is_internal_and_its_insides_stay_in_the_log() -> None:
    """A bug returns INTERNAL without details, and the log has the exception."""
    conversation, sink, _ = talk()
    with capture_logs() as lines:
        conversation.take(pb.Call(id=1, method="Break"))
        reply = await sink.replies.get()
    assert (reply.code, "hunter2" in reply.message) == ("INTERNAL", False)
    assert "hunter2" in str(lines[0]["exc_info"])


async def test_answer_that_no_message_holds_is_refused() -> None:
    """A response that exceeds the message size is refused as RESOURCE_EXHAUSTED, and the connection stays open."""
    conversation, sink, _ = talk()
    conversation.take(pb.Call(id=1, method="Huge"))
    assert (await sink.replies.get()).reason == "ANSWER_TOO_LARGE"


async def test_call_that_is_given_up_gets_no_reply() -> None:
    """A canceled call gets no reply, and the cancel of an unknown call is ignored."""
    conversation, sink, handlers = talk()
    conversation.take(pb.Call(id=1, method="Wait"))
    await asyncio.sleep(0)
    conversation.take(pb.Call(id=1, cancel=True))
    conversation.take(pb.Call(id=2, cancel=True))
    conversation.take(pb.Call(id=3, method="Fail"))
    assert ((await sink.replies.get()).id, handlers.given_up) == (3, 1)
    assert sink.replies.empty()


async def test_stream_waits_for_its_reader() -> None:
    """While the peer does not read, the server produces no more messages of a stream."""
    conversation, sink, _ = talk()
    sink.writable.clear()
    conversation.take(pb.Call(id=1, method="Count", body=pb.FeedRequest(after=3).SerializeToString()))
    for _ in range(10):
        await asyncio.sleep(0)
    assert sink.replies.empty()
    sink.writable.set()
    replies = [await sink.replies.get() for _ in range(4)]
    assert [reply.more for reply in replies] == [True, True, True, False]


async def test_end_of_a_conversation_ends_every_call() -> None:
    """When a conversation closes, the server cancels all its handlers and streams."""
    conversation, sink, handlers = talk()
    sink.writable.clear()
    conversation.take(pb.Call(id=1, method="Wait"))
    conversation.take(pb.Call(id=2, method="Count", body=pb.FeedRequest(after=3).SerializeToString()))
    for _ in range(3):
        await asyncio.sleep(0)
    before = asyncio.all_tasks()
    conversation.close()
    await asyncio.wait(before - {asyncio.current_task()})
    assert handlers.given_up == 2


async def test_stopping_conversation_completes_running_calls_and_refuses_new_ones() -> None:
    """A stopping conversation completes the running calls, refuses new ones, and calls back when it is idle."""
    conversation, sink, handlers = talk()
    idle = asyncio.Event()
    conversation.take(pb.Call(id=1, method="Wait"))
    conversation.stop(idle.set)
    conversation.take(pb.Call(id=2, method="Wait"))
    assert (await sink.replies.get()).reason == "STOPPING"
    assert not idle.is_set()
    handlers.go.set()
    await idle.wait()
    assert (await sink.replies.get()).id == 1


async def test_no_more_is_read_while_too_much_is_under_way() -> None:
    """The server stops reading above the limit of pending bytes, and resumes below it."""
    conversation, sink, handlers = talk()
    body = pb.SubmitJobsRequest(jobs=[pb.NewJob(payload=b"x" * (limits.PAYLOAD_BYTES_MAX))] * 4).SerializeToString()
    count = PENDING_BYTES_MAX // len(body) + 1
    for number in range(count):
        conversation.take(pb.Call(id=number, method="Wait", body=body))
    assert sink.holds == [True]
    handlers.go.set()
    for _ in range(count):
        await sink.replies.get()
    assert sink.holds == [True, False]
    assert count < module.CALLS_MAX
