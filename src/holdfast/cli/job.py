"""`holdfast job`: submit, get, wait, cancel, retry and explain. Other modules implement list, watch and history."""

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import limits
from holdfast.cli import job_search, job_watch
from holdfast.cli.connection import Connect, ServerConnection, ask
from holdfast.cli.number_options import number, whole_number
from holdfast.cli.text import Json, indented, print_json, printable, printable_lines, say
from holdfast.errors import DeadlineExceededError, ExitCode

if TYPE_CHECKING:
    from holdfast.client.link import Client
    from holdfast.core.model import Template
    from holdfast.ports import JobDraft, JobView, ResultView

app = typer.Typer(help="Submit, inspect, cancel and retry jobs.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
TimeoutS = Annotated[
    float,
    typer.Option(
        "--timeout", parser=number("--timeout", 0), metavar="SECONDS", help="Maximum number of seconds to wait."
    ),
]


@app.callback()
def job() -> None:
    """Groups the commands."""


@app.command()
def submit(
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="The job's type, for example echo.")],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="PAYLOAD",
            help="Payload; for a Python function, its arguments as a JSON object. - reads standard input.",
            show_default=False,
        ),
    ] = "",
    queue: Annotated[
        str, typer.Option("--queue", "-q", metavar="QUEUE", help="Queue of the job.")
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
    delay_s: Annotated[
        float,
        typer.Option(
            "--delay",
            metavar="SECONDS",
            help="Seconds before the job may run.",
            parser=number("--delay", 0, limits.DELAY_MS_MAX / 1_000),
        ),
    ] = 0,
    request_id: Annotated[
        str, typer.Option(metavar="KEY", help="Idempotency key: a repeated submit returns the first job.")
    ] = "",
    unique_key: Annotated[
        str, typer.Option(metavar="KEY", help="Returns the unfinished job of this type with the same key, if any.")
    ] = "",
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Label; repeatable.")
    ] = None,
    max_attempts: Annotated[
        int,
        typer.Option(
            parser=whole_number("--max-attempts", 1, limits.ATTEMPTS_MAX),
            metavar="N",
            help="Maximum number of attempts.",
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
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result, like `holdfast job result`.")] = False,
    timeout_s: TimeoutS = 60,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Submit a job. The job is durable once its id is printed."""
    import uuid

    from holdfast.core.model import Extra, Template
    from holdfast.core.trace_context import carrying, trace_context
    from holdfast.ports import JobDraft

    data = sys.stdin.buffer.read() if payload == "-" else os.fsencode(payload)
    labels = job_search.parse_labels(label)
    template = Template(job_type, queue, priority, max_attempts, timeout_ms=round(job_timeout_s * 1_000))
    extra = Extra(request_id=request_id, labels=tuple(labels.items()), unique_key=unique_key)
    kept = extra if extra != Extra() else None
    if context := trace_context(os.environ.get("TRACEPARENT", ""), os.environ.get("TRACESTATE", "")):
        kept = carrying(kept, context)
    # With an id chosen here, a submit whose reply was lost can be repeated without creating a second job.
    draft = JobDraft(
        payload=data,
        delay_ms=round(delay_s * 1_000),
        extra=kept,
        id=str(uuid.uuid4()),
    )
    with ServerConnection(connect, may_create=True) as server:
        job_id = server.ask(lambda client: _submit(client, template, draft))
        if not wait:
            _print_id(job_id, as_json=as_json)
            return
        say(job_id)
        found, ended = _wait(server, job_id, timeout_s)
    _finish(found, ended, as_json=as_json)


async def _submit(client: "Client", template: "Template", draft: "JobDraft") -> str:
    reply = await client.submit([template], [draft])
    for refusal in reply.refusals.values():
        raise refusal.error()
    return reply.job_ids[0]


@app.command()
def get(job_id: JobId, connect: Connect = None, as_json: Json = False) -> None:
    """Show a job, its arguments, and every attempt with its traceback."""
    from holdfast.cli.job_report import JobReport, print_report, report_json

    async def report(client: "Client") -> JobReport:
        from holdfast.server.attempts import attempts_of

        job = await client.get(job_id)
        return JobReport(job, await client.payload(job_id), await attempts_of(client, client.history, job))

    found = ask(connect, report)
    if as_json:
        print_json(report_json(found))
    else:
        print_report(found)


@app.command()
def result(
    job_id: JobId,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the job has ended.")] = True,
    timeout_s: TimeoutS = 60,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Wait for a job and print its output.

    If it failed or was canceled, prints the reason on standard error, and exits with 1.
    """
    with ServerConnection(connect) as server:
        server.ask(lambda client: client.get(job_id))  # reports a wrong id or address at once
        found, ended = _wait(server, job_id, timeout_s if wait else 0)
    _finish(found, ended, as_json=as_json)


def _wait(server: ServerConnection, job_id: str, timeout_s: float) -> "tuple[JobView, ResultView]":
    """Waits for the end of a job, also over a restart of the server; returns the job and its result."""
    end_s = time.monotonic() + timeout_s
    return server.wait_for(lambda client: _ended(client, job_id, end_s), timeout_s)


async def _ended(client: "Client", job_id: str, end_s: float) -> "tuple[JobView, ResultView]":
    """Returns the job and its result; the error on a timeout explains why the job has not ended.

    A job that no worker can run is explained after a few seconds, as `result()` of an app does.
    """
    import asyncio

    from holdfast.core.lifecycle import TERMINAL
    from holdfast.sdk.worker_check import SERVED_S, STUCK

    if (await client.get(job_id)).state in TERMINAL:
        return await client.settled(job_id)
    with suppress(TimeoutError):
        async with asyncio.timeout_at(min(end_s, time.monotonic() + SERVED_S)):
            return await client.settled(job_id)
    if time.monotonic() < end_s:
        found = await client.explain(job_id)
        if found.reason in STUCK:
            say(f"holdfast: the job waits: {found.sentence}")
    try:
        async with asyncio.timeout_at(end_s):
            return await client.settled(job_id)
    except TimeoutError:
        reason = (await client.explain(job_id)).sentence
        raise DeadlineExceededError(f"job {job_id} has not ended yet: {reason}") from None


def _finish(found: "JobView", ended: "ResultView", *, as_json: bool) -> None:
    from holdfast.cli.views import result_json
    from holdfast.core.failure import Failure, failure_of
    from holdfast.core.lifecycle import DONE
    from holdfast.core.outcomes import failure_text

    failure = failure_of(ended.output) if ended.state != DONE else Failure()
    if as_json:
        print_json(result_json(found, ended))
    elif failure == Failure():
        _print_output(ended.output)
    if ended.state != DONE:
        words = failure_text(found.failure_reason, ended.summary) or "no reason was given"
        say(f"holdfast: the job ended {ended.state.name}: {words}")
        if failure.traceback and not as_json:
            print(indented(failure.traceback), file=sys.stderr, flush=True)
        raise typer.Exit(ExitCode.JOB_FAILED)


def _print_output(output: bytes) -> None:
    """Writes the bytes unchanged; on a terminal, control characters are escaped."""
    if sys.stdout.isatty():
        text = printable_lines(output)
        print(text, end="" if text.endswith("\n") or not text else "\n")
    else:
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()


@app.command()
def cancel(
    job_id: JobId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason, stored with the job.")] = "",
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Cancel a job. A queued job ends at once; a running job is asked to stop."""
    from holdfast.core.lifecycle import RUNNING

    reply = ask(connect, lambda client: client.cancel(job_id, reason))
    if as_json:
        print_json({"job_id": job_id, "state": reply.state.name, "had_ended": reply.was_terminal})
    elif reply.was_terminal:
        print(f"the job had already ended: {reply.state.name}")
    else:
        print("the job is running and was asked to stop" if reply.state == RUNNING else "canceled")


@app.command()
def retry(
    job_id: JobId,
    request_id: Annotated[
        str, typer.Option(metavar="KEY", help="Idempotency key: a repeated retry returns the first new job.")
    ] = "",
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Submit a finished job again, as a new job, and print the new id."""
    import uuid

    request_id = request_id or f"retry-{uuid.uuid4()}"  # makes the call safe to repeat
    _print_id(ask(connect, lambda client: client.retry(job_id, request_id)), as_json=as_json)


@app.command()
def why(job_id: JobId, connect: Connect = None, as_json: Json = False) -> None:
    """Explain why a job is in its state.

    Says why it is not running, which worker runs it, or how it ended.
    """
    reply = ask(connect, lambda client: client.explain(job_id))
    if as_json:
        print_json({"job_id": job_id, "state": reply.state.name, "reason": reply.reason, "explanation": reply.sentence})
    else:
        print(printable(reply.sentence))


def _print_id(job_id: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"job_id": job_id})
    else:
        print(job_id)


app.command("list")(job_search.list_jobs)
app.command()(job_watch.watch)
app.command()(job_watch.history)
