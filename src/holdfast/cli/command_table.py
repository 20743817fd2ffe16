"""The table of commands: one row per command, with its name, its module and its help.

A row names its module as text, so that a command imports only its own module, and the list of commands none.
Other distributions add commands by entry points in the group `holdfast.commands`, as `holdfast-lab` does.
"""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from holdfast.errors import FailedPreconditionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: The entry point group by which other distributions add commands.
PLUGINS = "holdfast.commands"
_SETTINGS = "Each option is also an environment variable (HOLDFAST_LEASE_MS) and a key in holdfast.toml (lease_ms)."


class CommandEntry(NamedTuple):
    """One command. `target` is `module:attribute`, a function or a typer app; empty if an entry point provides it."""

    name: str
    target: str
    help: str | None = None
    short_help: str | None = None
    epilog: str | None = None
    #: The distribution whose entry point provides the command.
    distribution: str = ""
    #: Whether the target is a typer app, which has this help itself; the list of commands shows it.
    is_group: bool = False


COMMANDS = (
    CommandEntry(
        "up",
        "holdfast.cli.server:up",
        help="Start a server and a worker in one command.",
        epilog=_SETTINGS,
    ),
    CommandEntry("server", "holdfast.cli.server:server", help="Start a server without a worker.", epilog=_SETTINGS),
    CommandEntry(
        "node",
        "holdfast.topologies.monolith.node_command:node",
        help="Start one node of the monolith topology.",
        epilog=_SETTINGS,
    ),
    CommandEntry(
        "front",
        "holdfast.topologies.monolith.front_command:front",
        help="Serve HTTP and the dashboard for several nodes.",
        epilog=(
            "It authenticates to the nodes with the token of --connect or HOLDFAST_TOKEN; callers authenticate with a"
            " token of --tokens."
        ),
    ),
    CommandEntry(
        "dashboard",
        "holdfast.cli.dashboard:dashboard",
        help="Serve the dashboard for a server or directory.",
        epilog=(
            "It authenticates to a server with the token of the URL or HOLDFAST_TOKEN, and uses it for every caller;"
            " callers authenticate with a token of --tokens or of tokens.json in the data directory."
        ),
    ),
    CommandEntry(
        "service",
        "holdfast.topologies.microservices.commands:service",
        short_help="Start one service of the microservices topology.",
        epilog="Environment variables such as JOB_PORT set the rest: see docs/topologies/microservices.md.",
    ),
    CommandEntry(
        "pipeline",
        "holdfast.topologies.pipeline.commands:app",
        help="Start one process of the pipeline topology.",
        is_group=True,
    ),
    CommandEntry(
        "zookeeper",
        "holdfast.topologies.zookeeper.commands:app",
        help="Start one process of the zookeeper topology.",
        is_group=True,
    ),
    CommandEntry(
        "worker", "holdfast.cli.workers:app", help="Start a worker, or manage running workers.", is_group=True
    ),
    CommandEntry("job", "holdfast.cli.job:app", help="Submit, inspect, cancel and retry jobs.", is_group=True),
    CommandEntry("queue", "holdfast.cli.queue:app", help="List, pause, resume, drain and purge queues.", is_group=True),
    CommandEntry(
        "schedule",
        "holdfast.cli.schedule:app",
        help="Create jobs by time: by cron, at an interval, or once.",
        is_group=True,
    ),
    CommandEntry("events", "holdfast.cli.events:events", short_help="Follow the events of all jobs."),
    CommandEntry(
        "stats",
        "holdfast.cli.stats:stats",
        short_help="Show job counts, workers and capabilities.",
    ),
    CommandEntry("top", "holdfast.cli.top:top", short_help="Watch the whole system in a terminal."),
    CommandEntry("token", "holdfast.cli.token:app", help="Create and revoke access tokens.", is_group=True),
    CommandEntry("journal", "holdfast.cli.journal:app", help="Inspect, verify and back up a journal.", is_group=True),
    CommandEntry("config", "holdfast.cli.config:app", help="Show the settings.", is_group=True),
    CommandEntry(
        "bench",
        "",
        short_help="Measure submits and replay on this machine.",
        distribution="holdfast-lab",
    ),
    CommandEntry(
        "lab",
        "",
        short_help="Compare topologies under load, and inject faults.",
        distribution="holdfast-lab",
        is_group=True,
    ),
)


def add_commands(program: typer.Typer, only: str = "") -> None:
    """Adds the command with this name to the program; adds all commands if there is none."""
    own = {entry.name: entry for entry in COMMANDS}
    if only in own and own[only].target:
        _add(program, own[only], resolve_name(own[only].target))
        return
    plugins = _plugins()
    entries = own | {name: CommandEntry(name, "") for name in plugins if name not in own}
    for name in [only] if only in entries else entries:
        _add_entry(program, entries[name], plugins)


def list_commands(program: typer.Typer) -> None:
    """Adds all commands without their modules, for the list of commands: they cannot be run."""
    plugins = _plugins()
    for entry in COMMANDS:
        if entry.is_group and (entry.target or entry.name in plugins):
            program.add_typer(typer.Typer(help=entry.help or entry.short_help), name=entry.name)
        else:
            _add(program, entry, _nothing)
    for name in plugins.keys() - {entry.name for entry in COMMANDS}:
        _add_plugin(program, CommandEntry(name, ""), plugins[name])


def _nothing() -> None:
    """Does nothing."""


def _add_entry(program: typer.Typer, entry: CommandEntry, plugins: Mapping[str, "EntryPoint"]) -> None:
    if entry.target:
        _add(program, entry, resolve_name(entry.target))
    elif entry.name in plugins:
        _add_plugin(program, entry, plugins[entry.name])
    else:
        _add_failing(
            program,
            entry,
            f"`holdfast {entry.name}` is in the package {entry.distribution}, which is not installed; install it with"
            f" `pip install {entry.distribution}`, or with `pip install ./lab` in a checkout of Holdfast",
        )


def _add(program: typer.Typer, entry: CommandEntry, target: Any) -> None:  # noqa: ANN401 - an app or a function
    if isinstance(target, typer.Typer):
        program.add_typer(target, name=entry.name)
    else:
        program.command(entry.name, help=entry.help, short_help=entry.short_help, epilog=entry.epilog)(target)


def _plugins() -> Mapping[str, "EntryPoint"]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=PLUGINS)}


def _add_plugin(program: typer.Typer, entry: CommandEntry, plugin: "EntryPoint") -> None:
    """Adds the command of another distribution; if it cannot be loaded, only this command fails."""
    try:
        target = plugin.load()
    except (ImportError, AttributeError) as error:
        _add_failing(program, entry, f"`holdfast {entry.name}` cannot be loaded from {plugin.value}: {error}")
    else:
        _add(program, entry, target)


def _add_failing(program: typer.Typer, entry: CommandEntry, message: str) -> None:
    """Adds a command that fails with this message, whatever its arguments are."""

    def command() -> None:
        raise FailedPreconditionError(message, reason="PACKAGES_MISSING")

    any_arguments = {"ignore_unknown_options": True, "allow_extra_args": True}
    program.command(entry.name, short_help=entry.short_help, context_settings=any_arguments, add_help_option=False)(
        command
    )
