"""`holdfast worker`: starts a worker; its commands `list` and `drain` manage running workers."""

import inspect
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.connection import Connect, ask
from holdfast.cli.text import Json, as_span, print_json, print_table, printable
from holdfast.cli.worker import worker as start
from holdfast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from holdfast.ports import WorkerView

app = typer.Typer(
    help="Start a worker, or manage running workers. Without a command, it runs jobs until TERM or INT.",
    short_help="Start a worker, or manage running workers.",
    epilog="Each option is also an environment variable (HOLDFAST_DRAIN_MS) and a key in holdfast.toml (drain_ms).",
    subcommand_metavar="[COMMAND] [ARGS]...",
)


@app.callback(invoke_without_command=True)
def worker(context: typer.Context, **options: object) -> None:
    """Start a worker, or list or drain running workers."""
    if context.invoked_subcommand is None:
        start(**options)  # type: ignore[arg-type]  # its own options, by the signature below
        return
    for name, value in options.items():
        if value:  # it would be ignored, and the command would use another server
            option = f"--{name.replace('_', '-')}"
            place = f"`holdfast worker {context.invoked_subcommand} {option} …`"
            raise InvalidArgumentError(f"{option} must follow the command: {place}")


@app.command("list")
def list_workers(connect: Connect = None, as_json: Json = False) -> None:
    """List workers that have sent a request recently."""
    found = ask(connect, lambda client: client.workers())
    if as_json:
        print_json([_fields(one) for one in found])
        return
    rows = [
        (
            one.worker_id,
            _state(one),
            f"{one.running}/{one.slots}",
            f"{as_span(one.heard_ms_ago)} ago",
            ", ".join(one.queues) or "all",
            ", ".join(one.types),
        )
        for one in found
    ]
    print_table(("WORKER", "STATE", "RUNNING", "HEARTBEAT", "QUEUES", "TYPES"), rows, "no workers")


@app.command()
def drain(
    worker_id: Annotated[str, typer.Argument(metavar="ID", help="The worker's id.")],
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Ask a worker to stop. It takes no more jobs and finishes its running jobs."""
    ask(connect, lambda client: client.drain_worker(worker_id))
    if as_json:
        print_json({"worker_id": worker_id, "asked": "drain"})
    else:
        print(printable(f"{worker_id} was asked to drain; it stops when its running jobs have ended"))


def _state(one: "WorkerView") -> str:
    if one.is_draining:
        return "draining"
    return "connected" if one.is_streaming else "polling"


def _fields(one: "WorkerView") -> dict[str, object]:
    return {
        "worker_id": one.worker_id,
        "types": one.types,
        "queues": one.queues,
        "slots": one.slots,
        "running": one.running,
        "is_draining": one.is_draining,
        "is_streaming": one.is_streaming,
        "heard_ms_ago": one.heard_ms_ago,
    }


_context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
# typer reads the signature; mypy does not know that functions may carry one.
worker.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_context, *inspect.signature(start, eval_str=True).parameters.values()]
)
