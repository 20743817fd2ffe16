"""The program `holdfast`: its commands, and how errors leave it.

A module of commands imports at its top only what help needs; the rest when it runs, so that help is quick.
"""

import copy
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli import (
    bench,
    config,
    dashboard,
    events,
    job,
    journal,
    lab,
    queue,
    schedule,
    server,
    stats,
    token,
    top,
    workers,
)
from holdfast.cli.text import printable
from holdfast.errors import MAPPED, ExitCode, HoldfastError
from holdfast.topologies.microservices import commands as service
from holdfast.topologies.monolith import front_command as front
from holdfast.topologies.monolith import node_command as node
from holdfast.topologies.pipeline import commands as pipeline
from holdfast.topologies.zookeeper import commands as zookeeper

app = typer.Typer(
    name="holdfast",
    help="A durable job queue: every job you were told was accepted is kept, is run, and can be explained.",
    epilog="Jobs in a directory need no server: `holdfast worker -A module:app` runs them, --connect DIRECTORY asks.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
SETTINGS = "Each option is also a variable (HOLDFAST_LEASE_MS) and a key in holdfast.toml (lease_ms)."
app.command("up", help="Start a server and a worker; everything in one command.", epilog=SETTINGS)(server.up)
app.command("server", help="Start a server without a worker.", epilog=SETTINGS)(server.server)
app.command("node", help="Start one of several equal nodes.", epilog=SETTINGS)(node.node)
app.command("front", help="Serve HTTP over several nodes.", epilog=front.EPILOG)(front.front)
app.command("dashboard", help="Serve the dashboard, HTTP and metrics beside jobs.", epilog=dashboard.EPILOG)(
    dashboard.dashboard
)
app.command("service", short_help="Start one of the six services.", epilog=service.EPILOG)(service.service)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(zookeeper.app, name="zookeeper")
app.add_typer(workers.app, name="worker")
app.add_typer(job.app, name="job")
app.add_typer(queue.app, name="queue")
app.add_typer(schedule.app, name="schedule")
app.command(short_help="Follow everything that happens to all jobs.")(events.events)
app.command()(stats.stats)
app.command(short_help="Watch the whole system on a terminal.")(top.top)
app.add_typer(token.app, name="token")
app.add_typer(journal.app, name="journal")
app.add_typer(config.app, name="config")
app.command(short_help="Measure submits and replay on this machine.")(bench.bench)
app.add_typer(lab.app, name="lab")


def show_version(is_asked: bool) -> None:
    """Prints the version and ends, before anything else is looked at."""
    if is_asked:
        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Those of the program itself."""


def main() -> int:
    """Runs a command; an error is a sentence on standard error and an exit code, never a traceback."""
    _open_streams()
    try:
        # By one name however it was started, so that help, errors and completion are the same.
        status = _asked(sys.argv[1:])(standalone_mode=False, prog_name="holdfast")
        sys.stdout.flush()
    except SystemExit as error:  # how typer ends a completion, and what it makes of a pipe that nobody reads
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _explain(error.__context__)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a user sees no traceback, whatever it is
        return _explain(error)
    return status if isinstance(status, int) else 0  # a command that ends with `typer.Exit` returns its status here


def _asked(words: Sequence[str]) -> typer.Typer:
    """The program with one command, if it is clear which: to make all of them takes as long as many a command does."""
    if not words or _COMPLETING in os.environ:
        return app
    one = copy.copy(app)
    one.registered_groups = [group for group in app.registered_groups if group.name == words[0]]
    one.registered_commands = [
        command
        for command in app.registered_commands
        if command.callback is not None and (command.name or command.callback.__name__) == words[0]
    ]
    return one if one.registered_groups or one.registered_commands else app


def _explain(error: BaseException) -> int:
    """Says what is wrong and what to do, and returns the exit code."""
    if isinstance(error, HoldfastError):
        for line in error.message.splitlines():
            print(f"holdfast: {printable(line)}", file=sys.stderr)
        return int(MAPPED[error.code].exit_code)
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return _INTERRUPTED_STATUS
    if isinstance(error, OSError):
        return _explain_refusal_of_the_system(error)
    if hasattr(error, "show"):  # typer's own usage errors know how to show themselves
        error.show()
        return int(getattr(error, "exit_code", ExitCode.USAGE))
    return _explain_bug(error)


def _open_streams() -> None:
    """Whoever closed our output wants none of it; there is still something to write to."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - open as long as the process


def _explain_refusal_of_the_system(error: OSError) -> int:
    """A full disk under our output, say. Whoever read it and has seen enough (`| head`) is told nothing."""
    if not isinstance(error, BrokenPipeError):
        where = f": {error.filename}" if error.filename else ""
        print(printable(f"holdfast: the system refused{where}: {error.strerror or error}"), file=sys.stderr)
    # What is left in the buffer would fail once more when Python ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE_STATUS if isinstance(error, BrokenPipeError) else ExitCode.REFUSED


def _explain_bug(error: BaseException) -> int:
    """A mistake of ours: a sentence for the user, and the traceback in a file for whoever mends it."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="holdfast-bug-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    print(f"holdfast: this is a bug in Holdfast; please report it with what is in {file.name}", file=sys.stderr)
    return _BUG_STATUS


#: How a shell asks what could be typed next; that may be any command.
_COMPLETING = "_HOLDFAST_COMPLETE"
#: What the shell reports for a program that a signal has ended: 128 and its number.
_INTERRUPTED_STATUS, _BROKEN_PIPE_STATUS = 130, 141
#: What the system's own programs use for an internal error.
_BUG_STATUS = 70
