"""The monolith in containers: six nodes on a real engine, reached through their published ports by job owner."""

from collections.abc import Iterator

import grpc
import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.wires import RoutedWire
from tests.deploy.clients import SLOTS, check_all_end, check_the_five_methods, state_of
from tests.deploy.stack import Stack
from tests.e2e.grpc_client import TERMINAL
from tests.e2e.wait_until import eventually

# The first test also waits for the image.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PORTS = [50061 + index for index in range(6)]
AWAY = 2
UNREACHABLE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


@pytest.fixture(scope="module")
def wire(monolith: Stack) -> Iterator[RoutedWire]:
    """A client of all nodes."""
    wire = RoutedWire([monolith.engine.target(port) for port in PORTS])
    yield wire
    wire.close()


def test_all_nodes_become_healthy(monolith: Stack) -> None:
    """Six nodes are healthy by their own healthchecks, and each is published only on loopback."""
    assert monolith.health() == {f"node-{index}": "healthy" for index in range(6)}
    containers = monolith.containers()
    for index, port in enumerate(PORTS):
        ports = containers[f"node-{index}"]["NetworkSettings"]["Ports"]
        assert ports == {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}


def test_contract_holds_through_the_owners(wire: RoutedWire) -> None:
    """Submit, status, result, cancel and list follow the frozen contract on the owner of each job."""
    check_the_five_methods(wire)


def test_jobs_outlive_a_disconnected_node(monolith: Stack, wire: RoutedWire) -> None:
    """A disconnected node makes only its own jobs unreachable, and has them all once it is connected again."""
    accepted = [wire.new(ms=500) for _ in range(2 * SLOTS)]
    away = f"node-{AWAY}"
    lost = [job_id for job_id in accepted if wire.owner(job_id).target.endswith(f"/{PORTS[AWAY]}.sock")]
    assert len(lost) == 2
    with monolith.disconnected(away, "nodes"):
        for job_id in lost:
            eventually(lambda job_id=job_id: state_of(wire, job_id), UNREACHABLE.__contains__)  # type: ignore[misc]
        for job_id in set(accepted).difference(lost):
            assert wire.wait_for(job_id).status == public.DONE
    monolith.wait_until_healthy()
    check_all_end(wire, accepted)


def test_jobs_outlive_all_containers(monolith: Stack, wire: RoutedWire) -> None:
    """After `down` and `up` every node has its finished and its waiting jobs."""
    done = wire.new(ms=1, size=10)
    wire.wait_for(done)
    waiting = [wire.new(ms=2_000) for _ in range(3 * SLOTS)]
    monolith.up_again()
    eventually(lambda: state_of(wire, done), TERMINAL.__contains__)
    assert wire.result(done).output_bytes == b"." * 10
    check_all_end(wire, waiting)


def test_it_goes_down_and_leaves_nothing(monolith: Stack) -> None:
    """After `down --volumes` no container, network or volume of the project is left."""
    assert monolith.leftovers()
    monolith.down()
    assert monolith.leftovers() == []
