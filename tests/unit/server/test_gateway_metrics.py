"""Metrics of a gateway."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import Refusal, Submitted
from holdfast.core.model import Template
from holdfast.errors import Code, NotFoundError
from holdfast.observe.metrics import OTHER, SERIES_MAX
from holdfast.ports import JobApi, JobDraft, JobView
from holdfast.server.backend import Backend
from holdfast.server.gateway_metrics import GatewayMetrics


class Some:
    """Accepts the first of every three drafts, finds the second as existing, refuses the third; has no jobs."""

    async def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        refused = {place: Refusal(Code.ABORTED, "NO", "no") for place in range(2, len(drafts), 3)}
        ids = ["" if place in refused else str(place) for place in range(len(drafts))]
        return Submitted(ids, 1, refused, frozenset(range(1, len(drafts), 3)))

    async def get(self, job_id: str) -> JobView:
        raise NotFoundError(job_id, reason="JOB_NOT_FOUND")


def counted() -> tuple[GatewayMetrics, JobApi]:
    metrics = GatewayMetrics(Backend(cast("Any", Some()), declared=Capabilities("some", frozenset())))
    return metrics, metrics.backend.jobs


async def test_only_jobs_that_are_new_are_counted() -> None:
    """Submitted jobs are counted only if they are new, not if they exist already or are refused."""
    metrics, jobs = counted()
    await jobs.submit([Template("a"), Template("b")], [JobDraft(template=place % 2) for place in range(6)])
    page = (await metrics.page()).decode().splitlines()
    assert 'holdfast_jobs_submitted_total{queue="default",type="a"} 1.0' in page
    assert 'holdfast_jobs_submitted_total{queue="default",type="b"} 1.0' in page
    assert 'holdfast_gateway_call_seconds_count{call="submit"} 1.0' in page


async def test_calls_are_counted_by_how_they_end() -> None:
    """A failed call is counted by its error code, and its error reaches the caller unchanged."""
    metrics, jobs = counted()
    for _ in range(2):
        with pytest.raises(NotFoundError, match="x"):
            await jobs.get("x")
    assert 'holdfast_gateway_calls_total{call="get",code="NOT_FOUND"} 2.0' in (await metrics.page()).decode()


async def test_names_that_clients_make_up_do_not_fill_the_memory() -> None:
    """Above the limit of series, names chosen by clients are counted together."""
    metrics, jobs = counted()
    for number in range(SERIES_MAX + 5):
        await jobs.submit([Template(f"t{number}")], [JobDraft()])
    page = (await metrics.page()).decode()
    assert page.count("holdfast_jobs_submitted_total{") == SERIES_MAX + 1
    assert f'holdfast_jobs_submitted_total{{queue="{OTHER}",type="{OTHER}"}} 5.0' in page
