"""Generates docs/reference.md from the code: SDK, commands, settings, exit codes, status codes, metrics, limits."""

import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import msgspec
from prometheus_client.core import Metric

from holdfast import limits
from holdfast.errors import MAPPED, ExitCode
from holdfast.observe.exposition import MeterCollector, ProcessVitals, of_queues
from holdfast.observe.metrics import OTHER, SERIES_MAX, Meter
from holdfast.settings import ClientSettings, Settings, WorkerSettings, fields_of, purpose, wanted
from holdfast.topologies.zookeeper import ensemble_limits
from scripts.command_reference import commands
from scripts.python_reference import python

_EXIT_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.JOB_FAILED: "the awaited job failed or was canceled; `lab check` found a broken guarantee",
    ExitCode.USAGE: "the command, an option or a setting is wrong",
    ExitCode.UNREACHABLE: "no server responded in time",
    ExitCode.REFUSED: "the server, the directory or the system refused",
    ExitCode.UNKNOWN: "`lab check` found no violation, but not everything was tested",
}
_LIMIT = re.compile(r"^([A-Z][A-Z0-9_]+): Final = ")


def to_markdown() -> str:
    """Returns the whole page."""
    return "\n".join(
        [
            "# Reference",
            "",
            "Generated from the code by `make docs`. Every command has `--help`.",
            "",
            *python(),
            *commands(),
            *_settings(),
            *_exit_codes(),
            *_status_codes(),
            *_metrics(),
            *_directory(),
            *_limits(),
        ]
    )


def _settings() -> list[str]:
    return [
        "## Settings",
        "",
        "A flag (`--lease-ms`) overrides the environment (`HOLDFAST_LEASE_MS`), which overrides `holdfast.toml` or",
        "`[tool.holdfast]` in `pyproject.toml`, which overrides the default. One file serves all commands. Unknown",
        "names are refused; all problems are reported together. `holdfast config show --origin` shows the result.",
        "",
        *_table("`holdfast up` and `holdfast server`", Settings),
        *_table("`holdfast worker`", WorkerSettings),
        *_table("Commands that call a server", ClientSettings),
    ]


def _table(title: str, kind: type[msgspec.Struct]) -> list[str]:
    fields = fields_of(kind)
    rows = [
        f"| `{name}` | {purpose(name, fields)} | {wanted(name, fields)} | {_default(field.default)} |"
        for name, field in fields.items()
    ]
    return [f"### {title}", "", "| setting | purpose | values | default |", "|---|---|---|---|", *rows, ""]


def _default(value: object) -> str:
    return "" if value == "" else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _exit_codes() -> list[str]:
    rows = [f"| {code.value} | {meaning} |" for code, meaning in _EXIT_MEANINGS.items()]
    return [
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        *rows,
        "| 130 | interrupted by Ctrl-C, or a confirmation was answered with no |",
        "| 141 | the reader of the output closed the pipe (`\\| head`) |",
        "| 70 | the journal of a running server failed (durable data is on disk; start it again), or a bug |",
        "",
    ]


def _status_codes() -> list[str]:
    rows = [
        f"| {code.value} | {row.grpc_status} | {row.http_status} | {row.exit_code.value}"
        f" | {'yes' if row.retryable else 'no'} |"
        for code, row in MAPPED.items()
    ]
    return [
        "## Status codes",
        "",
        "Every gRPC error carries `google.rpc.Status` with an `ErrorInfo`, whose `reason` is for programs.",
        "",
        "| code | gRPC | HTTP | exit | retryable |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _metrics() -> list[str]:
    collector = MeterCollector(Meter(), lambda: ProcessVitals(0, 0), {"version": ""})
    families = [*collector.collect(), *of_queues([])]
    rows = [f"| `{_sample(family)}` | {family.type} | {family.documentation} |" for family in families]
    return [
        "## Metrics",
        "",
        "A server has `GET /metrics` for Prometheus, `/livez` (200 while the process runs) and `/readyz` (503 while it",
        "starts or drains) on its HTTP port, and with `--metrics-port` on a separate port. Beyond",
        f"{SERIES_MAX} pairs of queue and type, jobs are counted under `{OTHER}`. The standard `process_*` exist too.",
        "",
        "| metric | kind | meaning |",
        "|---|---|---|",
        *rows,
        "",
    ]


def _sample(family: Metric) -> str:
    """Returns the name as in a query, with its labels."""
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    labels: Sequence[str] = getattr(family, "_labelnames", ())
    return f"{family.name}{suffix}{'{' + ','.join(labels) + '}' if labels else ''}"


def _directory() -> list[str]:
    return [
        "## The data directory",
        "",
        "| file | contents |",
        "|---|---|",
        "| `holdfast.sock` | the socket for processes of this machine; exists while the server runs |",
        "| `LOCK` | locked by the server that has the directory open; contains its process id |",
        "| `CLOCK` | the clocks at the last start; the next start uses them to check a wall clock that is far ahead |",
        "| `MANIFEST` | the identity of the journal, and a position that is known to be durable |",
        "| `<position>-<epoch>.seg` | the journal: every event since that position |",
        "| `snapshot-<position>.snap` | the state at that position, so that a start does not read the whole journal |",
        "| `torn-<position>-<epoch>.bak` | a copy of an unfinished write that a start has cut off; may be deleted |",
        "| `pin-…` | a process reads the journal from that position on |",
        "| `tokens.json`, `tokens.lock` | hashes of the tokens that the server accepts, if there are any |",
        "| `NODE` | the index and the number of nodes, for a directory of a monolith |",
        "| `BACKUP`, `RESTORING` | the directory is a backup, or a restore into it has not ended: no server opens it |",
        "",
        "`holdfast journal backup` copies the directory beside a running server and verifies the copy: see",
        "[back up and restore](operations/back-up.md).",
        "The format is described in [internals/journal-format.md](internals/journal-format.md).",
        "",
    ]


def _limits() -> list[str]:
    return [
        "## Limits",
        "",
        "Comments in `holdfast/limits.py` explain each limit.",
        "",
        *_limits_of(limits),
        "",
        "Limits of the topology `zookeeper`, explained in `holdfast/topologies/zookeeper/ensemble_limits.py`:",
        "",
        *_limits_of(ensemble_limits),
        "",
    ]


def _limits_of(module: ModuleType) -> list[str]:
    source = Path(str(module.__file__)).read_text().splitlines()
    names = [match[1] for line in source if (match := _LIMIT.match(line))]
    rows = [f"| `{name}` | {_shown(getattr(module, name))} |" for name in names]
    return ["| limit | value |", "|---|---|", *rows]


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"
