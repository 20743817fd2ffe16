"""Every topology in turn, one of its own for each module, without a worker: the tests are the workers."""

from collections.abc import Iterator

import pytest

from tests.contract.served import Served, Serving, Topology
from tests.e2e.fleet import Fleet
from tests.e2e.loaded import LoadedProgram, loaded_program
from tests.e2e.loaded_fleet import loaded_fleet_in
from tests.e2e.wire import Wire


@pytest.fixture(scope="session")
def loaded() -> Iterator[LoadedProgram]:
    """The program, loaded once for all processes; the contract is not about how it is loaded."""
    with loaded_program() as program:
        yield program


@pytest.fixture(scope="module")
def fleet(loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Processes that live as long as the module's tests."""
    with loaded_fleet_in(tmp_path_factory.mktemp("contract"), loaded) as fleet:
        yield fleet


@pytest.fixture(scope="module", params=list(Topology), ids=lambda topology: topology.value)
def serve(request: pytest.FixtureRequest, fleet: Fleet) -> Serving:
    """Starts the topology in question."""
    return Serving(fleet, request.param)


@pytest.fixture(scope="module")
def server(serve: Serving) -> Served:
    """The module's own; jobs that a test leaves running stay where they are for as long as the others take."""
    return serve(lease_ms=120_000, heartbeat_ms=1_000)


@pytest.fixture(scope="module")
def wire(server: Served) -> Wire:
    """A client of the module's own."""
    return server.wire
