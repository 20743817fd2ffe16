"""Writes docs/reference.md from the code: settings, exit codes, status codes, limits."""

import re
from pathlib import Path

from holdfast import limits
from holdfast.errors import MAPPED, ExitCode
from holdfast.settings import ENVIRONMENT_PREFIX, FIELDS, purpose, wanted

_EXIT_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.JOB_FAILED: "the job that was waited for failed or was canceled",
    ExitCode.USAGE: "the command, an option or a setting is wrong",
    ExitCode.UNREACHABLE: "no server answers, or not in time",
    ExitCode.REFUSED: "the server, or the directory, refused",
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
            *_settings(),
            *_exit_codes(),
            *_status_codes(),
            *_directory(),
            *_limits(),
        ]
    )


def _settings() -> list[str]:
    rows = [
        f"| `{name}` | {purpose(name)} | {wanted(name)} | `{field.default}` | `{ENVIRONMENT_PREFIX}{name.upper()}` |"
        for name, field in FIELDS.items()
    ]
    return [
        "## Settings of `holdfast up` and `holdfast server`",
        "",
        "A flag (`--lease-ms`) goes before the environment, that before `holdfast.toml` or `[tool.holdfast]` in",
        "`pyproject.toml`, and that before the default. Unknown names are refused; all problems are reported together.",
        "",
        "| setting | what for | values | default | environment |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _exit_codes() -> list[str]:
    rows = [f"| {code.value} | {meaning} |" for code, meaning in _EXIT_MEANINGS.items()]
    return [
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        *rows,
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
        "| code | gRPC | HTTP (planned) | exit | worth repeating |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _directory() -> list[str]:
    return [
        "## The data directory",
        "",
        "| file | what it is |",
        "|---|---|",
        "| `LOCK` | held by the server that has the directory open; contains its process id |",
        "| `MANIFEST` | which journal this is, and how far it is known to be durable |",
        "| `<position>-<epoch>.seg` | the journal: every event since that position |",
        "| `snapshot-<position>.snap` | the state at that position, so that a start need not read everything |",
        "| `torn-<position>-<epoch>.bak` | a copy of an unfinished write that a start has cut off; can be deleted |",
        "| `pin-…` | somebody is reading from that position on |",
        "",
        "Back it up with the server stopped; check the copy with `holdfast journal verify`.",
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
