"""`holdfast schedule`: jobs that are made by time."""

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import limits
from holdfast.cli.connection import Connect, ServerConnection, ask
from holdfast.cli.numbers import counted
from holdfast.cli.text import Json, print_json, printable
from holdfast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from holdfast.ports import ScheduleSpec, ScheduleView

app = typer.Typer(help="Make jobs by time: cron, an interval, or once.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
Cron = Annotated[
    str,
    typer.Option(
        metavar="FIELDS", help='Five fields, two ("minute hour"), or @daily and such: "*/5 9-17 * * mon-fri".'
    ),
]
Every = Annotated[str, typer.Option(metavar="TIME", help="An interval from now on: 5m, 90s, 1h30m.")]
At = Annotated[
    str, typer.Option(metavar="MOMENT", help="Once, in the schedule's zone: 2026-12-24T18:00. What is past: at once.")
]
Zone = Annotated[str, typer.Option("--tz", "--timezone", metavar="ZONE", help="The time zone, such as Europe/Paris.")]
CHANGES = (
    "Around a clock change, a time that is left out fires after the gap, and one that comes twice fires once,"
    " unless minute or hour begin with a star."
)


@app.callback()
def schedule() -> None:
    """Groups the commands."""


@app.command("list")
def list_schedules(connect: Connect = None, as_json: Json = False) -> None:
    """List every schedule with its next tick, here and in its own zone."""
    found = ask(connect, lambda client: client.schedules.all())
    from holdfast.cli.schedule_views import print_schedules, schedule_json

    if as_json:
        print_json([schedule_json(view) for view in found])
    else:
        print_schedules(found)


@app.command(epilog=CHANGES)
def create(
    name: Name,
    job_type: Annotated[str, typer.Option("--type", metavar="TYPE", help="The type of its jobs, for example echo.")],
    cron: Cron = "",
    every: Every = "",
    at: At = "",
    tz: Zone = "UTC",
    payload: Annotated[
        str,
        typer.Option(metavar="PAYLOAD", help="Of a Python function its arguments, as JSON; - reads standard input."),
    ] = "",
    queue: Annotated[
        str, typer.Option("--queue", "-q", metavar="QUEUE", help="The queue they wait in.")
    ] = limits.QUEUE_DEFAULT,
    priority: Annotated[
        int, typer.Option("--priority", "-p", metavar="N", help="0 to 9, larger is sooner.")
    ] = limits.PRIORITY_DEFAULT,
    max_attempts: Annotated[
        int, typer.Option(min=1, max=limits.ATTEMPTS_MAX, metavar="N", help="How often each may be tried.")
    ] = limits.ATTEMPTS_DEFAULT,
    job_timeout_s: Annotated[
        float,
        typer.Option(
            "--job-timeout",
            min=0,
            max=limits.TIMEOUT_MS_MAX / 1_000,
            metavar="SECONDS",
            help="Seconds an attempt may run; 0: any.",
            callback=counted,
        ),
    ] = 0,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="A label of its jobs; repeatable.")
    ] = None,
    catch_up: Annotated[
        str, typer.Option(metavar="none|latest|all", help="Which ticks are made up for that nobody was there for.")
    ] = "none",
    catch_up_window: Annotated[
        str, typer.Option(metavar="TIME", help="How old a tick may be that is made up for.")
    ] = "1d",
    overlap: Annotated[
        str,
        typer.Option(metavar="allow|skip|cancel_running", help="While its last job has not ended."),
    ] = "allow",
    jitter: Annotated[str, typer.Option(metavar="TIME", help="Spread its jobs over so much time.")] = "0s",
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Make a schedule, or replace the one of this name; the same again changes nothing."""
    from holdfast.cli.job_search import parse_labels
    from holdfast.cli.moments import span_ms
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
    """With the one of the three ways to say when."""
    from msgspec.structs import replace

    from holdfast.cli.moments import local_ms, span_ms

    if sum(map(bool, (cron, every, at))) != 1:
        raise InvalidArgumentError("say exactly one of --cron, --every and --at", reason="SCHEDULE_TIME_INVALID")
    every_ms = span_ms(every, "--every") if every else 0
    if every and not every_ms:
        raise InvalidArgumentError(f"expected --every to be a second or more, got {every!r}", reason="EVERY_INVALID")
    at_ms = -(-local_ms(at, tz, "--at") // 1_000) * 1_000 if at else 0  # ticks are whole seconds, and none comes early
    return replace(described, cron=cron, every_ms=every_ms, at_ms=at_ms, timezone=tz)


@app.command()
def show(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Show a schedule: its rules, what it did, and when it fires next."""
    found = ask(connect, lambda client: client.schedules.get(name))
    from holdfast.cli.schedule_views import print_schedule, schedule_json

    if as_json:
        print_json(schedule_json(found))
    else:
        print_schedule(found)


@app.command(epilog=CHANGES)
def preview(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="A schedule that is there.", show_default=False)] = "",
    cron: Cron = "",
    every: Every = "",
    at: At = "",
    tz: Zone = "UTC",
    after: Annotated[
        str, typer.Option(metavar="MOMENT", help="From then on, in the schedule's zone, instead of from now on.")
    ] = "",
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=limits.PREVIEW_TICKS_MAX, metavar="N", help="How many ticks.")
    ] = 10,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Show when a schedule would fire: one that is there, or one that is only described.

    Nothing is made, and no server is needed for one that is described.
    """
    from holdfast.core.model import ScheduleSpec, Template

    if name and (cron or every or at):
        raise InvalidArgumentError("say the name of a schedule, or --cron, --every or --at; not both")
    if " " in name or name.startswith("@"):
        message = f"expected the name of a schedule, got {name!r}; an expression is given with --cron"
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
    from holdfast.cli.moments import local_ms

    return local_ms(after, spec.timezone, "--after") if after else 0


def _described_ticks(spec: "ScheduleSpec", after_ms: int, count: int) -> list[int]:
    """The ticks of a schedule that is only described: no server is needed for them."""
    from holdfast.core import ticks
    from holdfast.core.commands import Refusal

    found = ticks.preview(spec, time.time_ns() // 1_000_000, after_ms, count)
    if isinstance(found, Refusal):
        raise found.error()
    return found


@app.command()
def pause(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Let a schedule make no jobs; what falls into the pause is passed over."""
    _tell(ask(connect, lambda client: client.schedules.pause(name, is_paused=True)), as_json=as_json)


@app.command()
def resume(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Let a paused schedule go on with its next tick."""
    _tell(ask(connect, lambda client: client.schedules.pause(name, is_paused=False)), as_json=as_json)


@app.command()
def trigger(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Make a job of a schedule now, beside its plan, and print its id."""
    job_id = ask(connect, lambda client: client.schedules.trigger(name))
    if as_json:
        print_json({"name": name, "job_id": job_id})
    else:
        print(job_id)


@app.command()
def delete(name: Name, connect: Connect = None, as_json: Json = False) -> None:
    """Forget a schedule. Jobs that it made stay."""
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
        made = f": its time is past, and it has made the job {view.last_job_id}; it" if view.last_job_id else ""
        print(printable(f"{view.spec.name}{made} fires no more"))
