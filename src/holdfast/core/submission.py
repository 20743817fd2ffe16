"""Sorts the jobs of one submission into new, existing and refused ones.

A job exists already if one is found by its request id, its own id, or its unique key; they are checked in this order.
With the first two, the submission is a repetition and must equal the first one. A unique key refers to a job of any
submitter, so only the type must match. Existing jobs are found even if their queue takes no new jobs. A batch is judged
as if its jobs were submitted one after the other.
"""

import msgspec

from holdfast.core.commands import Decision, Refusal, Submit, Submitted
from holdfast.core.events import Created
from holdfast.core.model import Extra, JobRecord, NewJob, Now, QueueMode, Template
from holdfast.core.state import LedgerState
from holdfast.core.validation import bad_given_id, check_job, is_given_id
from holdfast.errors import Code


class LedgerSubmission:
    """Sorts the jobs of one submission."""

    __slots__ = ("_command", "_existing", "_keys", "_new", "_now", "_refusals", "_state", "_taken", "_unique")

    def __init__(self, state: LedgerState, command: Submit, now: Now) -> None:
        self._state, self._command, self._now = state, command, now
        self._new: list[NewJob] = []
        #: The new jobs of this batch: by id, by request id, by type and unique key.
        self._taken: dict[str, NewJob] = {}
        self._keys: dict[str, NewJob] = {}
        self._unique: dict[tuple[str, str], NewJob] = {}
        self._existing: set[int] = set()
        self._refusals: dict[int, Refusal] = {}

    def decide(self) -> Decision:
        """One event for all new jobs, and a reply for each job."""
        command, now_ms = self._command, self._now.log_ms
        jobs, taken, new, ids = self._state.jobs, self._taken, self._new, list[str]()
        count, closed, checks_ids = len(command.templates), self._closed_templates(), command.are_ids_given
        for index, job in enumerate(command.jobs):
            refusal = check_job(job, count, now_ms)
            if checks_ids and refusal is None and not is_given_id(job.id):
                refusal = bad_given_id(job.id)
            job_id, extra = job.id, job.extra
            is_plain = (extra is None or not (extra.request_id or extra.unique_key)) and job.template not in closed
            if refusal is None and is_plain and job_id not in jobs and job_id not in taken:
                taken[job_id] = job
                new.append(job)
                ids.append(job_id)
            else:
                ids.append(self._refuse(index, refusal) if refusal else self._settle(index, job, closed))
        event = Created(now_ms, command.templates, new) if new else None
        return Decision(event, Submitted(ids, now_ms, self._refusals, frozenset(self._existing)))

    def _closed_templates(self) -> frozenset[int]:
        """The indexes of the templates whose queue is draining."""
        modes = self._state.modes
        if not modes:
            return frozenset()
        closures = [modes.get(template.queue) for template in self._command.templates]
        return frozenset(i for i, one in enumerate(closures) if one is not None and one.mode == QueueMode.DRAINING)

    def _refuse(self, index: int, refusal: Refusal) -> str:
        self._refusals[index] = refusal
        return ""

    def _settle(self, index: int, job: NewJob, closed: frozenset[int]) -> str:
        """Returns the id of the new or existing job, or records a refusal and returns an empty string."""
        template = self._command.templates[job.template]
        request_id, unique_key = (job.extra.request_id, job.extra.unique_key) if job.extra else ("", "")
        for what, key, known in (
            ("request id", request_id, self._by_request_id(request_id)),
            ("job id", job.id, self._by_id(job.id)),
        ):
            if known is not None:
                is_same = self._is_same(known, template, job)
                return self._find(index, known) if is_same else self._refuse(index, reused(what, key))
        name = (template.type, unique_key)
        rival = self._by_unique_key(name)
        if rival is not None:
            return self._find(index, rival)
        if job.template in closed:
            return self._refuse(index, draining(template.queue))
        return self._take(job, request_id, name)

    def _find(self, index: int, known: JobRecord | NewJob) -> str:
        self._existing.add(index)
        return known.id

    def _take(self, job: NewJob, request_id: str, name: tuple[str, str]) -> str:
        self._taken[job.id] = job
        if request_id:
            self._keys[request_id] = job
        if name[1]:
            self._unique[name] = job
        self._new.append(job)
        return job.id

    def _by_request_id(self, key: str) -> JobRecord | NewJob | None:
        return (self._keys.get(key) or self._state.dedup.find(key)) if key else None

    def _by_id(self, job_id: str) -> JobRecord | NewJob | None:
        return self._taken.get(job_id) or self._state.jobs.get(job_id)

    def _by_unique_key(self, name: tuple[str, str]) -> JobRecord | NewJob | None:
        return (self._unique.get(name) or self._state.unique.get(name)) if name[1] else None

    def _is_same(self, known: JobRecord | NewJob, template: Template, job: NewJob) -> bool:
        if isinstance(known, JobRecord):
            return is_same_submission(known, template, job)
        known_template = self._command.templates[known.template]
        is_alike = known_template == template and known.payload == job.payload
        return is_alike and _is_same_extra(known.extra, job.extra)


def is_same_submission(job: JobRecord, template: Template, new: NewJob) -> bool:
    """Whether a repeated submission equals the first one. The due time is not compared."""
    return job.template == template and job.payload == new.payload and _is_same_extra(job.extra, new.extra)


def _is_same_extra(one: Extra | None, other: Extra | None) -> bool:
    """Compares without headers: each try of a submission has its own trace context there."""
    if one == other:
        return True
    return _without_headers(one) == _without_headers(other)


def _without_headers(extra: Extra | None) -> Extra:
    return msgspec.structs.replace(extra, headers=()) if extra is not None else Extra()


def reused(what: str, key: str) -> Refusal:
    """The refusal of a key that belongs to a different job."""
    reason = f"{what.replace(' ', '_').upper()}_REUSED"
    return Refusal(Code.FAILED_PRECONDITION, reason, f"{what} {key!r} was used with another job; use a new {what}")


def draining(queue: str) -> Refusal:
    """The refusal of a job whose queue is draining."""
    message = f"the queue {queue!r} is draining and takes no new jobs; use another queue, or try again once it is open"
    return Refusal(Code.FAILED_PRECONDITION, "QUEUE_DRAINING", message)
