"""HTTP between the roles: persistent connections, a deadline for every call, and errors as `HoldfastError`.

    lines = RoleConnections()
    view = await lines.ask("127.0.0.1:7001", "/queue/stats")
    made = await lines.ask("127.0.0.1:7001", "/queue/push", push, kind=ShelvedReply, deadline_s=1.0)
    raw = await lines.carry("127.0.0.1:8081", "/ports/jobs.get", packed_bytes, deadline_s=1.0)
    await lines.hold("127.0.0.1:3000", "/coordinator/presence", {"worker_id": "w-1"}, begun=on_begun)

Invariants: after `NotDeliveredError` no process has received the call, and it may be sent to another one; after any
other `UnavailableError` it may have been received. A refusal is raised as the error that the server raised. If the
server refuses this process's token, it is a `NotDeliveredError`: the call was not processed.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar, overload
from urllib.parse import urlencode

import aiohttp
import msgspec

from holdfast.errors import Code, HoldfastError, UnavailableError, error_class

T = TypeVar("T")

#: The default deadline of a call.
DEADLINE_S = 2.0
#: How long connecting may take: processes of one network respond in milliseconds, or are unavailable.
_CONNECT_S = 1.0
#: The reason of a `NotDeliveredError` that may be caused by load of this process itself.
LATE = "CONNECTION_LATE"
#: The reason of a `NotDeliveredError` that is caused by the token of this process.
REFUSED = "SERVICE_TOKEN_REFUSED"
#: Shorter than the server keeps an idle connection, so that the server does not close it during a call.
_IDLE_S = 20.0
_JSON = "application/json"
_MSGPACK = "application/msgpack"
_PROBLEM = "application/problem+json"
_ENCODER = msgspec.json.Encoder()
_PACKER = msgspec.msgpack.Encoder()
_ERROR_STATUS = HTTPStatus.BAD_REQUEST.value


class NotDeliveredError(UnavailableError):
    """The call was not delivered: it may be sent to another process, even if it is not repeatable."""


class _Problem(msgspec.Struct, frozen=True):
    code: Code
    detail: str
    reason: str = ""
    details: dict[str, str] = {}


class RoleConnections:
    """Connections to any number of roles. May be used from many tasks of one event loop concurrently."""

    def __init__(self, *, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    @overload
    async def ask(
        self, address: str, path: str, content: object = None, *, kind: type[T], deadline_s: float = DEADLINE_S
    ) -> T: ...
    @overload
    async def ask(
        self, address: str, path: str, content: object = None, *, kind: None = None, deadline_s: float = DEADLINE_S
    ) -> Any: ...  # noqa: ANN401 - any JSON value
    async def ask(
        self, address: str, path: str, content: object = None, *, kind: Any = None, deadline_s: float = DEADLINE_S
    ) -> Any:
        """Sends a GET, or a POST if there is content, both in JSON; `kind` is the type of the response."""
        if content is None:
            body = await self._call("GET", address, path, None, _JSON, deadline_s)
        else:
            body = await self._call("POST", address, path, _ENCODER.encode(content), _JSON, deadline_s)
        try:
            return msgspec.json.decode(body, type=Any if kind is None else kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _strange(address, path, str(error)) from None

    async def tell(
        self, address: str, path: str, content: object, *, kind: type[T], deadline_s: float = DEADLINE_S
    ) -> T:
        """Sends a POST of MessagePack, for large content; the response is JSON."""
        body = await self.carry(address, path, _PACKER.encode(content), deadline_s=deadline_s)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _strange(address, path, str(error)) from None

    async def carry(self, address: str, path: str, body: bytes, *, deadline_s: float = DEADLINE_S) -> bytes:
        """Sends a POST of MessagePack, and returns the body of the response without decoding it."""
        return await self._call("POST", address, path, body, _MSGPACK, deadline_s)

    async def hold(
        self,
        address: str,
        path: str,
        query: Mapping[str, str],
        *,
        begun: Callable[[], None],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Keeps a GET open whose response has no content, and returns when the server ends it.

        `begun` is called once the server has accepted it. Raises `UnavailableError` if the server did not do so within
        the deadline, or if the connection broke.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(_CONNECT_S, deadline_s))
        url = self._url(address, f"{path}?{urlencode(query)}")
        with _our_errors(address, path, deadline_s):
            async with asyncio.timeout(deadline_s) as waiting, self._open().get(url, timeout=timeout) as answer:
                if answer.status >= _ERROR_STATUS:
                    raise _refusal(address, path, answer, await answer.read())
                waiting.reschedule(None)
                begun()
                await answer.read()

    async def close(self) -> None:
        """Closes every connection; calls in progress fail, and so does every later one."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # lets the transports close

    async def _call(
        self, method: str, address: str, path: str, body: bytes | None, kind: str, deadline_s: float
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=deadline_s, sock_connect=min(_CONNECT_S, deadline_s))
        headers = {} if body is None else {"content-type": kind}
        with _our_errors(address, path, deadline_s):
            async with self._open().request(
                method, self._url(address, path), data=body, headers=headers, timeout=timeout
            ) as answer:
                received = await answer.read()
                if answer.status < _ERROR_STATUS:
                    return received
                raise _refusal(address, path, answer, received)

    def _url(self, address: str, path: str) -> str:
        return f"{'http' if self._tls is None else 'https'}://{address}{path}"

    def _open(self) -> aiohttp.ClientSession:
        """Returns the session; creates it on first use, because it belongs to the running event loop."""
        if self._is_closed:
            raise NotDeliveredError("the connections of this process are closed", reason="NOT_DELIVERED")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    # Callers limit themselves; a call must never wait for a connection that a long poll occupies.
                    limit=0,
                    keepalive_timeout=_IDLE_S,
                    ssl=True if self._tls is None else self._tls,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                auto_decompress=False,
            )
        return self._session


@contextmanager
def _our_errors(address: str, path: str, deadline_s: float) -> Iterator[None]:
    """Translates the errors of aiohttp."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        message = f"no process answers at {address}: {_words(error)}"
        reason = LATE if isinstance(error, TimeoutError) else "NOT_DELIVERED"
        raise NotDeliveredError(message, reason=reason, details={"address": address}) from error
    except TimeoutError as error:
        message = f"{address} did not answer {path} within {deadline_s:g} s"
        raise UnavailableError(message, reason="NO_ANSWER", details={"address": address}) from error
    except (aiohttp.ClientError, OSError) as error:
        message = f"the connection to {address} broke during {path}: {_words(error)}"
        raise UnavailableError(message, reason="CONNECTION_LOST", details={"address": address}) from error


def _refusal(address: str, path: str, answer: aiohttp.ClientResponse, body: bytes) -> HoldfastError:
    """Returns the error that the server raised; a response that is not a problem document is unexpected."""
    if answer.content_type != _PROBLEM:
        return _strange(address, path, f"HTTP status {answer.status}")
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _strange(address, path, str(error))
    if problem.code is Code.UNAUTHENTICATED or problem.reason == "CALLER_NOT_ALLOWED":
        message = f"{address} refuses this process: {problem.detail}; check its SERVICE_TOKEN"
        return NotDeliveredError(message, reason=REFUSED, details={"address": address})
    return error_class(problem.code)(problem.detail, reason=problem.reason, details=problem.details)


def _strange(address: str, path: str, what: str) -> UnavailableError:
    message = f"the response of {address} to {path} is not the expected one: {what[:200]}"
    return UnavailableError(message, reason="NOT_UNDERSTOOD", details={"address": address})


def _words(error: BaseException) -> str:
    return str(error)[:200] or type(error).__name__
