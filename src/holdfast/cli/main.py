"""The program `holdfast`: runs a command and reports errors.

A command module imports at its top only what help needs, and the rest when the command runs, so that help is fast.
"""

import os
import sys
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli.command_table import add_commands, list_commands
from holdfast.cli.text import printable
from holdfast.errors import MAPPED, ExitCode, HoldfastError


def show_version(is_asked: bool) -> None:
    """Prints the version and exits, before other options are processed."""
    if is_asked:
        print(f"holdfast {__version__}")
        raise typer.Exit


def program(only: str = "", *, is_list: bool = False) -> typer.Typer:
    """Returns the program with all commands or, because that is slow, with the command `only` or only their list."""
    made = typer.Typer(
        name="holdfast",
        help="A durable job queue: every accepted job is kept and run, and its state can be explained.",
        epilog=(
            "Jobs in a data directory need no server: `holdfast worker -A module:app` runs them, and commands with"
            " --connect DIRECTORY read and change them."
        ),
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        callback=options,
    )
    if is_list:
        list_commands(made)
    else:
        add_commands(made, only)
    return made


def options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options of the program itself."""


def main() -> int:
    """Runs a command. An error is a message on standard error and an exit code, never a traceback."""
    _open_streams()
    try:
        # The program name is fixed, so that help, errors and completion do not depend on how it was started.
        # A shell completion may need any command.
        is_completing = _COMPLETING in os.environ
        only = "" if is_completing else next(iter(sys.argv[1:]), "")
        is_list = sys.argv[1:] in ([], ["--help"]) and not is_completing
        status = program(only, is_list=is_list)(standalone_mode=False, prog_name="holdfast")
        sys.stdout.flush()
    except SystemExit as error:  # typer raises it after a completion and for a broken pipe
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _explain(error.__context__)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - users never see a traceback
        return _explain(error)
    return status if isinstance(status, int) else 0  # a command that ends with `typer.Exit` returns its status here


def _explain(error: BaseException) -> int:
    """Prints the error message and returns the exit code."""
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
    """Replaces closed output streams by the null device, so that writes do not fail."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - open as long as the process


def _explain_refusal_of_the_system(error: OSError) -> int:
    """Reports an error of the operating system, such as a full disk; nothing for a closed pipe (`| head`)."""
    if not isinstance(error, BrokenPipeError):
        where = f": {error.filename}" if error.filename else ""
        print(printable(f"holdfast: operating system error{where}: {error.strerror or error}"), file=sys.stderr)
    # Flushing the rest of the buffer would fail again when Python exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE_STATUS if isinstance(error, BrokenPipeError) else ExitCode.REFUSED


def _explain_bug(error: BaseException) -> int:
    """Reports a bug in Holdfast: a message for the user, and the traceback in a file for the report."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="holdfast-bug-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    print(f"holdfast: this is a bug in Holdfast; please report it and attach {file.name}", file=sys.stderr)
    return _BUG_STATUS


#: The variable that a shell sets to request completions.
_COMPLETING = "_HOLDFAST_COMPLETE"
#: Exit status of a program that a signal ended: 128 plus the signal number.
_INTERRUPTED_STATUS, _BROKEN_PIPE_STATUS = 130, 141
#: Exit status of an internal error, EX_SOFTWARE in sysexits.h.
_BUG_STATUS = 70
