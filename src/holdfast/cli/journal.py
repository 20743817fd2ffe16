"""`holdfast journal`: inspect, verify, replay, back up and repair a journal."""

import sys
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import journal_backup
from holdfast.cli.journal_directories import holds_journal, nearby
from holdfast.cli.number_options import whole_number
from holdfast.cli.text import Json, as_moment, as_time, print_json, print_table, say
from holdfast.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from holdfast.core.overview import Overview
    from holdfast.journal.archive import JournalArchive
    from holdfast.journal.os_disk import OsDisk
    from holdfast.journal.recovery import RepairReport
    from holdfast.ledger.time_travel import Moment

app = typer.Typer(
    help="Inspect, verify, replay, back up and repair a journal.",
    short_help="Inspect, verify and back up a journal.",
    no_args_is_help=True,
)

Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The data directory.")]
At = Annotated[
    str,
    typer.Option(
        "--at", metavar="TIME|POSITION", help="Position, or time such as 2026-11-15T12:00:00 (default: the end)."
    ),
]


@app.callback()
def journal() -> None:
    """Groups the commands."""


app.command()(journal_backup.backup)
app.command()(journal_backup.restore)


@app.command()
def repair(directory: Directory, as_json: Json = False) -> None:
    """Repair a damaged end or manifest.

    Cuts a damaged last frame, of which it keeps a copy, or rebuilds the manifest. Other damage is refused.
    """
    import msgspec

    from holdfast.journal.recovery import repair as repair_journal

    report = repair_journal(disk_of(directory))
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        print(_sentence(report))


def _sentence(report: "RepairReport") -> str:
    """Returns a description of the repair."""
    parts = []
    if report.copy_name:
        parts.append(f"cut {report.bytes_cut} bytes from the end and kept a copy in {report.copy_name}")
    if report.is_manifest_rebuilt:
        parts.append("rebuilt the manifest")
    if report.positions_lost:
        parts.append(f"lost {report.positions_lost} events that had been durable")
    return f"{'; '.join(parts) or 'nothing to repair'}; the journal ends at position {report.end_position}"


@app.command()
def verify(directory: Directory, as_json: Json = False) -> None:
    """Replay the whole journal and check its guarantees. Reports the first position that violates one."""
    import msgspec
    from rich.console import Console
    from rich.progress import Progress

    from holdfast.ledger import time_travel

    archive = archive_of(directory)
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("replaying", total=None)
        proof = time_travel.verify(archive, lambda position, end: bar.update(task, completed=position, total=end))
    if as_json:
        print_json(msgspec.to_builtins(proof) | {"digest": f"{proof.digest:016x}"})
        return
    print(
        f"sound: {proof.frames} frames up to position {proof.end_position} (from {proof.first_position}), epoch"
        f" {proof.epoch}, {proof.jobs} jobs kept, state digest {proof.digest:016x}"
    )


@app.command()
def show(
    directory: Directory,
    after: Annotated[
        int,
        typer.Option(
            "--after", parser=whole_number("--after", 0), metavar="POSITION", help="Start after this position."
        ),
    ] = 0,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", parser=whole_number("--limit", 1), metavar="N", help="Maximum number of lines."),
    ] = 100,
    as_json: Json = False,
) -> None:
    """Show the events, one line for each job that an event names."""
    from holdfast.cli.views import print_entries
    from holdfast.core.history import entries
    from holdfast.ledger import time_travel

    lines = (
        entry
        for position, event in time_travel.all_events(archive_of(directory), after)
        for entry in entries(position, event)
    )
    print_entries(list(islice(lines, limit)), as_json=as_json, has_ids=True)
    if not as_json and next(lines, None) is not None:
        say(f"holdfast: only {limit} lines are shown and there are more; see --limit and --after")


@app.command()
def history(
    directory: Directory,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    as_json: Json = False,
) -> None:
    """Show all events of one job."""
    from holdfast.cli.views import print_entries
    from holdfast.ledger import time_travel

    print_entries(time_travel.history(archive_of(directory), job_id), as_json=as_json, has_ids=False)


@app.command()
def replay(directory: Directory, at: At = "", as_json: Json = False) -> None:
    """Show the state at a position or time: jobs, queues and leases."""
    import msgspec

    from holdfast.core.overview import overview
    from holdfast.ledger import time_travel

    view = overview(time_travel.state_at(archive_of(directory), past_of(at)))
    if as_json:
        print_json(msgspec.to_builtins(view))
    else:
        _print_overview(view)


@app.command()
def digest(directory: Directory, at: At = "", as_json: Json = False) -> None:
    """Print the digest of the state. Journals with the same events have the same digest."""
    from holdfast.ledger import time_travel

    ledger = time_travel.state_at(archive_of(directory), past_of(at))
    if as_json:
        print_json({"digest": f"{ledger.digest:016x}", "position": ledger.position})
    else:
        print(f"{ledger.digest:016x} at position {ledger.position}")


def archive_of(place: Path) -> "JournalArchive":
    """Returns the frames and snapshots of the journal at a place; raises `NotFoundError` if there is none."""
    from holdfast.journal.directory_archive import DirectoryArchive

    return DirectoryArchive(disk_of(place))


def disk_of(directory: Path) -> "OsDisk":
    """Returns the disk of a directory that contains a journal; raises `NotFoundError` for any other."""
    from holdfast.journal.os_disk import OsDisk

    if not directory.is_dir():
        raise NotFoundError(f"the directory {str(directory)!r} does not exist{_nearby()}")
    if not holds_journal(directory):
        raise NotFoundError(f"the directory {str(directory)!r} contains no journal{_nearby()}")
    return OsDisk(directory)


def _nearby() -> str:
    """Returns advice: a directory that contains a journal, or where one is."""
    found = nearby()
    return f"; there is a journal in {found!r}" if found else "; use the directory of --data (default: holdfast-data)"


def past_of(at: str) -> "Moment":
    """Returns a predicate that tells whether an event is after the given position or time."""
    if not at:
        return lambda _position, _event: False
    if at.isdecimal() and len(at) <= _POSITION_DIGITS_MAX:
        last = int(at)
        return lambda position, _event: position > last
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        raise InvalidArgumentError(
            f"--at must be a position or a time such as 2026-11-15T12:00:00, got {at!r}"
        ) from None
    limit_ms = moment.timestamp() * 1_000  # a time without a zone is local
    return lambda _position, event: event.at_ms > limit_ms


_POSITION_DIGITS_MAX = 18


def _print_overview(view: "Overview") -> None:
    print(f"position {view.position}, {as_time(view.at_ms) or 'before the first event'}, digest {view.digest}")
    print("  ".join(f"{state} {count}" for state, count in view.states.items()))
    if view.queues:
        print()
        rows = [[queue.name, str(queue.ready), str(queue.delayed), str(queue.running)] for queue in view.queues]
        print_table(["QUEUE", "READY", "DELAYED", "RUNNING"], rows)
    if view.leases:
        print()
        columns = ["TOKEN", "JOB", "TYPE", "WORKER", "ATTEMPT", "EXPIRES NOT BEFORE"]
        print_table(
            columns,
            [
                [str(one.token), one.job_id, one.type, one.worker, str(one.attempt), as_moment(one.expires_ms)]
                for one in view.leases
            ],
        )
