"""Boundaries: only its own service uses the state of a domain, and services talk only over gRPC."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = Path(__file__).parents[4] / "src" / "holdfast"
SERVICES = PRODUCT / "topologies" / "microservices" / "services"

#: The state module of each owner.
STATES = {
    "job": "holdfast.topologies.microservices.state.records",
    "queue": "holdfast.topologies.microservices.state.waiting_jobs",
    "result": "holdfast.topologies.microservices.state.envelopes",
}
#: The modules of the coordinator.
COORDINATOR = frozenset(
    {
        *("coordinator_service", "dispatch", "heartbeats", "jobs_in_flight", "lease_reconciler", "lease_table"),
        *("outcomes", "queue_sweeper", "reports"),
    }
)
#: The modules that every service process is made of: they hold no state of jobs.
PROCESS = frozenset({"callers", "environment", "internal_server", "roles"})


def imports(path: Path) -> Iterator[str]:
    """Yields every module that a file may import: for `from a import b` both a and a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def users(module: str) -> set[str]:
    """Returns the service modules that import a module."""
    return {path.stem for path in SERVICES.glob("*.py") if module in imports(path)}


@pytest.mark.parametrize(("role", "module"), STATES.items())
def test_state_of_an_owner_is_touched_by_its_own_service_alone(role: str, module: str) -> None:
    """Only the service of an owner, its role and the restore import the owner's state."""
    found = users(module)
    assert f"{role}_service" in found
    assert {name for name in found if not name.startswith(f"{role}_")} == {"owner_restore"}


def test_gateway_and_worker_keep_no_state_of_jobs() -> None:
    """The gateway and the worker import neither the state of an owner nor a journal."""
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
    """The coordinator's modules import stubs and messages, but no modules of other services."""
    modules = [path for path in SERVICES.glob("*.py") if path.stem in COORDINATOR]
    assert len(modules) == len(COORDINATOR)
    for path in modules:
        package = "holdfast.topologies.microservices.services."
        others = {name.removeprefix(package).split(".")[0] for name in imports(path) if name.startswith(package)}
        known = COORDINATOR | PROCESS if path.stem == "coordinator_service" else COORDINATOR
        assert others <= known, path


def test_only_the_coordinator_judges_liveness() -> None:
    """Only the coordinator's modules use the registry of workers and the table of leases."""
    for module in ("holdfast.core.workers", "holdfast.topologies.microservices.services.lease_table"):
        assert users(module) <= COORDINATOR


def test_only_the_job_service_serves_moves() -> None:
    """Only the job service has the method that changes a status."""
    servers = {path.stem for path in SERVICES.glob("*.py") if "def TransitionJobStatus" in path.read_text()}
    assert servers == {"job_service"}
