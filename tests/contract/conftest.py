"""One real server a module, without a worker: the tests are the workers."""

from collections.abc import Iterator

import pytest

from tests.e2e.fleet import Fleet, Program, fleet_in
from tests.e2e.wire import Wire


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Processes that live as long as the module's tests."""
    with fleet_in(tmp_path_factory.mktemp("contract")) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def serving(fleet: Fleet) -> tuple[Program, Wire]:
    """The module's server and a client of it."""
    return fleet.server()


@pytest.fixture(scope="module")
def server(serving: tuple[Program, Wire]) -> Program:
    """The module's server."""
    return serving[0]


@pytest.fixture(scope="module")
def wire(serving: tuple[Program, Wire]) -> Wire:
    """A client of the module's server."""
    return serving[1]
