"""The tests that a backend skips are known, and each skip is due to a missing capability."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path

from holdfast.core.capabilities import LEDGER, MONOLITH, Capabilities, Capability
from holdfast.testing import conformance
from holdfast.testing.conformance.harness import Control, Need, lacks, needs_of
from holdfast.topologies.microservices import MICROSERVICES
from holdfast.topologies.pipeline import PIPELINE
from holdfast.topologies.table import NAMES
from holdfast.topologies.zookeeper import ZOOKEEPER
from tests.backends import test_conformance
from tests.backends.conftest import BACKENDS, Processes, harness_named
from tests.unit.test_repository import is_one_sentence


def suite() -> dict[str, object]:
    """Every test of the suite, by class and name."""
    modules = [
        importlib.import_module(f"{conformance.__name__}.{one.name}")
        for one in pkgutil.iter_modules(conformance.__path__)
    ]
    classes = {
        name: one
        for module in modules
        for name, one in vars(module).items()
        if name.startswith("Test") and inspect.isclass(one)
    }
    return {
        f"{name}.{test}": function
        for name, one in classes.items()
        for test, function in vars(one).items()
        if test.startswith("test_")
    }


#: For each backend: its declared capabilities, and the needs that its harness meets beyond them.
EXPECTED: dict[str, tuple[Capabilities, set[Need]]] = {
    "ledger-disk": (LEDGER, {Control.RESTART, Control.CLOCK}),
    "ledger-memory": (LEDGER, {Control.CLOCK}),
    "ledger-grpc": (LEDGER, {Control.RESTART}),
    "ledger-socket": (LEDGER, {Control.RESTART}),
    "ledger-tcp": (LEDGER, {Control.RESTART}),
    "microservices": (MICROSERVICES, {Control.RESTART}),
    "monolith": (MONOLITH, {Control.RESTART}),
    "pipeline": (PIPELINE, {Control.RESTART, Capability.ORDER}),
    "zookeeper": (ZOOKEEPER, {Control.RESTART}),
}


def test_backend_skips_only_tests_of_capabilities_it_lacks(
    backend: str, processes: Processes, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A backend skips exactly the tests that need a capability or control which it lacks."""
    harness = harness_named(backend, processes, tmp_path)
    skipped = {name: lacks(needs_of(test), harness) for name, test in suite().items()}
    declared, beyond = EXPECTED[backend]
    assert (harness.declared, set(harness.beyond)) == (declared, beyond)
    expected = {name for name, test in suite().items() if needs_of(test).needed - declared.present - beyond}
    assert {name for name, reason in skipped.items() if reason} == expected
    record_property("skipped", {name: skipped[name] for name in sorted(expected)})


def test_suite_is_run_on_every_topology() -> None:
    """Every topology has a harness; the embedded one has several, which are named after the ledger."""
    assert {*NAMES} - {*BACKENDS} == {"embedded"}, "write a harness, and add it to tests/backends/conftest.py"
    assert EXPECTED.keys() == {*BACKENDS}, "add its capabilities to EXPECTED"


def test_whole_suite_is_run() -> None:
    """Every class of the suite is collected here, and the suite has at least 60 tests."""
    bound = {name.partition(".")[0] for name in suite()}
    assert bound == set(test_conformance.__all__)
    assert len(suite()) >= 60


def test_every_behaviour_is_stated() -> None:
    """The docstring of every test of the suite is one sentence."""
    assert [name for name, test in suite().items() if not is_one_sentence(inspect.getdoc(test))] == []
