"""Writes docs/reference.md from the code: the SDK, commands, settings, exit codes, status codes, metrics, limits."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from prometheus_client.core import Metric

from holdfast import limits
from holdfast.errors import MAPPED, ExitCode
from holdfast.observe.exposition import MeterCollector, ProcessVitals, of_queues
from holdfast.observe.metrics import OTHER, SERIES_MAX, Meter
from holdfast.settings import ClientSettings, Settings, WorkerSettings, fields_of, purpose, wanted
from scripts.command_reference import commands
from scripts.python_reference import python

_EXIT_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.JOB_FAILED: "the job that was waited for failed or was canceled; a history shows a broken promise",
    ExitCode.USAGE: "the command, an option or a setting is wrong",
    ExitCode.UNREACHABLE: "no server answers, or not in time",
    ExitCode.REFUSED: "the server, the directory or the system refused",
    ExitCode.UNKNOWN: "a history proves nothing: not everything was put to the test",
}
_LIMIT = re.compile(r"^([A-Z][A-Z0-9_]+): Final = ")


def to_markdown() -> str:
    """The whole page."""
    return "\n".join(
        [
            "# Reference",
            "",
            "Generated from the code by `make docs`. Commands explain themselves with `--help`.",
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
        "A flag (`--lease-ms`) goes before the environment (`HOLDFAST_LEASE_MS`), that before `holdfast.toml` or",
        "`[tool.holdfast]` in `pyproject.toml`, and that before the default. One file serves all commands. Unknown",
        "names are refused; all problems are reported together. `holdfast config show --origin` says what counts.",
        "",
        *_table("Of `holdfast up` and `holdfast server`", Settings),
        *_table("Of `holdfast worker`", WorkerSettings),
        *_table("Of the commands that ask a server", ClientSettings),
    ]


def _table(title: str, kind: type[msgspec.Struct]) -> list[str]:
    fields = fields_of(kind)
    rows = [
        f"| `{name}` | {purpose(name, fields)} | {wanted(name, fields)} | {_default(field.default)} |"
        for name, field in fields.items()
    ]
    return [f"### {title}", "", "| setting | what for | values | default |", "|---|---|---|---|", *rows, ""]


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
        "| 130 | interrupted by Ctrl-C, or a question was answered with no |",
        "| 141 | whoever read the output went away (`\\| head`) |",
        "| 70 | the journal failed under a running server (what is durable is on disk; start it again), or a bug |",
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
        "Every error over gRPC carries `google.rpc.Status` with an `ErrorInfo` whose reason is for programs.",
        "",
        "| code | gRPC | HTTP | exit | worth repeating |",
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
        "A server answers `GET /metrics` for Prometheus, `/livez` (200 while it lives) and `/readyz` (503 while it",
        "starts or drains) on its HTTP port, and with `--metrics-port` on a port of their own. Beyond",
        f"{SERIES_MAX} pairs of queue and type, jobs are counted under `{OTHER}`. The usual `process_*` are there too.",
        "",
        "| metric | kind | what it tells |",
        "|---|---|---|",
        *rows,
        "",
    ]


def _sample(family: Metric) -> str:
    """The name as a query has it, with its labels."""
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    labels: Sequence[str] = getattr(family, "_labelnames", ())
    return f"{family.name}{suffix}{'{' + ','.join(labels) + '}' if labels else ''}"


def _directory() -> list[str]:
    return [
        "## The data directory",
        "",
        "| file | what it is |",
        "|---|---|",
        "| `holdfast.sock` | where the server answers processes of this machine; there while it runs |",
        "| `LOCK` | held by the server that has the directory open; contains its process id |",
        "| `CLOCK` | the clocks at the last start, by which the next one judges a wall clock that is far ahead |",
        "| `MANIFEST` | which journal this is, and how far it is known to be durable |",
        "| `<position>-<epoch>.seg` | the journal: every event since that position |",
        "| `snapshot-<position>.snap` | the state at that position, so that a start need not read everything |",
        "| `torn-<position>-<epoch>.bak` | a copy of an unfinished write that a start has cut off; can be deleted |",
        "| `pin-…` | somebody is reading from that position on |",
        "| `tokens.json`, `tokens.lock` | hashes of the tokens that the server accepts, if any were made |",
        "| `NODE` | which of how many nodes of a monolith the directory belongs to |",
        "| `BACKUP`, `RESTORING` | the directory is a backup, or a restore into it has not ended: no server opens it |",
        "",
        "`holdfast journal backup` copies it beside a running server and proves the copy: see",
        "[back up and restore](operations/back-up.md).",
        "The format is described in [internals/journal-format.md](internals/journal-format.md).",
        "",
    ]


def _limits() -> list[str]:
    source = Path(limits.__file__).read_text().splitlines()
    names = [match[1] for line in source if (match := _LIMIT.match(line))]
    rows = [f"| `{name}` | {_shown(getattr(limits, name))} |" for name in names]
    return [
        "## Limits",
        "",
        "Each is explained where it is defined, in `holdfast/limits.py`.",
        "",
        "| limit | value |",
        "|---|---|",
        *rows,
        "",
    ]


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"
