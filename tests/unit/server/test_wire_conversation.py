"""The server's side of a conversation over the wire, with a method table of the test."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.errors import Code, HoldfastError, InvalidArgumentError, NotFoundError, PermissionDeniedError
from holdfast.limits import BATCH_BYTES_MAX
from holdfast.server.auth.permissions import ALL_SCOPES, Caller, Scope
from holdfast.server.wire import conversation as module
from holdfast.server.wire.calls import ServedMethod
from holdfast.server.wire.conversation import PENDING_BYTES_MAX, STREAMS_MAX, WAITING_CALLS_MAX, Conversation
from holdfast.server.wire.direct_calls import Done
from holdfast.server.wire.reply_budget import REPLY_BYTES_MAX
from holdfast.wire.messages import ERROR, LAST, MORE, Reply, WireFailure, decode_failure, decode_reply, encode
from holdfast.wire.methods import OneJob


class Line:
    """Collects replies; the test controls whether it is writable."""

    def __init__(self) -> None:
        self._replies: asyncio.Queue[bytes] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self.holds: list[bool] = []
        self.closed = asyncio.Event()

    def send(self, message: bytes) -> None:
        self._replies.put_nowait(message)

    async def writable(self) -> None:
        await self._writable.wait()

    @property
    def is_writable(self) -> bool:
        return self._writable.is_set()

    def block(self) -> None:
        self._writable.clear()

    def unblock(self) -> None:
        self._writable.set()

    def hold(self, why: str, *, is_held: bool) -> None:
        self.holds.append(is_held)

    def close(self) -> None:
        self.closed.set()

    async def reply(self) -> Reply:
        return decode_reply(await self._replies.get())

    async def failure(self) -> tuple[int, WireFailure]:
        reply = await self.reply()
        assert reply.kind == ERROR
        return reply.id, decode_failure(reply.body)

    @property
    def is_empty(self) -> bool:
        return self._replies.empty()


class Handlers:
    """Methods that the test controls."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.given_up = 0
        self.begun: list[Done] = []
        #: The calls of "page" that were computed.
        self.pages: list[int] = []
        self.large = bytes(limits.PAYLOAD_BYTES_MAX)
        self.table = {
            method.name: method
            for method in (
                _method("wait", self.wait),
                _method("fail", self.fail, OneJob),
                _method("break", self.crash),
                _method("count", self.count, int, is_stream=True),
                _method("huge", self.huge),
                _method("begin", self.wait, begin=self.begin),
                _method("begin_broken", self.wait, begin=self.begin_broken),
                _method("begin_refused", self.wait, begin=self.begin_refused),
                _method("page", self.page, int, reply_bytes=_page_bytes),
                _method("settle", self.wait, begin=self.begin, reply_bytes=None, repeated_bytes=BATCH_BYTES_MAX),
                _method("list", self.list, int),
            )
        }

    async def wait(self, _: object) -> str:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return "waited"

    async def fail(self, _: object) -> None:
        raise NotFoundError("not here", reason="GONE")

    async def crash(self, _: object) -> None:
        raise RuntimeError("password=hunter2")

    async def huge(self, _: object) -> bytes:
        return b"x" * limits.MESSAGE_BYTES_MAX

    async def page(self, number: int) -> bytes:
        self.pages.append(number)
        return bytes(BATCH_BYTES_MAX)

    async def list(self, count: int) -> list[bytes]:
        return [self.large] * count

    async def count(self, last: int) -> AsyncIterator[int]:
        try:
            for number in range(last):
                yield number
        finally:
            self.given_up += 1

    def begin(self, _: object, done: Done) -> Callable[[], None]:
        self.begun.append(done)

        def give_up() -> None:
            self.given_up += 1

        return give_up

    def begin_broken(self, _: object, __: Done) -> None:
        raise RuntimeError("password=hunter2")

    def begin_refused(self, _: object, __: Done) -> None:
        raise InvalidArgumentError("no", reason="NO")


def _page_bytes(_: object) -> int:
    return BATCH_BYTES_MAX


def _method(
    name: str,
    handler: Callable[[Any], Any],
    request: Any = Any,  # noqa: ANN401 - a type expression
    **terms: Any,  # noqa: ANN401 - those of a row
) -> ServedMethod:
    return ServedMethod(name, Scope.READ, msgspec.msgpack.Decoder(request).decode, handler, **terms)


class Visitor:
    """A caller that may do nothing."""

    caller = Caller("nobody", ALL_SCOPES)

    def admit(self, scope: Scope) -> Caller:
        raise PermissionDeniedError(f"the scope {scope.value} is missing", reason="SCOPE_MISSING")

    def leave(self) -> None:
        """Does nothing."""


def talk(visit: Visitor | None = None) -> tuple[Conversation, Line, Handlers]:
    handlers, line = Handlers(), Line()
    return Conversation(handlers.table, line, "test", visit), line, handlers


def call(number: int, method: str, request: object = None) -> bytes:
    return encode((number, method, request))


async def test_refusal_is_answered_and_logged_with_its_job() -> None:
    """A refusal is returned with code, reason and message, and logged with method and job id."""
    conversation, line, _ = talk()
    with capture_logs() as lines:
        conversation.take(call(3, "fail", OneJob("j")))
        assert await line.failure() == (3, WireFailure("NOT_FOUND", "GONE", "not here"))
    assert [(line["event"], line["method"], line["job_id"]) for line in lines] == [("refused", "fail", "j")]


@pytest.mark.parametrize("method", ["break", "begin_broken"])
async def test_bug_is_internal_and_its_insides_stay_in_the_log(method: str) -> None:
    """A bug returns INTERNAL without details, and the log has the exception."""
    conversation, line, _ = talk()
    with capture_logs() as lines:
        conversation.take(call(1, method))
        _, failure = await line.failure()
    assert (failure.code, "hunter2" in failure.message) == ("INTERNAL", False)
    assert "hunter2" in str(lines[0]["exc_info"])


async def test_answer_that_no_message_holds_is_refused() -> None:
    """A response that exceeds the message size is refused as RESOURCE_EXHAUSTED, and the connection stays open."""
    conversation, line, _ = talk()
    conversation.take(call(1, "huge"))
    assert (await line.failure())[1].reason == "ANSWER_TOO_LARGE"
    assert not line.closed.is_set()


@pytest.mark.parametrize("method", ["wait", "begin"])
async def test_call_that_is_given_up_gets_no_reply(method: str) -> None:
    """A canceled call gets no reply, and the cancel of an unknown call is ignored."""
    conversation, line, handlers = talk()
    conversation.take(call(1, method))
    await asyncio.sleep(0)
    conversation.take(encode((1, "")))
    conversation.take(encode((2, "")))
    for done in handlers.begun:
        done("too late")
    conversation.take(call(3, "fail", OneJob("j")))
    assert ((await line.failure())[0], handlers.given_up) == (3, 1)
    assert line.is_empty


async def test_id_of_a_call_can_be_used_again_after_its_end() -> None:
    """A late answer to a call that was given up does not answer a newer call with the same id."""
    conversation, line, handlers = talk()
    conversation.take(call(1, "begin"))
    conversation.take(encode((1, "")))
    conversation.take(call(1, "begin"))
    first, second = handlers.begun
    first("old")
    second("new")
    assert await line.reply() == Reply(1, LAST, msgspec.Raw(encode("new")))
    assert line.is_empty


@pytest.mark.parametrize("number", [0, -1, 7], ids=["zero", "negative", "in-use"])
async def test_ambiguous_id_is_refused(number: int) -> None:
    """A call with an id that is in use or not positive is refused as a whole: its reply would be ambiguous."""
    conversation, _, __ = talk()
    conversation.take(call(7, "begin"))
    with pytest.raises(InvalidArgumentError) as caught:
        conversation.take(call(number, "begin"))
    assert caught.value.reason == "CALL_ID_IN_USE"


async def test_call_that_begins_without_a_task_is_answered_once() -> None:
    """A method that answers through a callback starts no task, and its refusal is an error of the call."""
    conversation, line, handlers = talk()
    before = asyncio.all_tasks()
    for number in (1, 2):
        conversation.take(call(number, "begin"))
    handlers.begun[0]("done")
    handlers.begun[0]("again")
    handlers.begun[1](Refusal(Code.NOT_FOUND, "GONE", "not here"))
    assert asyncio.all_tasks() == before
    assert await line.reply() == Reply(1, LAST, msgspec.Raw(encode("done")))
    assert await line.failure() == (2, WireFailure("NOT_FOUND", "GONE", "not here"))
    conversation.take(call(3, "begin_refused"))
    assert await line.failure() == (3, WireFailure("INVALID_ARGUMENT", "NO", "no"))
    assert line.is_empty


async def test_stream_waits_for_its_reader() -> None:
    """While the peer does not read, the server produces no more messages of a stream."""
    conversation, line, _ = talk()
    line.block()
    conversation.take(call(1, "count", 3))
    for _ in range(10):
        await asyncio.sleep(0)
    assert line.is_empty
    line.unblock()
    assert [(await line.reply()).kind for _ in range(4)] == [MORE, MORE, MORE, LAST]


async def test_end_of_a_conversation_ends_every_call() -> None:
    """When a conversation closes, the server cancels all its handlers and streams."""
    conversation, line, handlers = talk()
    line.block()
    conversation.take(call(1, "wait"))
    conversation.take(call(2, "count", 3))
    conversation.take(call(3, "begin"))
    for _ in range(3):
        await asyncio.sleep(0)
    running = asyncio.all_tasks() - {asyncio.current_task()}
    conversation.close()
    await asyncio.wait(running)
    assert handlers.given_up == 3
    assert line.is_empty


async def test_stopping_conversation_completes_running_calls_and_refuses_new_ones() -> None:
    """A stopping conversation completes the running calls, refuses new ones, and closes its line when it is idle."""
    conversation, line, handlers = talk()
    conversation.take(call(1, "wait"))
    conversation.stop()
    conversation.take(call(2, "wait"))
    assert (await line.failure())[1].reason == "STOPPING"
    assert not line.closed.is_set()
    handlers.go.set()
    await line.closed.wait()
    assert (await line.reply()).id == 1


async def test_idle_conversation_stops_at_once() -> None:
    """A conversation without calls closes its line as soon as the server stops."""
    conversation, line, _ = talk()
    conversation.stop()
    assert line.closed.is_set()


async def test_conversation_whose_right_ends_tells_the_reason() -> None:
    """A conversation whose token was revoked sends the error of the connection and closes."""
    conversation, line, _ = talk()
    conversation.take(call(1, "wait"))
    error: HoldfastError = PermissionDeniedError("revoked", reason="TOKEN_UNKNOWN")
    conversation.end(error)
    assert await line.failure() == (0, WireFailure("PERMISSION_DENIED", "TOKEN_UNKNOWN", "revoked"))
    assert line.closed.is_set()
    conversation.close()


async def test_call_without_its_scope_is_refused_before_it_is_decoded() -> None:
    """A call that its caller may not make is refused, whatever its request, and the handler is not called."""
    conversation, line, handlers = talk(Visitor())
    conversation.take(call(1, "begin", "not even valid"))
    conversation.take(call(2, "fail", 7))
    assert [(await line.failure())[1].reason for _ in range(2)] == ["SCOPE_MISSING"] * 2
    assert handlers.begun == []


async def test_no_more_is_read_while_too_much_is_under_way() -> None:
    """The server stops reading above the limit of pending bytes, and resumes below it."""
    conversation, line, handlers = talk()
    body = b"x" * (4 * limits.PAYLOAD_BYTES_MAX)
    count = PENDING_BYTES_MAX // len(body) + 1
    for number in range(1, count + 1):
        conversation.take(call(number, "wait", body))
    assert set(line.holds) == {True}
    handlers.go.set()
    for _ in range(count):
        await line.reply()
    assert (line.holds.count(False), line.holds[-1]) == (1, False)
    assert count < module.CALLS_MAX


# -- the memory for replies

#: The pages that may be in progress together.
PAGES = REPLY_BYTES_MAX // BATCH_BYTES_MAX


async def turns() -> None:
    """Lets the calls in progress go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_pages_are_not_computed_for_a_client_that_does_not_read() -> None:
    """Of a hundred pages, only those that the budget has room for are computed before the client reads."""
    conversation, line, handlers = talk()
    line.block()
    for number in range(1, 101):
        conversation.take(call(number, "page", number))
    await turns()
    assert handlers.pages == list(range(1, PAGES + 1))
    assert line.is_empty
    line.unblock()
    assert [(await line.reply()).id for _ in range(100)] == list(range(1, 101))
    assert line.holds == []


async def test_pages_in_progress_are_limited_while_the_client_reads() -> None:
    """The budget also limits the calls that are computed at the same time."""
    conversation, line, handlers = talk()
    for number in range(1, 101):
        conversation.take(call(number, "page", number))
    await asyncio.sleep(0)
    assert len(handlers.pages) == PAGES
    assert [(await line.reply()).id for _ in range(100)] == list(range(1, 101))
    assert not conversation._budget.reserved_bytes


async def test_canceled_calls_make_room_for_others() -> None:
    """A canceled call, computed or not, leaves neither its reply nor its reservation, and gets no reply."""
    conversation, line, handlers = talk()
    line.block()
    for number in range(1, 11):
        conversation.take(call(number, "page", number))
    await turns()
    for number in range(1, 10):
        conversation.take(encode((number, "")))
    await turns()
    assert handlers.pages == [1, 2, 3, 4, 10]
    line.unblock()
    assert (await line.reply()).id == 10
    assert line.is_empty
    assert not conversation._budget.reserved_bytes


async def test_cancels_are_read_while_few_calls_wait_for_room() -> None:
    """The server stops reading when many calls wait for room, and resumes when one of them is canceled or starts."""
    conversation, line, handlers = talk()
    line.block()
    for number in range(1, PAGES + WAITING_CALLS_MAX + 1):
        conversation.take(call(number, "page", number))
    assert line.holds == []
    for _ in range(2):
        conversation.take(call(9_999, "page", 0))
        conversation.take(encode((9_999, "")))
    assert line.holds == [True, False] * 2
    conversation.take(call(9_999, "page", 0))
    await turns()
    conversation.take(encode((1, "")))  # page 5 starts instead
    await turns()
    assert line.holds == [True, False] * 3
    assert len(handlers.pages) == PAGES + 1


async def test_calls_that_wait_for_a_job_need_no_room() -> None:
    """Many calls may wait for the end of a job, also while other calls wait for room."""
    conversation, line, handlers = talk()
    line.block()
    for number in range(1, 11):
        conversation.take(call(number, "page", number))
    for number in range(11, 1_011):
        conversation.take(call(number, "settle"))
    assert len(handlers.begun) == 1_000


async def test_replies_of_ended_jobs_are_computed_again_if_the_client_does_not_read() -> None:
    """Replies that come while the client does not read are kept up to the budget; others are computed again later."""
    conversation, line, handlers = talk()
    count = 3 * PAGES
    for number in range(1, count + 1):
        conversation.take(call(number, "settle"))
    line.block()
    for done in tuple(handlers.begun):
        done(bytes(BATCH_BYTES_MAX // 2))
    await turns()
    assert len(conversation._unsent) == 2 * PAGES - 1  # each has a few bytes more than its half
    assert conversation._budget.reserved_bytes <= REPLY_BYTES_MAX
    assert len(handlers.begun) == count
    line.unblock()
    received = [(await line.reply()).id for _ in range(2 * PAGES - 1)]
    await turns()
    while len(received) < count:
        for done in handlers.begun[count:]:
            done("again")
        received.append((await line.reply()).id)
    assert received == list(range(1, count + 1))
    assert len(handlers.begun) == 2 * count - (2 * PAGES - 1)
    assert not conversation._budget.reserved_bytes


async def test_replies_without_room_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a reply had no room, those after it are dropped without being encoded."""
    conversation, line, handlers = talk()
    for number in range(1, 101):
        conversation.take(call(number, "settle"))
    line.block()
    measured = list[int]()

    def measure(value: object) -> bytes:
        measured.append(1)
        return encode(value)

    monkeypatch.setattr(module, "encode", measure)
    for done in tuple(handlers.begun):
        done(bytes(BATCH_BYTES_MAX))
    await turns()
    assert len(measured) == PAGES
    assert len(conversation._unsent) == PAGES - 1


async def test_reply_that_cannot_be_measured_is_an_error_of_its_call() -> None:
    """A reply that cannot be encoded becomes INTERNAL, also if it had to wait."""
    conversation, line, handlers = talk()
    conversation.take(call(1, "settle"))
    line.block()
    handlers.begun[0](1 << 64)
    await turns()
    line.unblock()
    assert (await line.failure())[1].code == "INTERNAL"


async def test_list_that_fits_into_no_message_is_refused_before_it_is_encoded() -> None:
    """A long list is refused after as many of its items were encoded as a message holds."""
    conversation, line, _ = talk()
    tracemalloc.start()
    try:
        conversation.take(call(1, "list", 64))
        assert (await line.failure())[1].reason == "ANSWER_TOO_LARGE"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * limits.MESSAGE_BYTES_MAX
    conversation.take(call(2, "list", 4))
    assert (await line.reply()).kind == LAST


async def test_streams_of_a_connection_are_limited() -> None:
    """A connection has few streams, because each may have computed an item; one that ends makes room for another."""
    conversation, line, handlers = talk()
    line.block()
    for number in range(1, STREAMS_MAX + 2):
        conversation.take(call(number, "count", 3))
    assert await line.failure() == (
        STREAMS_MAX + 1,
        WireFailure(
            "RESOURCE_EXHAUSTED",
            "TOO_MANY_STREAMS",
            f"more than {STREAMS_MAX} streams are open on this connection; open another connection",
        ),
    )
    await turns()
    conversation.take(encode((1, "")))
    conversation.take(call(1, "count", 0))
    line.unblock()
    ended = [(await line.reply()).kind for _ in range(1 + 4 * (STREAMS_MAX - 1))].count(LAST)
    assert ended == STREAMS_MAX
    assert handlers.given_up == STREAMS_MAX + 1


async def test_end_of_a_conversation_drops_its_replies() -> None:
    """The end of a client that does not read drops kept replies and waiting calls, and leaves no task."""
    conversation, line, handlers = talk()
    before = asyncio.all_tasks()
    line.block()
    for number in range(1, 101):
        conversation.take(call(number, "page", number))
    await turns()
    conversation.close()
    await turns()
    assert asyncio.all_tasks() == before
    assert len(handlers.pages) == PAGES
    assert not conversation._unsent
    assert not conversation._queue
    assert not conversation._budget.reserved_bytes
