"""Fixtures that run the conformance suite on every backend, selected by name.

The shared processes end as soon as the tests of another backend or module begin, so that they do not load the machine.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

# Before the suite is imported, so that pytest rewrites its asserts.
pytest.register_assert_rewrite("holdfast.testing.conformance")

from holdfast.testing.conformance.fixtures import place  # noqa: E402 - see above
from holdfast.testing.conformance.harness import Harness  # noqa: E402
from tests.backends.ledger_in_process import LedgerHere  # noqa: E402
from tests.backends.ledger_server import Carried, LedgerThere, Servers  # noqa: E402
from tests.backends.long_timeouts import wait_for_everything  # noqa: E402
from tests.backends.microservices import Microservices, ServiceSets  # noqa: E402
from tests.backends.monolith import Monolith, NodeSets  # noqa: E402
from tests.backends.pipeline import Pipeline, PipelineSets  # noqa: E402
from tests.backends.zookeeper import Bidders, ZooKeeperSets  # noqa: E402
from tests.e2e.preloaded_fleet import loaded_fleet_in  # noqa: E402
from tests.e2e.preloaded_prompt import LoadedProgram, loaded_program  # noqa: E402

__all__ = ["place"]

BACKENDS = (
    "ledger-disk",
    "ledger-memory",
    "ledger-grpc",
    "ledger-socket",
    "ledger-tcp",
    "microservices",
    "monolith",
    "pipeline",
    "zookeeper",
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the deadlines of clients and workers, so that a short pause of the machine fails no test."""
    wait_for_everything(monkeypatch)


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend in turn, each with all tests of a module, so that each backend is started once."""
    name: str = request.param
    return name


class Processes(NamedTuple):
    """The processes that tests share; each starts when the first test requests it."""

    servers: Servers
    services: ServiceSets
    nodes: NodeSets
    pipelines: PipelineSets
    zookeepers: ZooKeeperSets


@pytest.fixture(scope="session")
def loaded() -> Iterator[LoadedProgram]:
    """The program, loaded once for all processes; how it is loaded is tested elsewhere."""
    with loaded_program() as program:
        yield program


@pytest.fixture(scope="module")
def processes(backend: str, loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """The processes of one backend and one module; all of them end with the fixture."""
    folder = tmp_path_factory.mktemp(backend)
    with loaded_fleet_in(folder, loaded) as fleet:
        pipelines, zookeepers = PipelineSets(fleet), ZooKeeperSets(folder)
        yield Processes(Servers(fleet), ServiceSets(fleet), NodeSets(fleet), pipelines, zookeepers)
        pipelines.end()
        zookeepers.end()


def harness_named(backend: str, processes: Processes, folder: Path) -> Harness:  # noqa: PLR0911 - one for each
    """Returns a new harness for one test."""
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
    return LedgerThere(processes.servers, Carried(backend))


@pytest.fixture
def harness(backend: str, processes: Processes, tmp_path: Path) -> Harness:
    """The harness of the current backend."""
    return harness_named(backend, processes, tmp_path)
