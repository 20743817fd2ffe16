"""The layers are the folders: the path of a file determines what it may import.

The rules are data. Each rule names its files, the parts of Holdfast that they may import, and the other modules that
they may not import.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.topologies.table import NAMES as TOPOLOGIES

EVERYTHING = ("holdfast",)
IMPURE = frozenset(
    {
        *("asyncio", "datetime", "logging", "os", "pathlib", "random", "secrets", "socket", "subprocess", "threading"),
        *("time", "uuid"),
    }
)

# The type `sim`, and the flag of simulated jobs, are allowed; any other mention is about testing.
SIM_JOBS = re.compile(r"\bsimulated(?:=|\b *:)|\.simulated\b|\bsimulated (?:work|job)s?\b")


@dataclass(frozen=True)
class Rule:
    """The imports that the files under one path may have."""

    under: str
    ours: tuple[str, ...] = EVERYTHING
    not_others: frozenset[str] = frozenset()
    except_files: frozenset[str] = frozenset()


#: Modules that every layer above the core may use.
BASIS = ("clock", "core", "errors", "limits", "ports", "settings")
#: A base install has neither: clients, workers and servers of the wire run without them.
EXTRAS = frozenset({"google", "grpc"})

RULES = (
    Rule("core/", ours=("core", "errors", "limits")),
    Rule(
        "core/",
        not_others=IMPURE | {"grpc", "structlog", "uvloop"},
        # They use calendars and time zones as data, and read no clock.
        except_files=frozenset({"core/cron.py", "core/cron_days.py"}),
    ),
    Rule("errors.py", ours=()),
    Rule("limits.py", ours=()),
    Rule("ports.py", ours=("core", "errors", "limits")),
    Rule("clock.py", ours=("errors", "limits")),
    Rule("settings.py", ours=("errors", "limits", "topologies.table")),
    Rule("settings_sources.py", ours=("settings", "topologies.table")),
    Rule("proto/", ours=("proto",)),
    Rule("wire/", ours=("wire", "core", "errors", "limits", "ports")),
    Rule("wire/", not_others=EXTRAS | {"structlog", "uvloop"}),
    Rule("journal/", ours=("journal", "process.private_paths", "errors", "limits")),
    Rule("observe/", ours=("observe", "core", "errors", "limits")),
    Rule("observe/logs.py", ours=()),
    Rule("process/", ours=("process", "journal", "observe", "settings", "topologies.table", "errors", "limits")),
    Rule("process/private_paths.py", ours=("errors",)),
    Rule("postgres/", ours=("postgres", "errors", "limits")),
    Rule("ledger/", ours=("ledger", "journal", "observe", "process", *BASIS)),
    Rule(
        "ledger/",
        not_others=frozenset({"asyncio", "grpc", "uvloop"}),
        # The coordinator and its decision logic use neither; its shell and the ports on top of it use asyncio.
        except_files=frozenset(
            f"ledger/{name}.py"
            for name in (
                *("admin_api", "asyncio_shell", "coordinator_calls", "feed_api", "local_work", "service", "store"),
                *("snapshot_process", "waiters"),
            )
        ),
    ),
    # Spans begin at the submit and at the run of a job.
    Rule("worker/", ours=("worker", "observe", "process", "ports", "core", "errors", "limits")),
    Rule("client/", ours=("client", "wire", "observe.logs", "settings_sources", "__version__", *BASIS)),
    *(Rule(f"{folder}/", not_others=EXTRAS) for folder in ("client", "sdk", "worker", "server/wire", "server/http")),
    Rule("server/", ours=("server", "wire", "proto", "journal", "ledger", "observe", "process", "__version__", *BASIS)),
    Rule("server/wire/", ours=("server", "wire", "ledger", "observe", "__version__", *BASIS)),
    Rule(
        "sdk/",
        ours=(
            *("sdk", "client", "worker", "ledger.ports", "observe.logs", "observe.tracing", "process"),
            *BASIS,
        ),
    ),
    # Rows name modules as text.
    Rule("topologies/table.py", ours=("core.capabilities", "limits")),
    Rule("topologies/microservices/state/", ours=("topologies.microservices.state", "core", "errors", "limits")),
    Rule("topologies/microservices/state/", not_others=IMPURE | {"grpc", "structlog", "uvloop"}),
    # A topology imports no other topology, so that its folder can be deleted.
    *(
        Rule(
            f"topologies/{name}/",
            ours=(
                *(
                    "client",
                    "journal",
                    "ledger",
                    "observe",
                    "postgres",
                    "process",
                    "server",
                    "settings_sources",
                    "worker",
                ),
                *("cli", "proto", f"topologies.{name}", "topologies.fork_handlers", "topologies.table"),
                *("topologies.worker_process", "__version__"),
                *BASIS,
            ),
        )
        for name in TOPOLOGIES
    ),
)
# Module -> the only places that may import it. The commands of a topology are in its folder.
RESERVED = {
    "cli": ("cli/", "__main__.py", *(f"topologies/{name}/" for name in TOPOLOGIES)),
    "testing": ("testing/",),
}


def package_of(file: str) -> list[str]:
    return ["holdfast", *file.removesuffix(".py").split("/")[:-1]]


def imports(file: str, text: str) -> Iterator[str]:
    """Yields the full names of all imports of a file, at any place in it."""
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
    """Returns the imports of a file that a rule forbids."""
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
    if is_within(name, "holdfast_lab"):  # the lab is another distribution, which may be missing
        return False
    return all(file.startswith(places) for module, places in RESERVED.items() if is_within(name, f"holdfast.{module}"))


def words_about_testing(file: str, text: str) -> list[str]:
    """Returns the lines of production code that mention testing."""
    if not file.startswith(("ledger/", "journal/")):
        return []
    lines = enumerate(text.splitlines(), start=1)
    return [f"{file}:{number}" for number, line in lines if "simulat" in SIM_JOBS.sub("", line).lower()]


def sources(root: Path) -> dict[str, str]:
    package = root / "src" / "holdfast"
    return {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.py"))}


def test_every_import_stays_in_its_layer(root: Path) -> None:
    """No module imports what its folder may not import."""
    assert [breach for file, text in sources(root).items() for breach in breaches(file, text)] == []


def test_production_code_does_not_know_how_it_is_tested(root: Path) -> None:
    """The ledger and the journal do not mention the simulator, in code or in comments."""
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
        ("client/remote.py", "from holdfast.ledger.job_api import LedgerJobs"),
        ("client/remote.py", "import grpc.aio"),
        ("client/remote.py", "from holdfast.proto import holdfast_pb2"),
        ("wire/methods.py", "from holdfast.server.backend import Backend"),
        ("wire/messages.py", "from google.protobuf.message import Message"),
        ("server/backend.py", "from holdfast.client.remote import RemoteJobs"),
        ("server/wire/calls.py", "from holdfast.proto import holdfast_pb2"),
        ("worker/runtime.py", "from holdfast.wire.messages import WorkerMessage"),
        ("ports.py", "from holdfast.ledger.coordinator import Lane"),
        ("server/grpc/public_service.py", "from holdfast.topologies import backup"),
        ("topologies/pipeline/up.py", "from holdfast.topologies.zookeeper.up import serve"),
        ("topologies/microservices/state/records.py", "import asyncio"),
        ("limits.py", "from holdfast.errors import Code"),
        ("topologies/backup.py", "from holdfast_lab.check import judge"),
    ],
)
def test_forbidden_import_is_found(file: str, text: str) -> None:
    """Each kind of forbidden import is found, in any spelling."""
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
        ("client/remote.py", "from holdfast import __version__\nfrom holdfast.wire import methods"),
        ("server/wire/calls.py", "from holdfast.wire import methods"),
        ("topologies/worker_process.py", "import time, holdfast.client"),
    ],
)
def test_allowed_import_passes(file: str, text: str) -> None:
    """An import that the rules allow is not reported."""
    assert breaches(file, text) == []


def test_words_about_testing_are_told_from_simulated_work() -> None:
    """The check finds mentions of the simulator, and accepts the flag and the type of simulated jobs."""
    assert words_about_testing("journal/file.py", "# the simulator needs this") == ["journal/file.py:1"]
    assert words_about_testing("ledger/coordinator.py", "if Simulation: ...") == ["ledger/coordinator.py:1"]
    assert words_about_testing("ledger/coordinator.py", "Template(simulated=job.simulated)") == []
    assert words_about_testing("core/model.py", "# simulated clock") == []
