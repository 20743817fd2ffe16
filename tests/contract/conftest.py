"""Every topology in turn, started once per module: one without a worker and one with a real worker.

Jobs of the first stay QUEUED as long as the module runs. The worker of the second has a slot for every job that a
module leaves running.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.served import LEASE_MS, Served, Serving, Topology
from tests.e2e.fleet import Fleet
from tests.e2e.grpc_client import Wire
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram, loaded_program
from tests.postgres import fresh_database
from tests.zookeeper import fresh_root

SLOTS = 64


@pytest.fixture(scope="session")
def loaded() -> Iterator[LoadedProgram]:
    """The program, loaded once for all processes; how it is loaded is tested elsewhere."""
    with loaded_program() as program:
        yield program


@pytest.fixture
def fleet(tmp_path: Path, loaded: LoadedProgram) -> Iterator[Fleet]:
    """Processes of a test that names its topology."""
    with loaded_fleet_in(tmp_path, loaded) as fleet:
        yield fleet


class SharedEngines:
    """The PostgreSQL and the ZooKeeper of the test session, each started when the first test needs it."""

    def __init__(self, request: pytest.FixtureRequest, closing: contextlib.ExitStack) -> None:
        self._request = request
        self._closing = closing

    def database(self) -> str:
        postgres, template = (self._request.getfixturevalue(name) for name in ("postgres", "template"))
        return self._closing.enter_context(fresh_database(postgres, template, "contract"))

    def ensemble(self) -> str:
        hosts: str = self._request.getfixturevalue("lone_zookeeper").hosts
        return f"{hosts}{fresh_root('contract')}"


@pytest.fixture(scope="module", params=list(Topology), ids=lambda topology: topology.value)
def topology(request: pytest.FixtureRequest) -> Topology:
    """All five; a module about the calls of workers names the topologies that serve them."""
    found: Topology = request.param
    return found


@pytest.fixture(scope="module")
def serve(
    topology: Topology, loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Serving]:
    """Starts the current topology; its processes end before the next topology starts, and its databases afterwards."""
    folder = tmp_path_factory.mktemp(topology.value)
    with contextlib.ExitStack() as closing, loaded_fleet_in(folder, loaded) as fleet:
        yield Serving(fleet, topology, SharedEngines(request, closing))


@pytest.fixture(scope="module")
def server(serve: Serving) -> Served:
    """A topology without a worker."""
    return serve(lease_ms=LEASE_MS, heartbeat_ms=1_000)


@pytest.fixture(scope="module")
def wire(server: Served) -> Wire:
    """A client of the topology without a worker."""
    return server.wire


@pytest.fixture(scope="module")
def working_server(serve: Serving) -> Served:
    """A topology with a real worker."""
    return serve(lease_ms=LEASE_MS, heartbeat_ms=1_000, slots=SLOTS)


@pytest.fixture(scope="module")
def working(working_server: Served) -> Wire:
    """A client of the topology with a real worker."""
    return working_server.wire
