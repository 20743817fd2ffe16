"""Backends under the suite of behaviours, each by a name; a later backend adds its own."""

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
from tests.backends.pipeline import Pipeline, PipelineSets  # noqa: E402
from tests.backends.zookeeper import Bidders, ZooKeeperSets  # noqa: E402

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


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Server processes that tests share; none is left afterwards."""
    servers = Servers(tmp_path_factory.mktemp("servers"))
    yield servers
    servers.end()


@pytest.fixture(scope="session")
def service_sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceSets]:
    """Processes of services that tests share; none is left afterwards."""
    sets = ServiceSets(tmp_path_factory.mktemp("services"))
    yield sets
    sets.end()


@pytest.fixture(scope="session")
def node_sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeSets]:
    """Processes of nodes that tests share; none is left afterwards."""
    sets = NodeSets(tmp_path_factory.mktemp("nodes"))
    yield sets
    sets.end()


@pytest.fixture(scope="session")
def pipeline_sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipelineSets]:
    """Processes of the pipeline that tests share; none is left afterwards."""
    sets = PipelineSets(tmp_path_factory.mktemp("pipeline"))
    yield sets
    sets.end()


@pytest.fixture(scope="session")
def zookeeper_sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperSets]:
    """Servers of ZooKeeper that tests share; none is left afterwards."""
    sets = ZooKeeperSets(tmp_path_factory.mktemp("bidding"))
    yield sets
    sets.end()


class Processes(NamedTuple):
    """What tests share; nothing is started before a test asks for it."""

    servers: Servers
    services: ServiceSets
    nodes: NodeSets
    pipelines: PipelineSets
    zookeepers: ZooKeeperSets


@pytest.fixture(scope="session")
def processes(
    servers: Servers,
    service_sets: ServiceSets,
    node_sets: NodeSets,
    pipeline_sets: PipelineSets,
    zookeeper_sets: ZooKeeperSets,
) -> Processes:
    """All of them."""
    return Processes(servers, service_sets, node_sets, pipeline_sets, zookeeper_sets)


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


@pytest.fixture(params=BACKENDS)
def harness(request: pytest.FixtureRequest, processes: Processes, tmp_path: Path) -> Harness:
    """Every backend in turn."""
    return harness_named(request.param, processes, tmp_path)
