"""The layers are the folders: from a path you can tell what a file may import.

The rules are data. Each names the files it speaks of, what of ours they may import, and what of others they
may not.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

EVERYTHING = ("holdfast",)
IMPURE = frozenset(
    {
        *("asyncio", "datetime", "logging", "os", "pathlib", "random", "secrets", "socket", "subprocess", "threading"),
        *("time", "uuid"),
    }
)

# A job of the type `sim`, or the flag that marks one, is meant; anything else speaks of how it is tested.
SIM_JOBS = re.compile(r"\bsimulated(?:=|\b *:)|\.simulated\b|\bsimulated (?:work|job)s?\b")


@dataclass(frozen=True)
class Rule:
    """What the files under one path may import."""

    under: str
    ours: tuple[str, ...] = EVERYTHING
    not_others: frozenset[str] = frozenset()
    except_files: frozenset[str] = frozenset()


RULES = (
    Rule("core/", ours=("core", "errors", "limits")),
    Rule(
        "core/",
        not_others=IMPURE | {"grpc", "structlog", "uvloop"},
        # Calendars and time zones are data; no clock is read there.
        except_files=frozenset({"core/cron.py", "core/cron_days.py"}),
    ),
    Rule("journal/", ours=("journal", "private_paths", "errors", "limits")),
    Rule("coordinator/", ours=("core", "journal", "coordinator", "clock", "settings", "errors", "limits")),
    Rule(
        "coordinator/",
        not_others=frozenset({"asyncio", "grpc", "uvloop"}),
        except_files=frozenset({"ledger/asyncio_shell.py"}),
    ),
    Rule("errors.py", ours=()),
    Rule("limits.py", ours=()),
    Rule("logs.py", ours=()),
    Rule("private_paths.py", ours=("errors",)),
    Rule("clock.py", ours=("errors", "limits")),
    Rule("settings.py", ours=("errors", "limits")),
    Rule("settings_sources.py", ours=("settings",)),
    Rule("backends/", ours=("backends", "client", "clock", "coordinator", "core", "proto", "errors", "limits", "logs")),
    Rule("backends/ledger/", ours=("backends", "coordinator", "core", "errors", "limits")),
    Rule("backends/microservices/", ours=("backends", "client", "clock", "core", "proto", "errors", "limits", "logs")),
    Rule("backends/pipeline/", ours=("backends", "core", "errors", "limits", "logs")),
    Rule("client/submit_batcher.py", ours=("backends.ports", "core", "errors", "limits")),
    Rule("ports.py", ours=("core", "errors", "limits")),
    Rule(
        "gateway/",
        ours=(
            *("gateway", "backends", "clock", "coordinator", "core", "private_paths", "proto"),
            *("errors", "limits", "logs"),
        ),
    ),
    Rule("client/", ours=("client", "backends.joining", "backends.ports", "core", "proto", "errors", "limits")),
    # Spans begin where jobs are submitted and where they run: of `observe`, both know them and nothing else.
    Rule("worker/", ours=("worker", "backends.ports", "core", "observe.tracing", "errors", "limits", "logs")),
    Rule(
        "sdk/",
        ours=(
            "sdk",
            "topology",
            "worker",
            "backends.ports",
            "coordinator.ports",
            "core",
            "observe.tracing",
            "settings",
            "settings_sources",
            "errors",
            "limits",
            "logs",
        ),
    ),
    Rule(
        "services/",
        ours=(
            *("services", "gateway.checks", "gateway.grpc", "gateway.service_tokens", "core", "journal"),
            *(
                "coordinator.asyncio_shell",
                "coordinator.log_clock",
                "coordinator.ports",
                "coordinator.timekeeper",
                "backends",
                "client",
                "private_paths",
                "proto",
                "clock",
                "errors",
                "limits",
                "logs",
            ),
        ),
    ),
    Rule(
        "pipeline/",
        ours=(
            *("pipeline", "gateway.backend", "gateway.http", "gateway.guarding", "gateway.refusing"),
            "gateway.service_tokens",
            *("backends.pipeline", "backends.ports", "core", "observe", "clock", "errors", "limits", "logs"),
        ),
    ),
    Rule("observe/", ours=("core", "observe", "errors", "limits")),
    Rule("proto/", ours=("proto",)),
)
# module -> the only places that may import it
# The arenas of a torture ask for the second opinion on journals, which is there for tests; programs that measure faults
# run on the simulator's clock and disk.
RESERVED = {"cli": ("cli/", "__main__.py"), "testing": ("testing/", "lab/torture/arenas/", "lab/faults/")}


def package_of(file: str) -> list[str]:
    return ["holdfast", *file.removesuffix(".py").split("/")[:-1]]


def imports(file: str, text: str) -> Iterator[str]:
    """Full names of everything that the file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute_module(file, node)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def absolute_module(file: str, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = package_of(file)
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def is_within(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"{module}.")


def breaches(file: str, text: str) -> list[str]:
    """Everything in the file that a rule forbids."""
    found = []
    for name in imports(file, text):
        allowed = is_allowed_by_rules(file, name) and is_allowed_by_reservation(file, name)
        if not allowed:
            found.append(f"{file} imports {name}")
    return found


def is_allowed_by_rules(file: str, name: str) -> bool:
    rules = [rule for rule in RULES if file.startswith(rule.under) and file not in rule.except_files]
    return all(rule_allows(rule, name) for rule in rules)


def rule_allows(rule: Rule, name: str) -> bool:
    if is_within(name, "holdfast"):
        return rule.ours == EVERYTHING or any(is_within(name, f"holdfast.{part}") for part in rule.ours)
    return name.split(".", 1)[0] not in rule.not_others


def is_allowed_by_reservation(file: str, name: str) -> bool:
    return all(file.startswith(places) for module, places in RESERVED.items() if is_within(name, f"holdfast.{module}"))


def words_about_testing(file: str, text: str) -> list[str]:
    """Lines of production code that know how they are tested."""
    if not file.startswith(("coordinator/", "journal/")):
        return []
    lines = enumerate(text.splitlines(), start=1)
    return [f"{file}:{number}" for number, line in lines if "simulat" in SIM_JOBS.sub("", line).lower()]


def sources(root: Path) -> dict[str, str]:
    package = root / "src" / "holdfast"
    return {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.py"))}


def test_every_import_stays_in_its_layer(root: Path) -> None:
    """No module imports what its folder may not."""
    assert [breach for file, text in sources(root).items() for breach in breaches(file, text)] == []


def test_production_code_does_not_know_how_it_is_tested(root: Path) -> None:
    """Coordinator and journal do not speak of the simulator, in code or in comments."""
    assert [line for file, text in sources(root).items() for line in words_about_testing(file, text)] == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("core/leases.py", "import time"),
        ("core/leases.py", "from asyncio import Queue"),
        ("core/leases.py", "def f():\n    import os.path"),
        ("core/leases.py", "from holdfast import settings"),
        ("core/leases.py", "from .. import journal"),
        ("core/leases.py", "from ..clock import Clock"),
        ("journal/file.py", "from holdfast.core.events import Event"),
        ("ledger/coordinator.py", "import asyncio"),
        ("ledger/coordinator.py", "from holdfast.server import grpc"),
        ("ledger/asyncio_shell.py", "import holdfast.server.grpc"),
        ("worker/runtime.py", "from holdfast.cli import main"),
        ("worker/runtime.py", "import holdfast.testing"),
        ("worker/runtime.py", "from holdfast.ledger.coordinator import Lane"),
        ("client/work_stream.py", "from holdfast.backends.ledger import LedgerJobs"),
        ("ports.py", "from holdfast.ledger.coordinator import Lane"),
        ("server/grpc/public_service.py", "from holdfast.topologies import ledger_server"),
        ("limits.py", "from holdfast.errors import Code"),
    ],
)
def test_forbidden_import_is_found(file: str, text: str) -> None:
    """Each kind of breach is noticed, however it is spelt."""
    assert len(breaches(file, text)) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("core/leases.py", "import heapq\nfrom holdfast.core import model\nfrom holdfast import limits"),
        ("core/leases.py", "from . import model\nfrom .model import Job\nfrom ..errors import Code"),
        ("ledger/asyncio_shell.py", "import asyncio\nfrom holdfast.core import ledger"),
        ("__main__.py", "from holdfast.cli import main"),
        ("cli/up.py", "from holdfast.cli import main"),
        ("testing/disk.py", "from holdfast.testing import clock"),
        ("worker/runtime.py", "import time\nfrom holdfast.ports import WorkApi"),
        ("topologies/worker_process.py", "import time, holdfast.client"),
    ],
)
def test_allowed_import_passes(file: str, text: str) -> None:
    """What the rules allow is not reported."""
    assert breaches(file, text) == []


def test_words_about_testing_are_told_from_simulated_work() -> None:
    """The simulator is found by name; the flag and the kind of job are let through."""
    assert words_about_testing("journal/file.py", "# the simulator needs this") == ["journal/file.py:1"]
    assert words_about_testing("ledger/coordinator.py", "if Simulation: ...") == ["ledger/coordinator.py:1"]
    assert words_about_testing("ledger/coordinator.py", "Template(simulated=job.simulated)") == []
    assert words_about_testing("core/model.py", "# simulated clock") == []
