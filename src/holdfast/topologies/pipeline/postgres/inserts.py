"""New jobs: one statement inserts all new jobs; drafts that it did not insert are compared with the existing jobs.

Invariants: unique indexes decide which of two concurrent submissions is the first; ids are generated before the
statement, so that it can be repeated after a lost response.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from psycopg.errors import UniqueViolation

from holdfast.core.commands import Refusal, Submitted
from holdfast.core.lifecycle import NOWHERE, QUEUED, TERMINAL
from holdfast.core.model import JobRecord, NewJob, Template
from holdfast.core.state_change import changes
from holdfast.core.submission import draining, is_same_submission, reused
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.postgres.arrays import byte_strings, uuids
from holdfast.topologies.pipeline.postgres.connections import StoreConnection
from holdfast.topologies.pipeline.postgres.notifier import tell
from holdfast.topologies.pipeline.postgres.row_values import (
    TEMPLATE_END,
    Row,
    extra_of,
    packed,
    searchable,
    template_of,
)

_SQL = statements(__package__, "jobs")


class ValidatedJob(NewJob, frozen=True, array_like=True, gc=False):
    """A validated job; it is due after `delay_ms` or at `not_before_ms`, whichever is later."""

    delay_ms: int = 0


class InsertSubmission:
    """One submission: its validated drafts, by their index in it."""

    def __init__(self, templates: Sequence[Template], jobs: dict[int, ValidatedJob]) -> None:
        self._templates, self._jobs = templates, jobs
        self.ids: dict[int, str] = {}
        self.existing: set[int] = set()
        self.refusals: dict[int, Refusal] = {}
        self.at_ms = 0

    @property
    def is_settled(self) -> bool:
        """Whether every draft has an id or a refusal."""
        return len(self.ids) + len(self.refusals) == len(self._jobs)

    def _open(self) -> dict[int, ValidatedJob]:
        return {at: job for at, job in self._jobs.items() if at not in self.ids and at not in self.refusals}

    async def make_new(self, connection: StoreConnection) -> None:
        """Inserts the jobs that do not exist yet. Each statement is its own transaction."""
        if self._is_plain:
            with suppress(UniqueViolation):  # one job existed already, so none was inserted
                await self._make_plain(connection)
        if not self.is_settled:
            await self._make(connection)

    async def make(self, connection: StoreConnection) -> None:
        """Inserts the jobs that do not exist yet, and notifies the watchers."""
        if await self._make(connection):
            await tell(connection, (), is_due=True)

    @property
    def _is_plain(self) -> bool:
        """Whether the jobs have only a payload, and this is the first try."""
        return (
            len(self._templates) == 1
            and not self.ids
            and not self.refusals
            and all(job.extra is None and not job.not_before_ms and not job.delay_ms for job in self._jobs.values())
        )

    async def _make_plain(self, connection: StoreConnection) -> None:
        jobs = list(self._jobs.values())
        template = self._templates[0]
        arguments = {
            "ids": uuids([job.id for job in jobs]),
            "payloads": byte_strings([job.payload for job in jobs]),
            "type": template.type,
            "queue": template.queue,
            "route": "sim" if template.simulated else template.type,
            "priority": template.priority,
            "attempts": template.max_attempts,
            "losses": template.max_losses,
            "timeout": template.timeout_ms,
            "kind": template.backoff.kind,
            "base": template.backoff.base_ms,
            "cap": template.backoff.max_ms,
            "simulated": template.simulated,
        }
        cursor = await connection.execute(_SQL["insert_plain"], arguments, binary=True)
        at_ms, count = await cursor.fetchone() or (0, 0)
        if count:
            self.at_ms = at_ms
            self.ids = {at: job.id for at, job in self._jobs.items()}
            self._keep_changes(connection, self._jobs)

    async def _make(self, connection: StoreConnection) -> bool:
        """Inserts the open drafts, and returns whether any was inserted."""
        wanted = self._open()
        cursor = await connection.execute(_SQL["insert"], self._arguments(list(wanted.values())), binary=True)
        at_ms, count, ids = await cursor.fetchone() or (0, 0, None)
        if not count:
            return False
        self.at_ms = at_ms
        made = wanted if count == len(wanted) else _made(wanted, set(ids or ()))
        self.ids |= {at: job.id for at, job in made.items()}
        self._keep_changes(connection, made)
        return True

    def _keep_changes(self, connection: StoreConnection, made: Mapping[int, ValidatedJob]) -> None:
        if connection.keeps_changes:
            marks = [(job.id, self.at_ms, 0, self._templates[job.template].priority) for job in made.values()]
            connection.changed += changes(marks, old=NOWHERE, new=QUEUED)

    def _arguments(self, jobs: Sequence[ValidatedJob]) -> dict[str, Any]:
        templates = self._templates
        extras = [job.extra for job in jobs]
        has_extra = any(extra is not None for extra in extras)
        return {
            "ids": uuids([job.id for job in jobs]),
            "templates": [job.template for job in jobs] if any(job.template for job in jobs) else None,
            "payloads": byte_strings([job.payload for job in jobs]),
            "not_before": [job.not_before_ms for job in jobs] if any(job.not_before_ms for job in jobs) else None,
            "delays": [job.delay_ms for job in jobs] if any(job.delay_ms for job in jobs) else None,
            "extras": [packed(extra) for extra in extras] if has_extra else None,
            "labels": [searchable(dict(extra.labels)) if extra else None for extra in extras] if has_extra else None,
            "request_ids": [(extra.request_id or None) if extra else None for extra in extras] if has_extra else None,
            "unique_keys": [(extra.unique_key or None) if extra else None for extra in extras] if has_extra else None,
            "types": [template.type for template in templates],
            "queues": [template.queue for template in templates],
            "priorities": [template.priority for template in templates],
            "attempts": [template.max_attempts for template in templates],
            "losses": [template.max_losses for template in templates],
            "timeouts": [template.timeout_ms for template in templates],
            "kinds": [template.backoff.kind for template in templates],
            "bases": [template.backoff.base_ms for template in templates],
            "caps": [template.backoff.max_ms for template in templates],
            "simulated": [template.simulated for template in templates],
        }

    async def find(self, connection: StoreConnection) -> None:
        """Compares the drafts that were not inserted with the existing jobs; one without a conflict stays open."""
        missing = self._open()
        jobs = list(missing.values())
        unique = [job for job in jobs if job.extra and job.extra.unique_key]
        arguments = {
            "ids": [job.id for job in jobs],
            "request_ids": [job.extra.request_id for job in jobs if job.extra and job.extra.request_id],
            "types": [self._templates[job.template].type for job in unique],
            "unique_keys": [job.extra.unique_key for job in unique if job.extra],
        }
        cursor = await connection.execute(_SQL["known"], arguments, binary=True)
        known = _KnownJobs([_job_of(row) for row in await cursor.fetchall()])
        cursor = await connection.execute(_SQL["draining"])
        closed = {row[0] for row in await cursor.fetchall()}
        for at, job in missing.items():
            self._judge(at, job, known, closed)

    def _judge(self, at: int, job: ValidatedJob, known: "_KnownJobs", closed: set[str]) -> None:
        template = self._templates[job.template]
        request_id, unique_key = (job.extra.request_id, job.extra.unique_key) if job.extra else ("", "")
        for what, key, one in (
            ("request id", request_id, known.by_request_id.get(request_id)),
            ("job id", job.id, known.by_id.get(job.id)),
        ):
            if one is not None:
                if is_same_submission(one, template, job):
                    self._found(at, one)
                else:
                    self.refusals[at] = reused(what, key)
                return
        rival = known.by_unique_key.get((template.type, unique_key)) if unique_key else None
        if rival is not None:
            self._found(at, rival)
        elif template.queue in closed:
            self.refusals[at] = draining(template.queue)

    def _found(self, at: int, job: JobRecord) -> None:
        self.ids[at] = job.id
        self.existing.add(at)

    def submitted(self, count: int, now_ms: int) -> Submitted:
        """Returns the reply for all `count` drafts."""
        ids = [self.ids.get(at, "") for at in range(count)]
        return Submitted(ids, self.at_ms or now_ms, self.refusals, frozenset(self.existing))


def _made(wanted: Mapping[int, ValidatedJob], ids: set[str]) -> dict[int, ValidatedJob]:
    """The drafts whose ids were inserted; of several with the same id, the first."""
    made: dict[int, ValidatedJob] = {}
    for at, job in wanted.items():
        if job.id in ids:
            ids.discard(job.id)
            made[at] = job
    return made


class _KnownJobs:
    """Existing jobs, by each key that a draft may share with them."""

    def __init__(self, jobs: Sequence[JobRecord]) -> None:
        self.by_id = {job.id: job for job in jobs}
        self.by_request_id = {job.request_id: job for job in jobs if job.request_id}
        self.by_unique_key = {
            (job.template.type, job.unique_key): job for job in jobs if job.unique_key and job.state not in TERMINAL
        }


def _job_of(row: Row) -> JobRecord:
    state, number, created_ms, extra, payload = row[TEMPLATE_END:]
    return JobRecord(row[0], template_of(row), payload, number, created_ms, extra=extra_of(extra), state=state)
