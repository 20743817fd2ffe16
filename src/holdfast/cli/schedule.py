"""`holdfast schedule`: create and manage schedules."""

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import limits
from holdfast.cli.connection import Connect, ServerConnection, ask
from holdfast.cli.number_options import number, whole_number
from holdfast.cli.text import Json, print_json, printable
from holdfast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from holdfast.ports import ScheduleSpec, ScheduleView

app = typer.Typer(help="Create jobs by time: by cron, at an interval, or once.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
Cron = Annotated[
    str,
    typer.Option(
        metavar="FIELDS", help='Five fields ("*/5 9-17 * * mon-fri"), two ("minute hour"), or a name such as @daily.'
    ),
]
Every = Annotated[str, typer.Option(metavar="TIME", help="Interval, starting now: 5m, 90s, 1h30m.")]
At = Annotated[
    str,
    typer.Option(
        metavar="MOMENT",
        help="Fire once, at this time in the schedule's zone: 2026-12-24T18:00. A past time fires now.",
    ),
]
Zone = Annotated[str, typer.Option("--tz", "--timezone", metavar="ZONE", help="Time zone, such as Europe/Paris.")]
CHANGES = (
    "At a clock change, a time that is skipped fires after the gap, and a time that occurs twice fires once,"
    " unless the minute or hour field starts with *."
)


@app.callback()
def schedule() -> None:
    """Groups the commands."""


@app.command("list")
def list_schedules(connect: Connect = None, as_json: Json = False) -> None:
    """List all schedules and when each fires next.

    The next tick is shown in local time and in the schedule's zone.
    """
    found = ask(connect, lambda client: client.schedules.all())
    from holdfast.cli.schedule_views import print_schedules, schedule_json

    if as_json:
        print_json([schedule_json(view) for view in found])
    else:
        print_schedules(found)


@app.command(epilog=CHANGES)
def create(
    name: Name,
    job_type: Annotated[str, typer.Option("--type", metavar="TYPE", help="Type of the jobs, for example echo.")],
    cron: Cron = "",
    every: Every = "",
    at: At = "",
    tz: Zone = "UTC",
    payload: Annotated[
        str,
        typer.Option(
            metavar="PAYLOAD",
            help="Payload; for a Python function, its arguments as a JSON object. - reads standard input.",
        ),
    ] = "",
    queue: Annotated[
        str, typer.Option("--queue", "-q", metavar="QUEUE", help="Queue of the jobs.")
    ] = limits.QUEUE_DEFAULT,
    priority: Annotated[
        int,
        typer.Option(
            "--priority",
            "-p",
            parser=whole_number("--priority", limits.PRIORITY_MIN, limits.PRIORITY_MAX),
            metavar="N",
            help="Priority from 0 to 9; higher runs first.",
        ),
    ] = limits.PRIORITY_DEFAULT,
    max_attempts: Annotated[
        int,
        typer.Option(
            parser=whole_number("--max-attempts", 1, limits.ATTEMPTS_MAX),
            metavar="N",
            help="Maximum number of attempts per job.",
        ),
    ] = limits.ATTEMPTS_DEFAULT,
    job_timeout_s: Annotated[
        float,
        typer.Option(
            "--job-timeout",
            metavar="SECONDS",
            help="Maximum number of seconds per attempt; 0: no limit.",
            parser=number("--job-timeout", 0, limits.TIMEOUT_MS_MAX / 1_000),
        ),
    ] = 0,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Label of the jobs; repeatable.")
    ] = None,
    catch_up: Annotated[
        str, typer.Option(metavar="none|latest|all", help="Which missed runs to fire after downtime.")
    ] = "none",
    catch_up_window: Annotated[
        str, typer.Option(metavar="TIME", help="Maximum age of a missed run that is fired.")
    ] = "1d",
    overlap: Annotated[
        str,
        typer.Option(metavar="allow|skip|cancel_running", help="What to do if the previous job has not ended."),
    ] = "allow",
    jitter: Annotated[str, typer.Option(metavar="TIME", help="Delay each job by a random time up to this.")] = "0s",
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Create or replace a schedule. Repeating the same command changes nothing."""
    from holdfast.cli.job_search import parse_labels
    from holdfast.cli.times import span_ms
    from holdfast.core.model import ScheduleSpec, Template

    template = Template(job_type, queue, priority, max_attempts, timeout_ms=round(job_timeout_s * 1_000))
    described = ScheduleSpec(
        name,
        template,
        payload=sys.stdin.buffer.read() if payload == "-" else os.fsencode(payload),
        labels=tuple(sorted(parse_labels(label).items())),
        catch_up=catch_up,
        catch_up_window_ms=span_ms(catch_up_window, "--catch-up-window"),
        overlap=overlap,
        jitter_ms=span_ms(jitter, "--jitter"),
    )
    spec = _timed(described, cron, every, at, tz)
    _tell(ask(connect, lambda client: client.schedules.set(spec), may_create=True), as_json=as_json)


def _timed(described: "ScheduleSpec", cron: str, every: str, at: str, tz: str) -> "ScheduleSpec":
    """Returns the spec with the value of --cron, --every or --at."""
    from msgspec.structs import replace

    from holdfast.cli.times import local_ms, span_ms

    if sum(map(bool, (cron, every, at))) != 1:
        raise InvalidArgumentError("give exactly one of --cron, --every and --at", reason="SCHEDULE_TIME_INVALID")
    if cron:
        _check_cron(cron)
    every_ms = span_ms(every, "--every") if every else 0
    if every and not every_ms:
        raise InvalidArgumentError(f"--every must be at least one second, got {every!r}", reason="EVERY_INVALID")
    at_ms = (
        -(-local_ms(at, tz, "--at") // 1_000) * 1_000 if at else 0
    )  # ticks are whole seconds; rounded up, so none is early
    return replace(described, cron=cron, every_ms=every_ms, at_ms=at_ms, timezone=tz)


def _check_cron(text: str) -> None:
    """Refuses an invalid expression before the server does, which does not know the name of the option."""
    from holdfast.core.cron import canonical

    try:
        canonical(text)
    except ValueError as error:
        raise InvalidArgumentError(f"--cron must be {error}, got {text!r}", reason="CRON_INVALID") from None


@app.command()
def show(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Show a schedule: its definition, its counters and its next tick."""
    found = ask(connect, lambda client: client.schedules.get(name))
    from holdfast.cli.schedule_views import print_schedule, schedule_json

    if as_json:
        print_json(schedule_json(found))
    else:
        print_schedule(found)


@app.command(epilog=CHANGES)
def preview(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Name of an existing schedule.", show_default=False)
    ] = "",
    cron: Cron = "",
    every: Every = "",
    at: At = "",
    tz: Zone = "UTC",
    after: Annotated[
        str, typer.Option(metavar="MOMENT", help="Start at this time, in the schedule's zone (default: now).")
    ] = "",
    count: Annotated[
        int,
        typer.Option(
            "--count",
            "-n",
            parser=whole_number("--count", 1, limits.PREVIEW_TICKS_MAX),
            metavar="N",
            help="Number of ticks.",
        ),
    ] = 10,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Show when a schedule fires.

    It is an existing schedule, or one described by --cron, --every or --at. Nothing is created, and a described
    schedule needs no server.
    """
    from holdfast.core.model import ScheduleSpec, Template

    if name and (cron or every or at):
        raise InvalidArgumentError("give the name of a schedule, or one of --cron, --every and --at, not both")
    if " " in name or name.startswith("@"):
        message = f"expected the name of a schedule, got {name!r}; use --cron for a cron expression"
        raise InvalidArgumentError(message, reason="SCHEDULE_NAME_INVALID")
    if name:
        with ServerConnection(connect) as server:
            spec = server.ask(lambda client: client.schedules.get(name)).spec
            after_ms = _after_ms(after, spec)
            ticks = server.ask(lambda client: client.schedules.preview(spec, after_ms, count))
    else:
        spec = _timed(ScheduleSpec("preview", Template("preview")), cron, every, at, tz)
        ticks = _described_ticks(spec, _after_ms(after, spec), count)
    from holdfast.cli.schedule_views import print_ticks, tick_json

    if as_json:
        print_json({"timezone": spec.timezone, "ticks": [tick_json(tick, spec.timezone) for tick in ticks]})
    else:
        print_ticks(ticks, spec.timezone)


def _after_ms(after: str, spec: "ScheduleSpec") -> int:
    from holdfast.cli.times import local_ms

    return local_ms(after, spec.timezone, "--after") if after else 0


def _described_ticks(spec: "ScheduleSpec", after_ms: int, count: int) -> list[int]:
    """Returns the ticks of a described schedule, without a server."""
    from holdfast.core import ticks
    from holdfast.core.commands import Refusal

    found = ticks.preview(spec, time.time_ns() // 1_000_000, after_ms, count)
    if isinstance(found, Refusal):
        raise found.error()
    return found


@app.command()
def pause(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Pause a schedule. It creates no jobs, and ticks during the pause are skipped."""
    _tell(ask(connect, lambda client: client.schedules.pause(name, is_paused=True)), as_json=as_json)


@app.command()
def resume(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Resume a paused schedule with its next tick."""
    _tell(ask(connect, lambda client: client.schedules.pause(name, is_paused=False)), as_json=as_json)


@app.command()
def trigger(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Create a job of a schedule now, and print the id. Its ticks do not change."""
    job_id = ask(connect, lambda client: client.schedules.trigger(name))
    if as_json:
        print_json({"name": name, "job_id": job_id})
    else:
        print(job_id)


@app.command()
def delete(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Delete a schedule. Jobs that it created are kept."""
    ask(connect, lambda client: client.schedules.delete(name))
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        print(printable(f"{name} is deleted"))


def _tell(view: "ScheduleView", *, as_json: bool) -> None:
    from holdfast.cli.schedule_views import both, schedule_json

    if as_json:
        print_json(schedule_json(view))
    elif view.is_paused:
        print(printable(f"{view.spec.name} is paused"))
    elif view.next_ms:
        print(printable(f"{view.spec.name} fires next at {both(view.next_ms, view.spec.timezone)}"))
    else:
        made = f": its time has passed, and it created the job {view.last_job_id}; it" if view.last_job_id else ""
        print(printable(f"{view.spec.name}{made} will not fire again"))
