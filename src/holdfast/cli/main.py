"""The program `holdfast`: its commands, and how errors leave it."""

import sys

import typer

from holdfast.cli import journal, server, worker
from holdfast.errors import MAPPED, HoldfastError

app = typer.Typer(
    name="holdfast",
    help="A durable job queue: every job you were told was accepted is kept, is run, and can be explained.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("up", help="Start a server and a worker; everything in one command.")(server.up)
app.command("server", help="Start a server without a worker.")(server.server)
app.command("worker", help="Start a worker for a server that is running.")(worker.worker)
app.add_typer(journal.app, name="journal")


def main() -> int:
    """Runs a command; an error is a sentence on standard error and an exit code, never a traceback."""
    try:
        app(standalone_mode=False)
    except HoldfastError as error:
        print(f"holdfast: {error.message}", file=sys.stderr)
        return int(MAPPED[error.code].exit_code)
    except typer.Exit as error:
        return error.exit_code
    except typer.Abort:
        return 130
    except Exception as error:
        if not hasattr(error, "show"):  # typer's own usage errors know how to show themselves
            raise
        error.show()
        return int(getattr(error, "exit_code", 2))
    return 0
