"""`holdfast job list`: lists the jobs that match filters."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import limits
from holdfast.cli.connection import Connect, ask
from holdfast.cli.number_options import whole_number
from holdfast.cli.text import Json, print_json, say
from holdfast.cli.times import moment_ms
from holdfast.core.lifecycle import State
from holdfast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from holdfast.client.link import Client
    from holdfast.ports import JobQuery, JobView


def complete_state() -> list[str]:
    """Returns the states, for shell completion."""
    return [state.name for state in State]


def list_jobs(
    state: Annotated[
        list[str] | None,
        typer.Option(
            *("--state", "-s"),
            metavar="STATE",
            help="Only jobs in this state; repeatable.",
            autocompletion=complete_state,
        ),
    ] = None,
    queue: Annotated[str, typer.Option("--queue", "-q", metavar="QUEUE", help="Only jobs of this queue.")] = "",
    job_type: Annotated[str, typer.Option("--type", "-t", metavar="TYPE", help="Only jobs of this type.")] = "",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Only jobs with this label; repeatable."),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Only jobs created since this time: 2026-11-15T12:00, or an age such as 10m."
        ),
    ] = "",
    before: Annotated[str, typer.Option(metavar="TIME", help="Only jobs created before this time.")] = "",
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", parser=whole_number("--limit", 1), metavar="N", help="Maximum number of jobs."),
    ] = 20,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="List the oldest jobs first.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    from holdfast.ports import JobQuery

    query = JobQuery(
        states=frozenset(_state(text) for text in state or ()),
        queue=queue,
        type=job_type,
        labels=parse_labels(label),
        created_from_ms=moment_ms(since, "--since"),
        created_before_ms=moment_ms(before, "--before"),
        oldest_first=oldest_first,
    )
    jobs, has_more = ask(connect, lambda client: _collect(client, query, limit))
    from holdfast.cli.views import job_json, print_jobs

    if as_json:
        print_json([job_json(job) for job in jobs])
    else:
        print_jobs(jobs)
        if has_more:
            say(f"holdfast: only {len(jobs)} jobs are shown and there are more; see --limit")


async def _collect(client: "Client", query: "JobQuery", limit: int) -> "tuple[list[JobView], bool]":
    """Reads pages up to the limit; a page may be empty although more follow. Also returns whether there are more."""
    jobs: list[JobView] = []
    cursor = ""
    while True:
        found = await client.find(query, cursor, min(limit + 1 - len(jobs), limits.PAGE_SIZE_MAX))
        jobs += found.jobs
        cursor = found.cursor
        if not cursor or len(jobs) > limit:
            return jobs[:limit], len(jobs) > limit


def parse_labels(given: list[str] | None) -> dict[str, str]:
    """Parses the labels of the command line."""
    labels: dict[str, str] = {}
    for text in given or ():
        key, separator, value = text.partition("=")
        if not (key and separator):
            raise InvalidArgumentError(f"--label must be KEY=VALUE, got {text!r}")
        labels[key] = value
    return labels


def _state(text: str) -> State:
    try:
        return State[text.upper()]
    except KeyError:
        known = ", ".join(state.name for state in State)
        raise InvalidArgumentError(f"--state must be one of {known}, got {text!r}") from None
