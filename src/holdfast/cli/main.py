"""The program `holdfast`: its commands, and how errors leave it."""

import sys
import tempfile
import traceback
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli import job, journal, server, worker
from holdfast.errors import MAPPED, HoldfastError

app = typer.Typer(
    name="holdfast",
    help="A durable job queue: every job you were told was accepted is kept, is run, and can be explained.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
SETTINGS = "Each option is also a variable (HOLDFAST_LEASE_MS) and a key in holdfast.toml (lease_ms)."
app.command("up", help="Start a server and a worker; everything in one command.", epilog=SETTINGS)(server.up)
app.command("server", help="Start a server without a worker.", epilog=SETTINGS)(server.server)
app.command("worker", help="Start a worker for a server that is running.")(worker.worker)
app.add_typer(job.app, name="job")
app.add_typer(journal.app, name="journal")


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
    try:
        status = app(standalone_mode=False)
    except HoldfastError as error:
        for line in error.message.splitlines():
            print(f"holdfast: {line}", file=sys.stderr)
        return int(MAPPED[error.code].exit_code)
    except typer.Exit as error:
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:  # noqa: BLE001 - a bug of ours must not show a traceback to a user
        if not hasattr(error, "show"):  # typer's own usage errors know how to show themselves
            return _explain_bug()
        error.show()
        return int(getattr(error, "exit_code", 2))
    return status if isinstance(status, int) else 0  # a command that ends with `typer.Exit` returns its status here


def _explain_bug() -> int:
    """A mistake of ours: a sentence for the user, and the traceback in a file for whoever mends it."""
    with tempfile.NamedTemporaryFile("w", prefix="holdfast-bug-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    print(f"holdfast: this is a bug in Holdfast; please report it with what is in {file.name}", file=sys.stderr)
    return _BUG_STATUS


#: What the system's own programs use for an internal error.
_BUG_STATUS = 70
