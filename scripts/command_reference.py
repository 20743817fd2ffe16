"""The commands in docs/reference.md, generated from the program itself."""

from collections.abc import Iterator
from typing import Any

import typer

from holdfast.cli.main import program as holdfast_program

#: Options of many commands, documented once.
_COMMON = frozenset({"--connect", "--json", "--help"})
#: Commands whose options are settings; the settings' tables list them.
_SETTINGS = frozenset({"holdfast up", "holdfast server", "holdfast worker"})
#: Options of the program itself for shell completion.
_COMPLETION = ("--install-completion", "--show-completion")


def commands() -> list[str]:
    """Returns every command with its arguments, help and options."""
    lines = [
        "## Commands",
        "",
        "`python -m holdfast` is the same program. Commands that call a server take `--connect`: `host:port`,",
        "`holdfast://host:port` (`holdfasts://` over TLS), several of them with commas for all nodes of a monolith,",
        "`zk://hosts/path`, or a directory of jobs, which the command serves if no other process does; without it,",
        "`HOLDFAST_CONNECT` or `connect` in the file is used. Commands that print data take `--json` and then print",
        "one line of JSON",
        "(`events` and `job watch` one line for each event); times are milliseconds since 1970. Long operations show a",
        "progress bar on a terminal and lines elsewhere. Control characters in job data never reach the terminal.",
        f"Completion for your shell: `holdfast {_COMPLETION[0]}`, or `{_COMPLETION[1]}` to see it.",
        "",
        "| command | what it does | options |",
        "|---|---|---|",
    ]
    root: Any = typer.main.get_command(holdfast_program())
    return [*lines, *_rows(root, "holdfast"), ""]


def _rows(command: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - typer's own classes are private to it
    subcommands = getattr(command, "commands", {})
    if not subcommands or getattr(command, "invoke_without_command", False):
        yield _row(command, path)
    for name, one in subcommands.items():
        yield from _rows(one, f"{path} {name}")


def _row(command: Any, path: str) -> str:  # noqa: ANN401 - see above
    arguments = [_argument(one) for one in command.params if one.param_type_name == "argument"]
    options = ["see the settings below"] if path in _SETTINGS else filter(None, map(_option, command.params))
    usage = " ".join((path, *arguments))
    text = (command.short_help or command.help or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
    return f"| `{usage}` | {_cell(text)} | {'<br>'.join(options)} |"


def _argument(parameter: Any) -> str:  # noqa: ANN401 - see above
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:  # noqa: ANN401 - see above
    is_shown = parameter.param_type_name == "option" and not parameter.hidden
    if not is_shown or _COMMON.intersection(parameter.opts):
        return ""
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    has_default = parameter.default not in (None, "", False, 0, True)
    default = f" (default: {parameter.default})" if has_default else ""
    return f"{names} {_cell((parameter.help or '').rstrip('.'))}{default}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
