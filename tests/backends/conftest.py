"""Backends under the suite of behaviours, each by a name; a later backend adds its own.

What tests share ends as soon as another backend or another module comes: it would keep the machine busy meanwhile.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

# Before the suite is imported, so that its asserts explain themselves.
pytest.register_assert_rewrite("holdfast.testing.conformance")

from holdfast.testing.conformance.fixtures import place  # noqa: E402 - see above
from holdfast.testing.conformance.harness import Harness  # noqa: E402
from tests.backends.ledger_here import LedgerHere  # noqa: E402
from tests.backends.ledger_there import Carried, LedgerThere, Servers  # noqa: E402
from tests.backends.microservices import Microservices, ServiceSets  # noqa: E402
from tests.backends.monolith import Monolith, NodeSets  # noqa: E402
from tests.backends.patience import wait_for_everything  # noqa: E402
from tests.backends.pipeline import Pipeline, PipelineSets  # noqa: E402
from tests.backends.zookeeper import Bidders, ZooKeeperSets  # noqa: E402
from tests.e2e.loaded import LoadedProgram, loaded_program  # noqa: E402
from tests.e2e.loaded_fleet import loaded_fleet_in  # noqa: E402

__all__ = ["place"]

BACKENDS = (
    "ledger-disk",
    "ledger-memory",
    "ledger-grpc",
    "ledger-socket",
    "microservices",
    "monolith",
    "pipeline",
    "zookeeper",
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here gives up on somebody who only stands still for a moment."""
    wait_for_everything(monkeypatch)


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend in turn, each with all tests of a module, so that each is started once."""
    name: str = request.param
    return name


class Processes(NamedTuple):
    """What tests share; nothing is started before a test asks for it."""

    servers: Servers
    services: ServiceSets
    nodes: NodeSets
    pipelines: PipelineSets
    zookeepers: ZooKeeperSets


@pytest.fixture(scope="session")
def loaded() -> Iterator[LoadedProgram]:
    """The program, loaded once for all processes; tests of the ports are not about how it is loaded."""
    with loaded_program() as program:
        yield program


@pytest.fixture(scope="module")
def processes(backend: str, loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Those of one backend and one module; none is left afterwards."""
    folder = tmp_path_factory.mktemp(backend)
    with loaded_fleet_in(folder, loaded) as fleet:
        pipelines, zookeepers = PipelineSets(fleet), ZooKeeperSets(folder)
        yield Processes(Servers(fleet), ServiceSets(fleet), NodeSets(fleet), pipelines, zookeepers)
        pipelines.end()
        zookeepers.end()


def harness_named(backend: str, processes: Processes, folder: Path) -> Harness:  # noqa: PLR0911 - one for each
    """A harness of its own for one test."""
    if backend == "zookeeper":
        return Bidders(processes.zookeepers)
    if backend == "pipeline":
        return Pipeline(processes.pipelines)
    if backend == "monolith":
        return Monolith(processes.nodes)
    if backend == "microservices":
        return Microservices(processes.services)
    if backend == "ledger-disk":
        return LedgerHere(folder / "data")
    if backend == "ledger-memory":
        return LedgerHere(None)
    return LedgerThere(processes.servers, Carried.SOCKET if backend == "ledger-socket" else Carried.GRPC)


@pytest.fixture
def harness(backend: str, processes: Processes, tmp_path: Path) -> Harness:
    """That of the backend."""
    return harness_named(backend, processes, tmp_path)
