"""TaskManager: accepts, cancels and removes jobs.

Decisions read the state and change nothing; `apply_*` methods change the state and decide nothing.
"""

from holdfast import limits
from holdfast.core.commands import Cancel, CancelQueued, CancelReply, Decision, Evict, Refusal, Submit
from holdfast.core.events import CancelAccepted, Created, Evicted, QueuedCanceled, Retired
from holdfast.core.footprint import job_bytes, text_bytes
from holdfast.core.lane import FRESH
from holdfast.core.lifecycle import CANCELED, NOWHERE, QUEUED, RUNNING, TERMINAL, State
from holdfast.core.model import Extra, JobRecord, Now, Result, Template
from holdfast.core.retention import to_forget
from holdfast.core.state import LedgerState, unique_name
from holdfast.core.submission import LedgerSubmission
from holdfast.core.validation import check_batch, check_reason, check_template, invalid
from holdfast.errors import Code

_ID_EXAMPLE = "3e06fbba-97c5-4d8e-9a41-5b2f0c6d7e18"
_ID_CHARS = len(_ID_EXAMPLE)


class TaskManager:
    """The part of the ledger that creates and removes jobs."""

    __slots__ = ("_memory_bytes", "_state")

    def __init__(self, state: LedgerState, memory_bytes: int = 0) -> None:
        """New jobs are refused while held jobs take more than `memory_bytes`; 0 means no limit."""
        self._state = state
        self._memory_bytes = memory_bytes

    # -- decisions

    def submit(self, command: Submit, now: Now) -> Decision | Refusal:
        """One event for all new jobs; a repeated submission gets the job of the first one."""
        refusal = (
            check_batch([job.payload for job in command.jobs], len(command.templates))
            or self._check_templates(command.templates)
            or self.no_room(len(command.jobs), len(command.templates))
        )
        return refusal or LedgerSubmission(self._state, command, now).decide()

    def _check_templates(self, templates: list[Template]) -> Refusal | None:
        """Checks templates, except those that equal an accepted one."""
        for template in templates:
            refusal = None if self._state.is_known(template) else check_template(template)
            if refusal:
                return refusal
        return None

    def no_room(self, jobs: int, templates: int) -> Refusal | None:
        """The refusal of this many more jobs and templates, if a limit is reached."""
        state = self._state
        if len(state.jobs) + jobs > limits.JOBS_HELD_MAX:
            message = (
                f"the limit of {limits.JOBS_HELD_MAX} held jobs is reached; try again when finished jobs were removed"
            )
            return Refusal(Code.RESOURCE_EXHAUSTED, "TOO_MANY_JOBS", message)
        if len(state.ready.lanes) + templates > limits.LANES_MAX:
            message = f"the limit of {limits.LANES_MAX} kinds of waiting jobs is reached; use fewer queues and types"
            return Refusal(Code.RESOURCE_EXHAUSTED, "TOO_MANY_LANES", message)
        if 0 < self._memory_bytes < state.bytes_held:
            message = (
                f"held jobs take {state.bytes_held:,} bytes of memory, and the limit memory_bytes is"
                f" {self._memory_bytes:,}; try again when finished jobs were removed, or raise memory_bytes"
            )
            return Refusal(Code.RESOURCE_EXHAUSTED, "TOO_MANY_BYTES", message)
        return None

    def cancel(self, command: Cancel, now: Now) -> Decision | Refusal:
        """Ends a queued job, marks a running one once, and leaves a finished one unchanged."""
        refusal = check_reason(command.reason)
        if refusal:
            return refusal
        job = self._state.jobs.get(command.job_id)
        if job is None:
            return unknown_job(command.job_id)
        if job.state in TERMINAL:
            return Decision(None, CancelReply(State(job.state), was_terminal=True))
        if job.cancel_requested:
            return Decision(None, CancelReply(State(job.state), was_terminal=False, token=job.token))
        state = CANCELED if job.state == QUEUED else RUNNING
        event = CancelAccepted(now.log_ms, job.id, state, command.reason)
        return Decision(event, CancelReply(state, was_terminal=False, token=job.token))

    def cancel_queued(self, command: CancelQueued, now: Now) -> Decision | Refusal:
        """One event for the jobs that are still queued; the others are unchanged."""
        if len(command.job_ids) > limits.BATCH_JOBS_MAX:
            rule = f"expected at most {limits.BATCH_JOBS_MAX} jobs to cancel, got {len(command.job_ids)}"
            return invalid("BATCH_SIZE_INVALID", rule)
        refusal = check_reason(command.reason)
        if refusal:
            return refusal
        jobs = self._state.jobs
        found = [jobs[job_id] for job_id in dict.fromkeys(command.job_ids) if job_id in jobs]
        ids = [job.id for job in found if job.state == QUEUED]
        return Decision(QueuedCanceled(now.log_ms, ids, command.reason) if ids else None, ids)

    def evict(self, command: Evict, now: Now) -> Decision:
        """Removes finished jobs that exceed the limits of age, number or size."""
        others, failed = to_forget(self._state.finished, command, now.log_ms)
        return Decision(Retired(now.log_ms, others, failed) if others + failed else None, others + failed)

    # -- application

    def apply_created(self, event: Created) -> None:
        """Appends new jobs to their lanes."""
        state, at_ms = self._state, event.at_ms
        templates = [state.intern(template) for template in event.templates]
        lanes = [state.ready.lane(template.queue, template.route, template.priority) for template in templates]
        chunk = state.listing.chunk_for(at_ms)
        listed = state.listing.jobs_in(chunk)
        jobs, number = state.jobs, state.next_number
        for row in event.jobs:
            job = JobRecord(
                row.id,
                templates[row.template],
                row.payload,
                number,
                at_ms,
                row.not_before_ms,
                row.extra,
                NOWHERE,
            )
            number += 1
            job.chunk = chunk
            jobs[row.id] = job
            listed.append(job)
            state.grow(job_bytes(row.id, row.payload, row.extra))
            state.enter(job, QUEUED)
            if row.extra is not None:
                _keep_keys(state, job, row.extra)
            if row.not_before_ms > at_ms:
                state.ready.put_delayed(job)
            else:
                lane = lanes[row.template]
                lane.fresh.append(job)
                job.place = FRESH
                lane.ready += 1
        state.next_number = number
        state.ready.filled(lanes)

    def apply_cancel(self, event: CancelAccepted) -> None:
        """Ends a queued job, or marks a running one."""
        state, job = self._state, self._state.jobs[event.job_id]
        if event.state == RUNNING:
            assert job.state == RUNNING
            state.lift(job)
            job.cancel_requested, job.cancel_reason = True, event.reason
            state.grow(text_bytes(event.reason))
            state.touch(job)
            return
        _end_queued(state, job, event.reason, event.at_ms)

    def apply_queued_canceled(self, event: QueuedCanceled) -> None:
        """Ends queued jobs."""
        for job_id in event.job_ids:
            _end_queued(self._state, self._state.jobs[job_id], event.reason, event.at_ms)

    def apply_evicted(self, event: Evicted) -> list[JobRecord]:
        """Removes and returns the oldest finished jobs."""
        finished = self._state.finished
        return self._forget([finished.pop_oldest() for _ in range(event.count)])

    def apply_retired(self, event: Retired) -> list[JobRecord]:
        """Removes and returns the oldest finished jobs of each kind."""
        finished = self._state.finished
        gone = [finished.pop_other() for _ in range(event.others)]
        return self._forget([*gone, *(finished.pop_failed() for _ in range(event.failed))])

    def _forget(self, jobs: list[JobRecord]) -> list[JobRecord]:
        for job in jobs:
            self._state.forget(job)
        return jobs


def _keep_keys(state: LedgerState, job: JobRecord, extra: Extra) -> None:
    if extra.request_id:
        state.dedup.add(extra.request_id, job)
    if extra.unique_key:
        state.unique[unique_name(job)] = job


def _end_queued(state: LedgerState, job: JobRecord, reason: str, at_ms: int) -> None:
    assert job.state != RUNNING, "only its worker or the end of its lease ends a running job"
    state.leave(job, CANCELED)
    job.cancel_requested = True
    state.ready.take(job)
    end(state, job, Result(0, CANCELED, summary=reason), at_ms)


def end(state: LedgerState, job: JobRecord, result: Result, at_ms: int) -> None:
    """Moves a job that has left its state to a terminal state, with its result."""
    job.result = result
    job.finished_ms = at_ms
    state.enter(job, result.state)
    state.finish(job, at_ms)


def unknown_job(job_id: str) -> Refusal:
    """The refusal of an unknown id: the job never existed, or it finished and was removed."""
    shown = job_id if len(job_id) <= limits.JOB_ID_CHARS_MAX else job_id[: limits.JOB_ID_CHARS_MAX] + "..."
    form = "" if len(job_id) == _ID_CHARS else f"; a complete id has {_ID_CHARS} characters, such as {_ID_EXAMPLE}"
    message = f"no job {shown!r}: it never existed, or it finished and was removed{form}"
    return Refusal(Code.NOT_FOUND, "JOB_NOT_FOUND", message)
