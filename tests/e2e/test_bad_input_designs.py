"""Garbage, oversized messages and hostile names against every microservice and a monolith node: nothing is written.

The services validate the requests of authenticated callers too. Methods and fields are taken from the contracts, so
that new ones are covered.
"""

from collections.abc import Iterator

import grpc
import pytest

from holdfast.proto import taskqueue_internal_pb2 as pb
from tests.e2e.fleet import Fleet, Program
from tests.e2e.grpc_client import Wire
from tests.e2e.hostile import FREE, NAMES, text_fields, with_text
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram
from tests.e2e.test_bad_directories import contents
from tests.e2e.test_bad_input import CLEAR, READS, UNARY, hostile_bodies, outcome
from tests.e2e.test_caller_matrix import ALLOWED, HASHES, ROWS, TOKENS, call

OWNERS = ("job", "queue", "result")
OK = grpc.StatusCode.OK
#: Methods that accept any parsable bytes, because they ignore unknown fields.
READ_ONLY = frozenset({"ListJobRecords"})
#: Name fields of lookups, which answer OK with no match.
LOOKED_FOR = frozenset(
    {
        *("ListJobRecords search.queue", "ListJobRecords search.type"),
        *("ListJobRecords search.labels.key", "ListJobRecords search.labels.value"),
        *("RemoveJobIfPresent job_id", "GetResult job_id", "ReportWorkOutcome job_id", "ReportWorkOutcome checksum"),
        *("WorkerHeartbeat running.jobs.job_id", "WorkerHeartbeat released.job_id"),
    }
)
FIELDS = [
    (server, path, method, way)
    for server, path, method in ROWS
    for service in pb.DESCRIPTOR.services_by_name.values()
    if method in service.methods_by_name
    for way in text_fields(service.methods_by_name[method].input_type)
    if ".".join(way) not in FREE
]
PUBLIC = [path for path in UNARY if "CoordinatorInternalService" not in path]


class Designs:
    """Token-protected services with one waiting job, and one node of two with another waiting job."""

    def __init__(self, fleet: Fleet) -> None:
        self._folder = fleet.folder
        self.programs: list[Program] = []
        owners = {role: self._start(fleet, role, "--data", "kept", SERVICE_TOKEN_HASHES=HASHES) for role in OWNERS}
        peers = {f"{role.upper()}_SERVICE_ADDR": address for role, address in owners.items()}
        coordinator = self._start(
            fleet, "coordinator", SERVICE_TOKEN_HASHES=HASHES, SERVICE_TOKEN=TOKENS["coordinator"], **peers
        )
        gateway = self._start(fleet, "gateway", SERVICE_TOKEN=TOKENS["gateway"], **peers)
        addresses = {**owners, "coordinator": coordinator}
        self.services = {role: fleet.wire(address) for role, address in addresses.items()}
        self.gateway = fleet.wire(gateway)
        self.gateway.new()
        node = fleet.start("node", "--index", "0", "--nodes", "2", "--slots", "0", "--port", "0", "--data", "node")
        self.programs.append(node)
        self.node = fleet.wire(node.ready()["grpc"])
        self.node.new()
        self.at_first = self.kept()

    def _start(self, fleet: Fleet, role: str, *arguments: str, **environment: str) -> str:
        program = fleet.start("service", role, *arguments, **{f"{role.upper()}_PORT": "0"}, **environment)
        self.programs.append(program)
        return str(program.ready()["grpc"])

    def kept(self) -> dict[str, object]:
        """Returns all bytes that the owners and the node have stored."""
        folders = [self._folder / "kept" / role for role in OWNERS]
        return {str(folder): contents(folder) for folder in (*folders, self._folder / "node")}


@pytest.fixture(scope="module")
def designs(tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram) -> Iterator[Designs]:
    """One set of processes for all tests of the module."""
    with loaded_fleet_in(tmp_path_factory.mktemp("designs"), loaded) as fleet:
        yield Designs(fleet)


def code(wire: Wire, path: str, method: str, body: bytes) -> grpc.StatusCode:
    """Returns the status code of a call by an allowed role; the coordinator is preferred, because it may do more."""
    role = min(ALLOWED[method])
    found = call(wire, path, TOKENS[role], body)
    return found.code if found else OK


def oversized() -> bytes:
    """Returns a message with one field of six megabytes."""
    size = 6 << 20
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
    return b"\x0a" + length + b"a" * size


@pytest.mark.parametrize(("server", "path", "method"), ROWS, ids=[method for _, _, method in ROWS])
def test_bytes_that_are_no_request_change_nothing(designs: Designs, server: str, path: str, method: str) -> None:
    """Every internal method refuses garbage from an allowed caller with a clear status, and no journal changes."""
    for body in (*hostile_bodies(), oversized()):
        found = code(designs.services[server], path, method, body)
        assert found in CLEAR or (method in READ_ONLY and found == OK), body[:20]
    assert designs.kept() == designs.at_first


@pytest.mark.parametrize(
    ("server", "path", "method", "way"), FIELDS, ids=[f"{method}-{'.'.join(way)}" for _, _, method, way in FIELDS]
)
def test_hostile_names_change_nothing(
    designs: Designs, server: str, path: str, method: str, way: tuple[str, ...]
) -> None:
    """Every internal method refuses NUL, line breaks, reversed and very long text in names, or finds no match."""
    field = ".".join(way)
    kind = getattr(pb, f"{method}Request")
    for text in NAMES:
        found = code(designs.services[server], path, method, with_text(method, kind, way, text))
        assert found in CLEAR or (f"{method} {field}" in LOOKED_FOR and found == OK), text[:20]
    assert designs.kept() == designs.at_first


@pytest.mark.parametrize("path", PUBLIC)
def test_public_garbage_reaches_no_journal(designs: Designs, path: str) -> None:
    """The gateway refuses invalid and oversized requests, and the owners store nothing."""
    check_garbage(designs, designs.gateway, path)


@pytest.mark.parametrize("path", UNARY)
def test_garbage_changes_no_node(designs: Designs, path: str) -> None:
    """A monolith node refuses invalid and oversized requests of clients and workers, and stores nothing."""
    check_garbage(designs, designs.node, path)


def check_garbage(designs: Designs, wire: Wire, path: str) -> None:
    """Checks that each body gets a clear status or UNIMPLEMENTED, and that no stored byte changes."""
    for body in (*hostile_bodies(), oversized()):
        found = outcome(wire, path, body)
        assert found in CLEAR or found == grpc.StatusCode.UNIMPLEMENTED or (path in READS and found == OK), body[:20]
    assert designs.kept() == designs.at_first


def test_all_are_as_good_as_new_after_all_of_it(designs: Designs) -> None:
    """After all garbage every process runs without a bug or a long log line, and both jobs are still there."""
    assert all(program.is_running() for program in designs.programs)
    for program in designs.programs:
        assert program.lines("bug") == []
        assert "Traceback" not in program.log
        assert max(map(len, program.log.splitlines()), default=0) < 2_000
    assert len(designs.gateway.all_jobs()) == len(designs.node.all_jobs()) == 1
    assert [program.stop() for program in reversed(designs.programs)] == [0] * len(designs.programs)
