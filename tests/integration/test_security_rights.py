"""Every method and every route with every kind of token: exactly the permitted calls are answered."""

from collections.abc import AsyncIterator, Iterator
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import pytest

from holdfast.client.access import Access
from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.wire_transport import WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.errors import Code, HoldfastError, UnauthenticatedError
from holdfast.ports import Introduction
from holdfast.proto import holdfast_pb2, holdfast_pb2_grpc, taskqueue_internal_pb2, taskqueue_public_pb2
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import OpenAccess, OpenGuard, Right, Scope
from holdfast.server.backend import Backend
from holdfast.server.grpc.guard import GuardedServer, rights
from holdfast.server.grpc.method_table import table
from holdfast.server.grpc.server import SERVICES
from holdfast.server.http.application import Application
from holdfast.server.http.routing import PUBLIC, Route
from holdfast.server.public_server import PublicServer
from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.server.wire.calls import table as wire_table
from holdfast.settings import Settings
from holdfast.topologies.microservices.gateway import Gateway
from holdfast.topologies.microservices.services.environment import GatewayEnvironment
from holdfast.wire.methods import WireMethod
from tests.integration.conftest import Start
from tests.integration.http_client import Reply, ask

FILES = (holdfast_pb2.DESCRIPTOR, taskqueue_public_pb2.DESCRIPTOR, taskqueue_internal_pb2.DESCRIPTOR)
#: Bytes that are no message of any method: an admitted call fails, and nothing happens.
NO_MESSAGE = b"\xff\xff"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
WORKERS = ("/holdfast.v1.WorkService/", "/taskqueue.internal.v1.")
HEALTH = "/grpc.health.v1.Health/Check"
#: Names the port of the wire to clients that have no token yet.
WIRE_SERVICE = "holdfast.v1.WireService"
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


class Shown(Enum):
    """The token that a caller presents."""

    NOTHING = "nothing"
    WRONG = "wrong"
    EXPIRED = "expired"
    REVOKED = "revoked"
    SUBMIT = "submit"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"

    @property
    def scope(self) -> Scope | None:
        """The scope of the token, if the token is valid."""
        return Scope(self.value) if self.value in {scope.value for scope in Scope} else None

    def may(self, right: Right) -> bool:
        """Whether a caller with this token has the right."""
        if right is OpenAccess.PUBLIC:
            return True
        if self.scope is None:
            return False
        return right is OpenAccess.CALLERS or self.scope in (right, Scope.ADMIN)


class Guarded:
    """A server with tokens."""

    def __init__(self, public_server: PublicServer, shown: dict[Shown, str], folder: Path) -> None:
        self.backend = public_server.backend
        self.grpc, self.http = public_server.addresses["grpc"], public_server.addresses["http"]
        self.shown = shown
        self._folder = folder

    def metadata(self, shown: Shown) -> tuple[tuple[str, str], ...]:
        token = self.shown[shown]
        return (("authorization", f"Bearer {token}"),) if token else ()

    async def ask(self, route: Route, shown: Shown) -> Reply:
        """Sends a request without a body, for something that does not exist."""
        token = self.shown[shown]
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        path = route.path.replace("{id}", "x").replace("{name}", "x")
        return await ask(self.http, route.method, path, headers=headers)

    def serves(self, path: str) -> bool:
        """Whether the server has methods under this path."""
        return self.backend.work is not None or not path.startswith(WORKERS)

    def journal(self) -> dict[str, bytes]:
        """All files of the server's jobs."""
        ignored = {SOCKET_NAME, "LOCK", tokens.FILE_NAME, tokens.LOCK_NAME}
        return {path.name: path.read_bytes() for path in self._folder.iterdir() if path.name not in ignored}


def tokens_in(folder: Path) -> dict[Shown, str]:
    """Creates a token of every kind."""
    path = folder / tokens.FILE_NAME
    shown = {Shown.NOTHING: "", Shown.WRONG: "hf_" + "A" * 43}
    for scope in Scope:
        shown[Shown(scope.value)] = tokens.create(path, scope.value, [scope], now_ms=1)
    shown[Shown.EXPIRED] = tokens.create(path, "expired", [Scope.ADMIN], now_ms=1, expires_at_ms=2)
    shown[Shown.REVOKED] = tokens.create(path, "revoked", [Scope.ADMIN], now_ms=1)
    tokens.revoke(path, "revoked")
    return shown


@pytest.fixture
async def ledger(start: Start, tmp_path: Path) -> Guarded:
    """A ledger server, which has every capability."""
    folder = tmp_path / "data"
    shown = tokens_in(folder)
    server = await start(no_http=False, http_port=0, reflection=True)
    await server.admin.stats()  # answered when the event of the start is durable
    return Guarded(server.public_server, shown, folder)


@pytest.fixture(params=["ledger", "services"])
async def guarded(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> AsyncIterator[Guarded]:
    """The ledger server, and a gateway whose services are down: it checks tokens before it calls them."""
    folder = tmp_path / "data"
    shown = tokens_in(folder)
    if request.param == "ledger":
        server = await start(no_http=False, http_port=0, reflection=True)
        await server.admin.stats()  # answered when the event of the start is durable
        yield Guarded(server.public_server, shown, folder)
        return
    nowhere: Any = {f"{owner}_address": "127.0.0.1:1" for owner in ("job", "queue", "result")}
    gateway = Gateway(GatewayEnvironment(port=0, http_port=0, **nowhere), Settings(data=str(folder), reflection=True))
    await gateway.start("127.0.0.1")
    yield Guarded(gateway.public_server, shown, folder)
    await gateway.stop()


def methods() -> Iterator[Any]:
    """Every method of Holdfast's services, from the descriptors."""
    for file in FILES:
        for service in file.services_by_name.values():
            if service.full_name in (*SERVICES, WIRE_SERVICE):
                yield from service.methods


def path_of(method: Any) -> str:  # noqa: ANN401 - a descriptor
    return f"/{method.containing_service.full_name}/{method.name}"


async def code_of(channel: Any, path: str, metadata: Any) -> grpc.StatusCode:  # noqa: ANN401 - the stubs require more
    """The status of a unary call with an invalid message, which is sent with the call.

    gRPC turns a refusal into INTERNAL if a message is written after it.
    """
    call = channel.unary_unary(path)(NO_MESSAGE, metadata=metadata, timeout=30)
    code: grpc.StatusCode = await call.code()
    return code


async def test_every_method_asks_for_its_scope(guarded: Guarded) -> None:
    """Over gRPC a method answers exactly the tokens with its scope, and refused calls do not change the journal."""
    before = guarded.journal()
    known = rights(table(guarded.backend))
    async with grpc.aio.insecure_channel(guarded.grpc) as channel:
        for path in (*map(path_of, methods()), REFLECTION, HEALTH):
            for shown in Shown:
                code = await code_of(channel, path, guarded.metadata(shown))
                if shown.may(known[path] if guarded.serves(path) else OpenAccess.CALLERS):
                    assert code not in {UNAUTHENTICATED, DENIED}, (path, shown)
                else:
                    assert code is (UNAUTHENTICATED if shown.scope is None else DENIED), (path, shown)
    assert guarded.journal() == before


async def test_every_call_of_a_conversation_asks_for_its_scope(guarded: Guarded) -> None:
    """Each call of a conversation needs its own scope."""
    before = guarded.journal()
    methods_by_name = table(guarded.backend)
    async with grpc.aio.insecure_channel(guarded.grpc) as channel:
        for shown in Shown:
            if shown.scope is None:
                continue
            stub: Any = holdfast_pb2_grpc.JobServiceStub(channel)
            call = stub.Converse(metadata=guarded.metadata(shown), timeout=30)
            for number, (name, method) in enumerate(methods_by_name.items(), start=1):
                await call.write(holdfast_pb2.Call(id=number, method=name, body=NO_MESSAGE))
                reply = await call.read()
                expected = "INVALID_ARGUMENT" if shown.may(method.scope) else "PERMISSION_DENIED"
                assert (reply.id, reply.code) == (number, expected), (name, shown)
            call.cancel()
    assert guarded.journal() == before


async def test_every_call_over_the_wire_asks_for_its_scope(guarded: Guarded) -> None:
    """Over the wire each call needs its own scope, and a connection without a valid token is refused."""
    before = guarded.journal()
    methods_by_name = wire_table(guarded.backend)
    for shown in Shown:
        endpoint = TcpEndpoint(guarded.http, Access(token=guarded.shown[shown]))
        if shown.scope is None:
            with pytest.raises(UnauthenticatedError):
                await WireTransport.connect(endpoint)
            continue
        carrier = await WireTransport.connect(endpoint)
        for name, method in methods_by_name.items():
            wrong: WireMethod[str, None] = WireMethod(name, str, None)
            with pytest.raises(HoldfastError) as caught:
                await carrier.call(wrong, "no array", None)
            expected = Code.INVALID_ARGUMENT if shown.may(method.scope) else Code.PERMISSION_DENIED
            assert caught.value.code is expected, (name, shown)
        await carrier.close()
    assert guarded.journal() == before


async def test_session_of_a_worker_over_the_wire_needs_the_scope_of_workers(guarded: Guarded) -> None:
    """Over the wire only a token with the scope `work` opens the session of a worker, if the server has work."""
    for shown in Shown:
        work = WireWork(TcpEndpoint(guarded.http, Access(token=guarded.shown[shown])))
        if shown.may(Scope.WORK) and guarded.backend.work is not None:
            await (await work.open(Introduction("w", frozenset({"brew"})))).close()
            continue
        with pytest.raises(HoldfastError) as caught:
            await work.open(Introduction("w", frozenset({"brew"})))
        refused = Code.UNAUTHENTICATED if shown.scope is None else Code.PERMISSION_DENIED
        assert caught.value.code is (Code.UNIMPLEMENTED if shown.may(Scope.WORK) else refused), shown


async def test_every_route_asks_for_its_scope(guarded: Guarded) -> None:
    """Over HTTP a route answers exactly the tokens with its scope, others get 401 or 403, and no response is cached."""
    before = guarded.journal()
    # The handlers of sessions check tokens themselves; the tests of the browser login cover them.
    routes = [route for route in Application(guarded.backend).router.routes if route.tag != "session"]
    assert len(routes) > 25
    for route, shown in product(routes, Shown):
        if not shown.may(route.scope):
            _check_refusal(await guarded.ask(route, shown), shown)
    assert guarded.journal() == before
    for route, shown in product(routes, Shown):
        if shown.may(route.scope):
            reply = await guarded.ask(route, shown)
            assert reply.status not in {401, 403}, (route.path, shown)
            assert route.scope is PUBLIC or reply.headers["cache-control"] == "no-store", route.path


def _check_refusal(reply: Reply, shown: Shown) -> None:
    if shown.scope is None:
        assert (reply.status, reply.headers["www-authenticate"]) == (401, 'Bearer realm="holdfast"')
        assert reply.reason.startswith("TOKEN_")
    else:
        assert (reply.status, reply.reason) == (403, "SCOPE_MISSING")
    assert reply.headers["cache-control"] == "no-store"


async def test_strangers_do_not_learn_which_methods_there_are(guarded: Guarded) -> None:
    """A caller without a valid token gets UNAUTHENTICATED for an unknown method, and one with a token UNIMPLEMENTED."""
    async with grpc.aio.insecure_channel(guarded.grpc) as channel:
        for path in ("/holdfast.v1.JobService/Nothing", "/nothing/Nothing", "/x"):
            assert await code_of(channel, path, guarded.metadata(Shown.WRONG)) is UNAUTHENTICATED
            unknown = await code_of(channel, path, guarded.metadata(Shown.WORK))
            assert unknown is grpc.StatusCode.UNIMPLEMENTED


def test_table_of_rights_is_the_descriptors() -> None:
    """The table of rights has a scope for every method of the descriptors and for no other."""
    known = rights(table(_no_backend()))
    ours = {path for path in known if not path.startswith("/grpc.")}
    assert ours == {path_of(method) for method in methods()}


async def test_method_without_a_scope_cannot_be_served() -> None:
    """A server with a method without a scope does not start."""

    async def handler(_: object, __: object) -> None:
        raise AssertionError("the method was called")

    server = GuardedServer(grpc.aio.server(), OpenGuard(), rights(table(_no_backend())))
    rows = {"New": grpc.unary_unary_rpc_method_handler(handler)}
    with pytest.raises(TypeError, match="names no scope"):
        server.add_registered_method_handlers("holdfast.v1.JobService", rows)


def test_wire_has_every_method_of_holdfast_v1() -> None:
    """Every call of `holdfast.v1` has its methods on the wire, which need the same scope, and there are no others."""
    wire = {name: method.scope for name, method in wire_table(_no_backend()).items()}
    calls = {name: method.scope for name, method in table(_no_backend()).items()}
    assert {name: calls[call] for call, names in ON_THE_WIRE.items() for name in names} == wire
    assert ON_THE_WIRE.keys() == calls.keys()


ON_THE_WIRE = {
    "JobService/SubmitJobs": ("jobs.submit",),
    "JobService/FindJobs": ("jobs.find",),
    "JobService/GetJob": ("jobs.get", "jobs.result", "jobs.payload"),
    "JobService/AwaitJob": ("jobs.settled",),
    "JobService/WatchJob": ("jobs.watch",),
    "JobService/CancelJob": ("jobs.cancel",),
    "JobService/RetryJob": ("jobs.retry",),
    "JobService/GetHistory": ("jobs.history",),
    "JobService/ExplainJob": ("jobs.explain",),
    "JobService/Feed": ("feed",),
    "AdminService/GetCapabilities": ("capabilities",),
    "AdminService/GetStats": ("admin.stats",),
    "AdminService/ListQueues": ("admin.queues",),
    "AdminService/SetQueueMode": ("admin.set_queue_mode",),
    "AdminService/PurgeQueue": ("admin.purge",),
    "AdminService/ListWorkers": ("admin.workers",),
    "AdminService/DrainWorker": ("admin.drain_worker",),
    "ScheduleService/SetSchedule": ("schedules.set",),
    "ScheduleService/GetSchedule": ("schedules.get",),
    "ScheduleService/ListSchedules": ("schedules.all",),
    "ScheduleService/DeleteSchedule": ("schedules.delete",),
    "ScheduleService/PauseSchedule": ("schedules.pause",),
    "ScheduleService/TriggerSchedule": ("schedules.trigger",),
    "ScheduleService/PreviewSchedule": ("schedules.preview",),
}


def test_both_protocols_mean_the_same() -> None:
    """Equivalent gRPC methods and HTTP routes need the same scope."""
    calls = {name: method.scope for name, method in table(_no_backend()).items()}
    routes = {f"{route.method} {route.path}": route.scope for route in Application(_no_backend()).router.routes}
    for call, route in SAME.items():
        assert calls[call] is routes[route], (call, route)


SAME = {
    "JobService/SubmitJobs": "POST /api/v1/jobs",
    "JobService/FindJobs": "GET /api/v1/jobs",
    "JobService/GetJob": "GET /api/v1/jobs/{id}",
    "JobService/CancelJob": "POST /api/v1/jobs/{id}/cancel",
    "JobService/RetryJob": "POST /api/v1/jobs/{id}/retry",
    "JobService/GetHistory": "GET /api/v1/jobs/{id}/history",
    "JobService/ExplainJob": "GET /api/v1/jobs/{id}/why",
    "JobService/Feed": "GET /api/v1/events",
    "AdminService/GetStats": "GET /api/v1/stats",
    "AdminService/ListQueues": "GET /api/v1/queues",
    "AdminService/SetQueueMode": "POST /api/v1/queues/{name}/pause",
    "AdminService/PurgeQueue": "POST /api/v1/queues/{name}/purge",
    "AdminService/ListWorkers": "GET /api/v1/workers",
    "AdminService/DrainWorker": "POST /api/v1/workers/{id}/drain",
    "ScheduleService/SetSchedule": "PUT /api/v1/schedules/{name}",
    "ScheduleService/GetSchedule": "GET /api/v1/schedules/{name}",
    "ScheduleService/ListSchedules": "GET /api/v1/schedules",
    "ScheduleService/DeleteSchedule": "DELETE /api/v1/schedules/{name}",
    "ScheduleService/PauseSchedule": "POST /api/v1/schedules/{name}/pause",
    "ScheduleService/TriggerSchedule": "POST /api/v1/schedules/{name}/trigger",
    "ScheduleService/PreviewSchedule": "POST /api/v1/schedule-preview",
}


class _Nobody:
    """Jobs whose methods are never called."""

    def __getattr__(self, name: str) -> None:
        return None


def _no_backend() -> Any:  # noqa: ANN401 - never called
    nobody: Any = _Nobody()
    return Backend(nobody)


async def test_schedule_in_the_short_form_needs_the_right_to_schedules(ledger: Guarded) -> None:
    """A token of the scope `submit` cannot create a schedule with the short form, and nothing is written."""
    body = {"type": "cron", "job_type": "echo", "cron_expr": "* * * * *"}
    before = ledger.journal()
    address = ledger.http
    headers = {"Authorization": f"Bearer {ledger.shown[Shown.SUBMIT]}"}
    refused = await ask(address, "POST", "/api/jobs", body, headers)
    assert (refused.status, refused.reason) == (403, "SCOPE_MISSING")
    assert before
    assert ledger.journal() == before
    headers = {"Authorization": f"Bearer {ledger.shown[Shown.ADMIN]}"}
    assert (await ask(address, "POST", "/api/jobs", body, headers)).status in {200, 201, 202}
    assert ledger.journal() != before
