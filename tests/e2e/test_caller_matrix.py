"""Every role and every internal method over the wire: with the right token, with a wrong one, and with none.

Methods are taken from the contracts, so that new ones are covered.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256

import grpc
import pytest
from google.protobuf.message import Message

from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.fleet import Fleet, Program
from tests.e2e.grpc_client import Refused, Wire, refusal
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram
from tests.e2e.wait_until import eventually

TOKENS = {role: f"{role}-{'t' * 32}" for role in ("gateway", "coordinator", "worker")}
STRANGER = "stranger-" + "t" * 32
HASHES = ",".join(f"{role}:{sha256(token.encode()).hexdigest()}" for role, token in TOKENS.items())
#: The caller matrix, written independently of the product's own.
ALLOWED = {
    "CreateJob": {"gateway"},
    "DeleteJobIfStatus": {"gateway"},
    "GetJobRecord": {"gateway", "coordinator"},
    "ListJobRecords": {"gateway", "coordinator"},
    "TransitionJobStatus": {"gateway", "coordinator"},
    "SetCancelRequested": {"gateway"},
    "EnqueueJob": {"gateway", "coordinator"},
    "DequeueJob": {"coordinator"},
    "RemoveJobIfPresent": {"gateway", "coordinator"},
    "StoreResult": {"gateway", "coordinator"},
    "GetResult": {"gateway"},
    "WorkerHeartbeat": {"worker"},
    "FetchWork": {"worker"},
    "ReportWorkOutcome": {"worker"},
}
SERVERS = {
    "job": "JobInternalService",
    "queue": "QueueInternalService",
    "result": "ResultInternalService",
    "coordinator": "CoordinatorInternalService",
}
#: Valid requests of methods whose permission depends on the request.
GUARDED: Mapping[str, Message] = {
    "TransitionJobStatus": pb.TransitionJobStatusRequest(expected_from_status=public.QUEUED, to_status=public.CANCELED),
    "StoreResult": pb.StoreResultRequest(terminal_status=public.CANCELED),
}
ROWS = [
    (server, f"/{pb.DESCRIPTOR.services_by_name[service].full_name}/{method.name}", method.name)
    for server, service in SERVERS.items()
    for method in pb.DESCRIPTOR.services_by_name[service].methods
]
FOREIGN = [
    f"/{service.full_name}/{method.name}"
    for file in (public.DESCRIPTOR, own.DESCRIPTOR)
    for service in file.services_by_name.values()
    for method in service.methods
]
DENIED, UNKNOWN = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
GARBAGE = b"\xff\xff\xff"


class Guarded:
    """The four services with internal callers, configured with the token hashes of those callers."""

    def __init__(self, fleet: Fleet) -> None:
        self._folder = fleet.folder
        self.programs: dict[str, Program] = {}
        for role in ("job", "queue", "result"):
            variable = f"{role.upper()}_PORT"
            arguments = ("service", role, "--data", "kept")
            self.programs[role] = fleet.start(*arguments, SERVICE_TOKEN_HASHES=HASHES, **{variable: "0"})
        peers = {f"{role.upper()}_SERVICE_ADDR": program.ready()["grpc"] for role, program in self.programs.items()}
        self.programs["coordinator"] = fleet.start(
            *("service", "coordinator"),
            SERVICE_TOKEN_HASHES=HASHES,
            SERVICE_TOKEN=TOKENS["coordinator"],
            COORDINATOR_PORT="0",
            **peers,
        )
        self.wires = {role: fleet.wire(program.ready()["grpc"]) for role, program in self.programs.items()}
        self.gateway = fleet.wire(fleet.start("service", "gateway", GATEWAY_PORT="0", **peers).ready()["grpc"])

    def kept(self, role: str) -> dict[str, bytes]:
        """Returns all bytes that an owner has stored."""
        folder = self._folder / "kept" / role
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram) -> Iterator[Guarded]:
    """One set of services for all tests of the module."""
    with loaded_fleet_in(tmp_path_factory.mktemp("guarded"), loaded) as fleet:
        yield Guarded(fleet)


def call(wire: Wire, path: str, token: str = "", body: bytes = b"") -> Refused | None:
    """Returns the refusal of the call, or None if the call succeeded."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    invoke = wire.channel.unary_unary(path, bytes, bytes)
    try:
        invoke(body, metadata=metadata, timeout=20)
    except grpc.RpcError as error:
        caught = error
        return refusal(lambda: _again(caught))
    return None


def _again(error: grpc.RpcError) -> None:
    raise error


def code(wire: Wire, path: str, token: str = "", body: bytes = b"") -> grpc.StatusCode:
    found = call(wire, path, token, body)
    return found.code if found else grpc.StatusCode.OK


def test_every_method_is_in_the_matrix() -> None:
    """Every method of the internal contracts has a row in the matrix of this test."""
    services = pb.DESCRIPTOR.services_by_name.values()
    assert {name for _, _, name in ROWS} == {method.name for service in services for method in service.methods}
    assert {name for _, _, name in ROWS} == set(ALLOWED)


@pytest.mark.parametrize(("server", "path", "method"), ROWS, ids=[name for _, _, name in ROWS])
def test_only_roles_with_the_right_are_answered(guarded: Guarded, server: str, path: str, method: str) -> None:
    """A service answers no or an unknown token UNAUTHENTICATED, another role PERMISSION_DENIED, and changes nothing."""
    wire, before = guarded.wires[server], guarded.kept(server)
    for body in (b"", GARBAGE):
        missing, strange = call(wire, path, body=body), call(wire, path, STRANGER, body)
        assert missing is not None
        assert strange is not None
        assert (missing.code, missing.reason, missing.status.code) == (UNKNOWN, "TOKEN_MISSING", UNKNOWN.value[0])
        assert (strange.code, strange.reason) == (UNKNOWN, "TOKEN_UNKNOWN")
        for role in TOKENS.keys() - ALLOWED[method]:
            denied = call(wire, path, TOKENS[role], body)
            assert denied is not None
            assert (denied.code, denied.reason, denied.info.metadata["caller"]) == (DENIED, "CALLER_NOT_ALLOWED", role)
            assert f"the {role} may not call {path}" == denied.message
    assert guarded.kept(server) == before
    right = GUARDED[method].SerializeToString() if method in GUARDED else b""
    for role in ALLOWED[method]:
        assert code(wire, path, TOKENS[role], right) not in {DENIED, UNKNOWN, grpc.StatusCode.UNIMPLEMENTED}
        assert code(wire, path, TOKENS[role], GARBAGE) == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("server", SERVERS)
def test_services_refuse_methods_outside_their_contract_to_every_token(guarded: Guarded, server: str) -> None:
    """A service refuses every method that is not part of its internal contract, with any token."""
    wire = guarded.wires[server]
    for path in (*FOREIGN, "/no.Such/Method"):
        assert code(wire, path) == UNKNOWN
        assert {code(wire, path, token) for token in TOKENS.values()} == {DENIED}


@pytest.mark.parametrize("path", [path for _, path, _ in ROWS])
def test_gateway_passes_no_internal_call_on(guarded: Guarded, path: str) -> None:
    """The gateway answers every internal method with UNIMPLEMENTED, with any token."""
    assert {code(guarded.gateway, path, token) for token in ("", *TOKENS.values())} == {grpc.StatusCode.UNIMPLEMENTED}


@pytest.mark.parametrize("server", SERVERS)
def test_health_is_open_to_all(guarded: Guarded, server: str) -> None:
    """The health check of a service needs no token."""
    assert guarded.wires[server].health() == 1


@pytest.mark.parametrize("start", [*public.JobStatus.values()])
def test_gateway_moves_jobs_from_queued_to_canceled_only(guarded: Guarded, start: int) -> None:
    """The job service allows the gateway only moves from QUEUED to CANCELED."""
    path = "/taskqueue.internal.v1.JobInternalService/TransitionJobStatus"
    for end in public.JobStatus.values():
        body = pb.TransitionJobStatusRequest(
            job_id="0190a5d2-0000-7000-8000-000000000000",
            expected_from_status=start,  # type: ignore[arg-type]
            to_status=end,  # type: ignore[arg-type]
        ).SerializeToString()
        is_denied = code(guarded.wires["job"], path, TOKENS["gateway"], body) == DENIED
        assert is_denied is not ((start, end) == (public.QUEUED, public.CANCELED))
        assert code(guarded.wires["job"], path, TOKENS["coordinator"], body) != DENIED


@pytest.mark.parametrize("status", [*public.JobStatus.values()])
def test_gateway_stores_envelopes_of_canceled_jobs_only(guarded: Guarded, status: int) -> None:
    """The result service allows the gateway only envelopes of CANCELED jobs and stores no others."""
    path = "/taskqueue.internal.v1.ResultInternalService/StoreResult"
    body = pb.StoreResultRequest(
        job_id=f"0190a5d2-0000-7000-8000-00000000000{status}",
        terminal_status=status,  # type: ignore[arg-type]
    ).SerializeToString()
    before = guarded.kept("result")
    found = call(guarded.wires["result"], path, TOKENS["gateway"], body)
    if status == public.CANCELED:
        assert found is None
    else:
        assert found is not None
        assert (found.code, found.message) == (DENIED, "the gateway stores envelopes of CANCELED jobs only")
        assert guarded.kept("result") == before


def test_refusals_are_logged_without_the_token(guarded: Guarded) -> None:
    """A service logs a refused call with method, code and reason, and never logs a token or a hash."""
    path = "/taskqueue.internal.v1.QueueInternalService/DequeueJob"
    call(guarded.wires["queue"], path, TOKENS["worker"])
    words = f"the worker may not call {path}"
    lines = eventually(
        lambda: [line for line in guarded.programs["queue"].lines("refused") if line["message"] == words]
    )
    expected = ("DequeueJob", "PERMISSION_DENIED", "queue", "CALLER_NOT_ALLOWED")
    assert {(line["method"], line["grpc_code"], line["service"], line["reason"]) for line in lines} == {expected}
    for program in guarded.programs.values():
        assert not any(token in program.log for token in (*TOKENS.values(), STRANGER, *HASHES.split(",")))
