"""`holdfast journal backup` and `holdfast journal restore`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.text import Json, as_time, print_fields, print_json, say

if TYPE_CHECKING:
    from holdfast.journal.backup import Progress as Told
    from holdfast.topologies.backup import Watch

Source = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Data directory; a running server may use it.")]
Target = Annotated[
    Path,
    typer.Argument(metavar="TARGET", help="New directory, or new file that ends in .tar, .tar.gz or .tgz."),
]
BackupPath = Annotated[Path, typer.Argument(metavar="BACKUP", help="Backup made by `holdfast journal backup`.")]
Restored = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="New data directory; must be empty or not exist.")]
At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="TIME|POSITION",
        help="Position, or time such as 2026-11-15T12:00:00, to restore (default: the end of the backup).",
    ),
]


def backup(directory: Source, target: Target, as_json: Json = False) -> None:
    """Copy a data directory and verify the copy. A server may be using the directory."""
    import msgspec

    from holdfast.cli.journal import disk_of
    from holdfast.cli.journal_directories import parts_of
    from holdfast.clock import system_clock
    from holdfast.errors import FailedPreconditionError
    from holdfast.process.directory_owner import topology_of
    from holdfast.topologies.backup import take_backup
    from holdfast.topologies.table import topology_named

    if parts := parts_of(directory):
        commands = "".join(f"\n  holdfast journal backup {directory / part} {target / part}" for part in parts)
        raise FailedPreconditionError(
            f"{str(directory)!r} contains the data directories of several processes; back up each, in this order:"
            f"\n  mkdir {target}{commands}",
            reason="TOPOLOGY_MISMATCH",
        )
    found = topology_of(directory)
    if found and (advice := topology_named(found).backup_advice):
        raise FailedPreconditionError(
            advice.format(directory=str(directory), path=directory.absolute(), target=target),
            reason="TOPOLOGY_MISMATCH",
        )
    disk_of(directory)
    with _watching() as watch:
        made = take_backup(directory, target, now_ms=system_clock().wall_ms(), watch=watch)
    if as_json:
        print_json(msgspec.to_builtins(made) | {"bytes": made.bytes, "target": str(target)})
        return
    print_fields(
        [
            ("backup", str(target)),
            ("position", str(made.copied.position)),
            ("time", as_time(made.log_time_ms)),
            ("digest", made.digest),
            ("jobs", _counts(made.jobs)),
            ("files", f"{len(made.copied.files)}, {made.bytes} bytes"),
        ]
    )


def restore(path: BackupPath, directory: Restored, at: At = "", as_json: Json = False) -> None:
    """Create a data directory from a backup. Old leases, fencing tokens and positions are not valid in it."""
    import msgspec

    from holdfast.cli.journal import past_of
    from holdfast.clock import system_clock
    from holdfast.topologies.backup_restore import restore_backup

    is_past, reaches = past_of(at) if at else None, int(at) if at.isdecimal() else 0
    with _watching() as watch:
        made = restore_backup(path, directory, is_past, reaches=reaches, now_ms=system_clock().wall_ms(), watch=watch)
    if as_json:
        print_json(msgspec.to_builtins(made) | {"directory": str(directory)})
    else:
        print_fields(
            [
                ("restored", str(directory)),
                ("as of position", str(made.position)),
                ("time", as_time(made.log_time_ms)),
                ("digest", made.digest),
                ("jobs", _counts(made.jobs)),
                ("cluster", made.cluster_id),
            ]
        )
    if made.leases_ended:
        say(f"holdfast: {made.leases_ended} running jobs are queued again; reports of their former workers are refused")
    if "tokens.json" in made.beside:
        say("holdfast: tokens that were revoked since the backup are valid again; see `holdfast token list`")


def _counts(jobs: dict[str, int]) -> str:
    return "  ".join(f"{state} {count}" for state, count in jobs.items()) or "none"


@contextmanager
def _watching() -> "Iterator[Watch]":
    """Shows a bar on a terminal, elsewhere a line per stage."""
    from rich.console import Console
    from rich.progress import Progress

    is_terminal = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), disable=not is_terminal, transient=True) as bar:

        def watch(stage: str) -> "Told":
            if not is_terminal:
                say(f"holdfast: {stage}")
                return lambda _done, _total: None
            task = bar.add_task(stage, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield watch
