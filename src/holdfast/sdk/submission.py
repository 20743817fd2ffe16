"""Submission of jobs: one, or many in batches of which several are in flight at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import limits
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.core.trace_context import TraceContext
from holdfast.errors import HoldfastError
from holdfast.observe.tracing import SpanSubject, SubmissionTracer
from holdfast.ports import JobDraft
from holdfast.sdk.codec import Codec
from holdfast.sdk.errors import SubmitManyError
from holdfast.sdk.job import Job
from holdfast.sdk.options import CheckedOptions

if TYPE_CHECKING:
    from holdfast.sdk.connection import AppConnection
    from holdfast.sdk.portal import Portal

#: More batches in flight gain nothing: the coordinator commits concurrent batches as a group.
_IN_FLIGHT = 4


class SubmissionItem(NamedTuple):
    """One job to submit: its options, its payload, and the codec of its result."""

    plan: CheckedOptions
    payload: bytes
    codec: Callable[[], Codec] | None = None


class Submitter:
    """Submits jobs over one connection. It makes the job ids, so that it can repeat a submission without a reply."""

    def __init__(self, connection: "AppConnection") -> None:
        self._connection = connection
        self._tracer = SubmissionTracer()

    def one(self, item: SubmissionItem) -> Job[Any]:
        """Submits a job; durable when this returns. Makes a blocking call if the link has one, else uses the portal."""
        job_id = self._connection.mint()
        with self._tracer.submission_scope(_about(item, job_id)) as submission_scope:
            job = self._one(item, [item.plan.draft(job_id, item.payload, context=submission_scope.context)])
            submission_scope.accepted(job.id)
            return job

    def _one(self, item: SubmissionItem, drafts: list[JobDraft]) -> Job[Any]:
        templates = [item.plan.template]
        blocking_calls = self._connection.blocking_calls()
        if blocking_calls is not None:
            try:
                return self._accepted(blocking_calls.submit(templates, drafts), 0, item)
            except HoldfastError as error:
                if not error.retryable:
                    raise
                # The link repeats the submit. The same id makes that safe.
        return self._portal().run(lambda: self._send_one(item, templates, drafts))

    async def aone(self, item: SubmissionItem) -> Job[Any]:
        """Async version of `one`."""
        job_id = self._connection.mint()
        with self._tracer.submission_scope(_about(item, job_id)) as submission_scope:
            templates = [item.plan.template]
            drafts = [item.plan.draft(job_id, item.payload, context=submission_scope.context)]
            job = await self._portal().arun(lambda: self._send_one(item, templates, drafts))
            submission_scope.accepted(job.id)
            return job

    async def _send_one(self, item: SubmissionItem, templates: list[Template], drafts: list[JobDraft]) -> Job[Any]:
        submitted = await self._connection.call(lambda ports: ports.jobs.submit(templates, drafts))
        return self._accepted(submitted, 0, item)

    def many(self, items: list[SubmissionItem]) -> list[Job[Any]]:
        """Submits all jobs; if some are not accepted, raises SubmitManyError with the others."""
        if not items:
            return []
        with self._tracer.submission_scope(_about(items[0]), len(items)) as submission_scope:
            return self._portal().run(lambda: self._many(items, submission_scope.context))

    async def amany(self, items: list[SubmissionItem]) -> list[Job[Any]]:
        """Async version of `many`."""
        if not items:
            return []
        with self._tracer.submission_scope(_about(items[0]), len(items)) as submission_scope:
            return await self._portal().arun(lambda: self._many(items, submission_scope.context))

    async def _many(self, items: list[SubmissionItem], context: TraceContext | None) -> list[Job[Any]]:
        import asyncio

        limit = asyncio.Semaphore(_IN_FLIGHT)
        jobs: list[Job[Any] | None] = [None] * len(items)
        errors: dict[int, HoldfastError] = {}

        async def send(start: int, batch: list[SubmissionItem]) -> None:
            async with limit:
                outcomes = await self._batch(batch, context)
            for index, outcome in enumerate(outcomes, start):
                if isinstance(outcome, Job):
                    jobs[index] = outcome
                else:
                    errors[index] = outcome

        await asyncio.gather(*(send(start, batch) for start, batch in _batches(items)))
        if errors:
            raise SubmitManyError(jobs, errors)
        return [job for job in jobs if job is not None]

    async def _batch(
        self, items: Sequence[SubmissionItem], context: TraceContext | None
    ) -> list[Job[Any] | HoldfastError]:
        templates: dict[Template, int] = {}
        drafts: list[JobDraft] = []
        for (plan, payload, _), job_id in zip(items, self._connection.mint_many(len(items)), strict=True):
            number = templates.setdefault(plan.template, len(templates))
            drafts.append(plan.draft(job_id, payload, number, context))
        try:
            submitted = await self._connection.call(lambda ports: ports.jobs.submit(list(templates), drafts))
        except HoldfastError as error:
            return [error] * len(items)
        if not submitted.refusals and not submitted.existing:
            connection = self._connection
            return [Job(connection, job_id, item.codec) for job_id, item in zip(submitted.job_ids, items, strict=True)]
        return [self._outcome(submitted, index, item) for index, item in enumerate(items)]

    def _outcome(self, submitted: Submitted, index: int, item: SubmissionItem) -> Job[Any] | HoldfastError:
        try:
            return self._accepted(submitted, index, item)
        except HoldfastError as error:
            return error

    def _accepted(self, submitted: Submitted, index: int, item: SubmissionItem) -> Job[Any]:
        refusal = submitted.refusals.get(index)
        if refusal is not None:
            raise refusal.error()
        is_existing = index in submitted.existing
        return Job(self._connection, submitted.job_ids[index], item.codec, is_existing=is_existing)

    def _portal(self) -> "Portal":
        return self._connection.portal()


def _about(item: SubmissionItem, job_id: str = "") -> SpanSubject:
    """The attributes of the span of a submission; all jobs of one call have the same type and queue."""
    template = item.plan.template
    return SpanSubject(template.queue, template.type, job_id, item.plan.options.headers)


def _batches(items: Sequence[SubmissionItem]) -> Iterator[tuple[int, list[SubmissionItem]]]:
    """Splits items into batches that each fit into one submission, with the index of their first item."""
    start, size = 0, 0
    for index, item in enumerate(items):
        size += len(item.payload)
        if index > start and (index - start == limits.BATCH_JOBS_MAX or size > limits.BATCH_BYTES_MAX):
            yield start, list(items[start:index])
            start, size = index, len(item.payload)
    if items:
        yield start, list(items[start:])
