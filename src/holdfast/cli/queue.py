"""`holdfast queue`: list, pause, resume, drain and purge queues."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.connection import Connect, ServerConnection, ask
from holdfast.cli.text import Json, as_span, print_json, print_table, printable, say
from holdfast.core.model import QueueMode
from holdfast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from holdfast.client.link import Client
    from holdfast.ports import QueueView

app = typer.Typer(help="List, pause, resume, drain and purge queues.", no_args_is_help=True)

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Reason, shown by `holdfast queue list`.")]

_LOOK_S = 0.25


@app.callback()
def queue() -> None:
    """Groups the commands."""


@app.command("list")
def list_queues(connect: Connect = None, as_json: Json = False) -> None:
    """List every queue that has jobs or is not open."""
    found = ask(connect, lambda client: client.queues())
    if as_json:
        print_json([_fields(one) for one in found])
        return
    rows = [
        (
            one.name,
            one.mode.name,
            str(one.ready),
            str(one.delayed),
            str(one.running),
            as_span(one.oldest_age_ms) if one.ready else "",
            one.reason,
        )
        for one in found
    ]
    print_table(
        ("QUEUE", "MODE", "READY", "DELAYED", "RUNNING", "OLDEST", "REASON"),
        rows,
        "no queue has jobs, and all are open",
    )


@app.command()
def pause(name: QueueName, reason: Reason = "", connect: Connect = None, as_json: Json = False) -> None:
    """Stop granting jobs of a queue. It still accepts jobs, and running jobs continue."""
    with ServerConnection(connect) as server:
        _set_mode(server, name, QueueMode.PAUSED, reason, as_json=as_json)


@app.command()
def resume(name: QueueName, connect: Connect = None, as_json: Json = False) -> None:
    """Open a queue that was paused or drained."""
    with ServerConnection(connect) as server:
        _set_mode(server, name, QueueMode.OPEN, "", as_json=as_json)


@app.command()
def drain(
    name: QueueName,
    reason: Reason = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the queue is empty.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Accept no new jobs for a queue. Jobs that are in it are still run."""
    with ServerConnection(connect) as server:
        _set_mode(server, name, QueueMode.DRAINING, reason, as_json=as_json)
        if wait:
            server.ask(lambda client: _watch_until_empty(client, name))


@app.command()
def purge(
    name: QueueName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason, stored with every job.")] = "purged",
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Cancel all waiting jobs of a queue. Running jobs continue."""
    with ServerConnection(connect) as server:
        if not is_sure:
            _confirm(server, name)
        count = server.ask(lambda client: client.purge(name, reason))
    if as_json:
        print_json({"queue": name, "canceled": count})
    else:
        print(f"canceled {count} {'job' if count == 1 else 'jobs'}")


def _confirm(server: ServerConnection, name: str) -> None:
    """Asks for confirmation on a terminal; elsewhere --yes is required."""
    if not sys.stdin.isatty():
        raise InvalidArgumentError(f"purge cancels all waiting jobs of {name!r}; confirm it with --yes")
    waiting = next((one for one in server.ask(lambda client: client.queues()) if one.name == name), None)
    count = waiting.ready + waiting.delayed if waiting else 0
    typer.confirm(printable(f"Cancel {count} waiting jobs of queue {name!r}?"), abort=True, err=True)


def _set_mode(server: ServerConnection, name: str, mode: QueueMode, reason: str, *, as_json: bool) -> None:
    server.ask(lambda client: client.set_queue_mode(name, mode, reason))
    if as_json:
        print_json({"queue": name, "mode": mode.name, "reason": reason})
    else:
        print(printable(f"{name} is {mode.name.lower()}"))


async def _watch_until_empty(client: "Client", name: str) -> None:
    """Shows a bar on a terminal, elsewhere a line whenever the number of jobs has changed."""
    import asyncio

    from rich.console import Console
    from rich.progress import Progress

    left = first = await _left(client, name)
    is_seen = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), disable=not is_seen, transient=True) as bar:
        task = bar.add_task("draining", total=first)
        while left:
            if not is_seen:
                say(f"{left} jobs left")
            before = left
            while left == before:
                await asyncio.sleep(_LOOK_S)
                left = await _left(client, name)
            bar.update(task, completed=first - left)
    say(f"{name} is empty")


async def _left(client: "Client", name: str) -> int:
    return sum(one.ready + one.delayed + one.running for one in await client.queues() if one.name == name)


def _fields(one: "QueueView") -> dict[str, object]:
    return {
        "queue": one.name,
        "mode": one.mode.name,
        "reason": one.reason,
        "ready": one.ready,
        "delayed": one.delayed,
        "running": one.running,
        "oldest_age_ms": one.oldest_age_ms,
        "types": one.types,
    }
