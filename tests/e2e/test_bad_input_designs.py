"""Garbage, sizes and hostile names against every service of the microservices and against a node: nothing is written.

Whoever has a token is no more trusted in what it sends than anybody else. Methods and fields come from the contracts
themselves, so that a new one cannot be forgotten.
"""

from collections.abc import Iterator

import grpc
import pytest

from holdfast.proto import taskqueue_internal_pb2 as pb
from tests.e2e.fleet import Fleet, Program
from tests.e2e.hostile import FREE, NAMES, text_fields, with_text
from tests.e2e.loaded import LoadedProgram
from tests.e2e.loaded_fleet import loaded_fleet_in
from tests.e2e.test_bad_directories import contents
from tests.e2e.test_bad_input import CLEAR, READS, UNARY, hostile_bodies, outcome
from tests.e2e.test_caller_matrix import ALLOWED, HASHES, ROWS, TOKENS, call
from tests.e2e.wire import Wire

OWNERS = ("job", "queue", "result")
OK = grpc.StatusCode.OK
#: These are lawful with any bytes that can be read: unknown fields are ignored.
READ_ONLY = frozenset({"ListJobRecords"})
#: Names that are only looked for, or of which it is only said that nobody has them.
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
    """The services behind their tokens, with one job that waits; and one node of two, with another."""

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
        """Every byte that anybody keeps."""
        folders = [self._folder / "kept" / role for role in OWNERS]
        return {str(folder): contents(folder) for folder in (*folders, self._folder / "node")}


@pytest.fixture(scope="module")
def designs(tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram) -> Iterator[Designs]:
    """One set for all questions."""
    with loaded_fleet_in(tmp_path_factory.mktemp("designs"), loaded) as fleet:
        yield Designs(fleet)


def code(wire: Wire, path: str, method: str, body: bytes) -> grpc.StatusCode:
    """How the call of somebody who may make it ended; the coordinator before the gateway, for it may do more."""
    role = min(ALLOWED[method])
    found = call(wire, path, TOKENS[role], body)
    return found.code if found else OK


def oversized() -> bytes:
    """Six megabytes in one field."""
    size = 6 << 20
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
    return b"\x0a" + length + b"a" * size


@pytest.mark.parametrize(("server", "path", "method"), ROWS, ids=[method for _, _, method in ROWS])
def test_bytes_that_are_no_request_change_nothing(designs: Designs, server: str, path: str, method: str) -> None:
    """Every internal method answers its own callers' garbage with a clear status, and every journal stays as it was."""
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
    """NUL, line ends, reversed and endless text are refused in every name, or found to be nobody's."""
    field = ".".join(way)
    kind = getattr(pb, f"{method}Request")
    for text in NAMES:
        found = code(designs.services[server], path, method, with_text(method, kind, way, text))
        assert found in CLEAR or (f"{method} {field}" in LOOKED_FOR and found == OK), text[:20]
    assert designs.kept() == designs.at_first


@pytest.mark.parametrize("path", PUBLIC)
def test_public_garbage_reaches_no_journal(designs: Designs, path: str) -> None:
    """Bytes that are no request, and too many, are refused by the gateway over services, and no owner hears of them."""
    check_garbage(designs, designs.gateway, path)


@pytest.mark.parametrize("path", UNARY)
def test_garbage_changes_no_node(designs: Designs, path: str) -> None:
    """The same of a node of several, for its clients' methods and its workers'."""
    check_garbage(designs, designs.node, path)


def check_garbage(designs: Designs, wire: Wire, path: str) -> None:
    """A clear status for each, or UNIMPLEMENTED for what this design lacks, and every byte as before."""
    for body in (*hostile_bodies(), oversized()):
        found = outcome(wire, path, body)
        assert found in CLEAR or found == grpc.StatusCode.UNIMPLEMENTED or (path in READS and found == OK), body[:20]
    assert designs.kept() == designs.at_first


def test_all_are_as_good_as_new_after_all_of_it(designs: Designs) -> None:
    """Nobody has ended or met a bug, no line of the log is endless, and both jobs wait where they waited."""
    assert all(program.is_running() for program in designs.programs)
    for program in designs.programs:
        assert program.lines("bug") == []
        assert "Traceback" not in program.log
        assert max(map(len, program.log.splitlines()), default=0) < 2_000
    assert len(designs.gateway.all_jobs()) == len(designs.node.all_jobs()) == 1
    assert [program.stop() for program in reversed(designs.programs)] == [0] * len(designs.programs)
