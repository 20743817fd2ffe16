"""The jobs of the demo, and the required end of each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast import Job, JobView, State
from holdfast_lab.demo.jobs import app, backup, fetch, flaky, invoice, primes, report, thumbnail

#: The first two calls of the flaky job fail.
_CALLS = 3


class Group(msgspec.Struct, frozen=True):
    """Jobs of one kind: what they demonstrate, and the state in which all must end."""

    name: str
    shows: str
    jobs: list[Job[Any]]
    expected: State = State.DONE


class DemoPlan(msgspec.Struct, frozen=True):
    """All groups, and the jobs whose details the demo shows."""

    groups: list[Group]
    recovered: Job[str]
    flaky: Job[int]
    failing: Job[int]
    canceled: Job[str]


def submit(folder: Path) -> DemoPlan:
    """Submit all jobs; they are durable when this returns."""
    app.pause("nightly", "nothing runs by day")
    recovered, failing, canceled = backup.submit(60), invoice.submit(total=90, items=0), report.submit("Monday")
    retried = flaky.submit(str(folder / "tally"), _CALLS)
    images = [(f"image-{number}.png", 200) for number in range(24)]
    pages = [(f"https://example.org/{number}",) for number in range(24)]
    groups = [
        Group("backup", "its worker is killed", [recovered]),
        Group("thumbnail", "in threads", thumbnail.submit_many(images)),
        Group("fetch", "coroutines", fetch.submit_many(pages)),
        Group("primes", "in processes", primes.submit_many([(2_000_000,)] * 4)),
        Group("sim", "a built-in type", [app.submit("sim") for _ in range(6)]),
        Group("flaky", "fails twice", [retried]),
        Group("invoice", "fails for good", [failing], State.FAILED),
        Group("report", "canceled", [canceled], State.CANCELED),
    ]
    return DemoPlan(groups, recovered, retried, failing, canceled)


def problems(plan: DemoPlan, views: Mapping[str, JobView], killed: str) -> list[str]:
    """A sentence for each job that did not end as required."""
    wrong = [
        f"a job of {group.name} ended {views[job.id].state.name}, not {group.expected.name}"
        for group in plan.groups
        for job in group.jobs
        if views[job.id].state != group.expected
    ]
    return [*wrong, *_problems_with_retries(plan.flaky, views), *_problems_with_recovery(plan.recovered, views, killed)]


def _problems_with_retries(job: Job[int], views: Mapping[str, JobView]) -> list[str]:
    failures = views[job.id].failures
    return [] if failures == _CALLS - 1 else [f"the flaky job failed {failures} times, not {_CALLS - 1}"]


def _problems_with_recovery(job: Job[str], views: Mapping[str, JobView], killed: str) -> list[str]:
    happened = job.history()
    losses = [entry for entry in happened if entry.what == "lease lost" and entry.worker == killed]
    grants = [entry for entry in happened if entry.what == "granted"]
    if views[job.id].losses != 1 or len(losses) != 1:
        return [f"the killed worker lost the backup {len(losses)} times, not once"]
    if len(grants) != 2 or grants[-1].worker == killed:  # noqa: PLR2004 - the first grant and the second
        return [f"the backup was granted to {[grant.worker for grant in grants]}, not to one worker and then the other"]
    return []


def ended(group: Group, views: Mapping[str, JobView]) -> int:
    """The number of ended jobs of a group."""
    return sum(views[job.id].state > State.RUNNING for job in group.jobs)


def all_jobs(groups: Sequence[Group]) -> list[Job[Any]]:
    """The jobs of all groups."""
    return [job for group in groups for job in group.jobs]
