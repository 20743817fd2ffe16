"""`holdfast job`: submit, look, wait, cancel and list, for people and, with `--json`, for programs."""

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from google.protobuf.message import Message

from holdfast import limits
from holdfast.cli.text import Json, as_time, print_table, printable
from holdfast.cli.worker import VARIABLES
from holdfast.client.jobs import JobClient, SubmitOptions
from holdfast.core.lifecycle import State, name
from holdfast.errors import DeadlineExceededError, ExitCode, InvalidArgumentError
from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.settings import refuse_unknown_variables

T = TypeVar("T")

app = typer.Typer(help="Submit jobs and look after them.", no_args_is_help=True)

Connect = Annotated[str, typer.Option(envvar="HOLDFAST_CONNECT", help="host:port of the server")]
JobId = Annotated[str, typer.Argument(help="the job's id")]
TimeoutS = Annotated[float, typer.Option("--timeout", min=0, help="seconds to wait at most")]

HERE = "127.0.0.1:50051"
_POLL_FIRST_S, _POLL_S_MAX = 0.02, 0.5


@app.callback()
def job() -> None:
    """Groups the commands."""


@app.command()
def submit(
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="the job's type, for example echo")],
    payload: Annotated[str, typer.Argument(help="what its handler is given; - reads standard input")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="the queue it waits in")] = limits.QUEUE_DEFAULT,
    priority: Annotated[
        int, typer.Option("--priority", "-p", help="0 to 9, larger is sooner")
    ] = limits.PRIORITY_DEFAULT,
    delay_s: Annotated[float, typer.Option("--delay", min=0, help="seconds before it is due")] = 0,
    request_id: Annotated[str, typer.Option(help="repeating a submit under the same id finds the first job")] = "",
    max_attempts: Annotated[int, typer.Option(min=1, help="how often it may be tried")] = limits.ATTEMPTS_DEFAULT,
    job_timeout_s: Annotated[
        float, typer.Option("--job-timeout", min=0, help="seconds an attempt may run; 0: any")
    ] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="wait for its result, as `holdfast job result` does")] = False,
    timeout_s: TimeoutS = 60,
    connect: Connect = HERE,
    as_json: Json = False,
) -> None:
    """Submit a job; once its id is printed, it is on disk."""
    data = sys.stdin.buffer.read() if payload == "-" else payload.encode()
    options = SubmitOptions(
        queue, priority, round(delay_s * 1_000), request_id, max_attempts, round(job_timeout_s * 1_000)
    )

    async def run(client: JobClient) -> pb.GetJobResultResponse | None:
        job_id = await client.submit(job_type, data, options)
        if wait:
            print(job_id, file=sys.stderr)
            return await _wait(client, job_id, timeout_s)
        print(json.dumps({"job_id": job_id}) if as_json else job_id)
        return None

    result = _run(connect, run)
    if result is not None:
        _finish(result, as_json=as_json)


@app.command()
def get(job_id: JobId, connect: Connect = HERE, as_json: Json = False) -> None:
    """Show a job's state."""
    status = _run(connect, lambda client: client.status(job_id))
    if as_json:
        print(json.dumps(_fields(status)))
        return
    for label, value in (
        ("id", status.job_id),
        ("state", name(status.status) + (" (cancel requested)" if status.cancel_requested else "")),
        ("created", as_time(status.created_at_ms)),
        ("started", as_time(status.started_at_ms)),
        ("finished", as_time(status.finished_at_ms)),
        ("failure", status.failure_reason),
    ):
        if value:
            print(f"{label:<9} {printable(value)}")


@app.command()
def result(
    job_id: JobId,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="wait until the job has ended")] = True,
    timeout_s: TimeoutS = 60,
    connect: Connect = HERE,
    as_json: Json = False,
) -> None:
    """Print a job's output; exits with 1 if it failed or was canceled."""
    _finish(_run(connect, lambda client: _wait(client, job_id, timeout_s if wait else 0)), as_json=as_json)


@app.command()
def cancel(
    job_id: JobId,
    reason: Annotated[str, typer.Option(help="why; kept with the job")] = "",
    connect: Connect = HERE,
    as_json: Json = False,
) -> None:
    """Cancel a job: at once while it is queued, best effort while it runs."""
    reply = _run(connect, lambda client: client.cancel(job_id, reason))
    if as_json:
        print(json.dumps(_fields(reply)))
    elif reply.already_terminal:
        print(f"it had already ended: {name(reply.current_status)}")
    elif reply.current_status == pb.RUNNING:
        print("it is running and was asked to stop")
    else:
        print("canceled")


@app.command()
def why(job_id: JobId, connect: Connect = HERE, as_json: Json = False) -> None:
    """Say why a job is not running, who runs it, or how it ended."""
    reply = _run(connect, lambda client: client.explain(job_id))
    print(json.dumps(_fields(reply)) if as_json else printable(reply.explanation))


@app.command("list")
def list_jobs(
    state: Annotated[
        list[str] | None, typer.Option("--state", "-s", help="only jobs in this state; repeatable")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="how many jobs at most")] = 20,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="begin with the oldest")] = False,
    connect: Connect = HERE,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    states = [_state(text) for text in state or ()]

    async def collect(client: JobClient) -> list[pb.JobSummary]:
        found: list[pb.JobSummary] = []
        token = ""
        while len(found) < limit:
            size = min(limit - len(found), limits.PAGE_SIZE_MAX)
            page = await client.page(states, token, size, newest_first=not oldest_first)
            found += page.jobs
            token = page.page.next_page_token
            if not token:
                break
        return found

    jobs = _run(connect, collect)
    if as_json:
        print(json.dumps([_fields(one) for one in jobs]))
    else:
        _print_table(jobs)


def _run(connect: str, call: Callable[[JobClient], Awaitable[T]]) -> T:
    refuse_unknown_variables(os.environ, VARIABLES)

    async def run() -> T:
        async with JobClient(connect) as client:
            return await call(client)

    return asyncio.run(run())


async def _wait(client: JobClient, job_id: str, timeout_s: float) -> pb.GetJobResultResponse:
    """The result, looked for ever more rarely until it is there or the time is over."""
    end, pause_s = time.monotonic() + timeout_s, _POLL_FIRST_S
    while not (reply := await client.result(job_id)).result_ready:
        if time.monotonic() + pause_s > end:
            reason = printable((await client.explain(job_id)).explanation)
            raise DeadlineExceededError(f"job {job_id} has not ended yet: {reason}")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_S_MAX)
    return reply


def _finish(reply: pb.GetJobResultResponse, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_fields(reply)))
    else:
        sys.stdout.buffer.write(reply.output_bytes)
        sys.stdout.buffer.flush()
        if sys.stdout.isatty() and reply.output_bytes and not reply.output_bytes.endswith(b"\n"):
            print()
    if reply.terminal_status != pb.DONE:
        summary = printable(reply.output_summary)
        print(f"holdfast: the job ended {name(reply.terminal_status)}: {summary}", file=sys.stderr)
        raise typer.Exit(ExitCode.JOB_FAILED)


def _fields(message: Message) -> dict[str, object]:
    """A message for programs: all fields by the names of the contract, states by name, numbers as numbers."""
    fields: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        fields[field.name] = field.enum_type.values_by_number[value].name if field.enum_type else _plain(value)
    return fields


def _plain(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _state(text: str) -> State:
    try:
        return State[text.upper()]
    except KeyError:
        known = ", ".join(state.name for state in State)
        raise InvalidArgumentError(f"expected --state to be one of {known}, got {text!r}") from None


def _print_table(jobs: list[pb.JobSummary]) -> None:
    rows = [
        (one.job_id, name(one.status), printable(one.job_type), as_time(one.created_at_ms), as_time(one.finished_at_ms))
        for one in jobs
    ]
    print_table(("ID", "STATE", "TYPE", "CREATED", "FINISHED"), rows)
