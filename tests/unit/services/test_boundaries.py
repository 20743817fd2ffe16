"""Who owns what: each domain's state is touched by its own service alone, and services meet over gRPC only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = Path(__file__).parents[3] / "src" / "holdfast"
SERVICES = PRODUCT / "topologies" / "microservices" / "services"

#: The pure state of each owner.
STATES = {
    "job": "holdfast.topologies.microservices.state.records",
    "queue": "holdfast.topologies.microservices.state.waiting_jobs",
    "result": "holdfast.topologies.microservices.state.envelopes",
}
#: The modules of the coordinator.
COORDINATOR = frozenset(
    {
        *("coordinator_service", "dispatch", "heartbeats", "jobs_in_flight", "lease_reconciler", "lease_table"),
        *("outcomes", "queue_sweeper", "reports", "role_coordinator"),
    }
)


def imports(path: Path) -> Iterator[str]:
    """Every module that a file may mean: `from a import b` speaks of a, and perhaps of a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def users(module: str) -> set[str]:
    """The service modules that import it."""
    return {path.stem for path in SERVICES.glob("*.py") if module in imports(path)}


@pytest.mark.parametrize(("role", "module"), STATES.items())
def test_state_of_an_owner_is_touched_by_its_own_service_alone(role: str, module: str) -> None:
    """Nobody writes into another's store, because nobody else can reach it; a restore makes one that nobody serves."""
    others = {name for name in users(module) if not name.startswith(f"{role}_")} - {"owner_restore"}
    assert others == {f"role_{role}"}


def test_gateway_and_worker_keep_no_state_of_jobs() -> None:
    """What serves clients and what runs jobs reach neither a state of an owner nor a journal."""
    folders = [SERVICES.parent / "backend", PRODUCT / "worker"]
    forbidden = {
        *STATES.values(),
        "holdfast.topologies.microservices.services.owner",
        "holdfast.core.state",
        "holdfast.core.ledger",
    }
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        found = forbidden.intersection(imports(path)) | {name for name in imports(path) if ".journal" in name}
        assert found == set(), path


def test_coordinator_reaches_owners_over_the_wire_only() -> None:
    """Its modules know stubs and messages, and no other service's insides."""
    modules = [path for path in SERVICES.glob("*.py") if path.stem in COORDINATOR - {"role_coordinator"}]
    assert len(modules) == len(COORDINATOR) - 1
    for path in modules:
        package = "holdfast.topologies.microservices.services."
        others = {name.removeprefix(package).split(".")[0] for name in imports(path) if name.startswith(package)}
        assert others <= COORDINATOR, path


def test_only_the_coordinator_judges_liveness() -> None:
    """The registry of workers and the table of leases are used by its modules alone."""
    for module in ("holdfast.core.workers", "holdfast.topologies.microservices.services.lease_table"):
        assert users(module) <= COORDINATOR


def test_only_the_job_service_serves_moves() -> None:
    """No other servicer has a method that changes a status."""
    servers = {path.stem for path in SERVICES.glob("*.py") if "def TransitionJobStatus" in path.read_text()}
    assert servers == {"job_service"}
