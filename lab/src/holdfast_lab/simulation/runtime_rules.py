"""Checks of real workers and real clients, which hold for any fault of their connections.

A lease whose job a worker has begun is not revoked as not running. The recorded outcome of a token is that of its
attempt. A submit creates one job, and a submit that may not be repeated is sent once.
"""

from holdfast.core.commands import Submit, Submitted
from holdfast.core.events import AnyEvent, Created, Reported, Revoked
from holdfast.core.lifecycle import CANCELED, DONE
from holdfast.core.model import NewJob, Template
from holdfast.ports import Assignment, JobDraft
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.violation import require
from holdfast_lab.simulation.witness import LogWitness

#: The worker reconnected without naming the lease.
_NOT_RUNNING = "not-running"
_MARK_END = b"/"


class Attempt:
    """One run of a job by a real worker."""

    __slots__ = ("end", "is_lost", "job_id", "token", "worker")

    def __init__(self, worker: str, assignment: Assignment) -> None:
        self.worker = worker
        self.job_id = assignment.job_id
        self.token = assignment.token
        #: State and output, once its handler has returned or raised by itself.
        self.end: tuple[int, bytes] | None = None
        #: Its worker died during it.
        self.is_lost = False


class RuntimeRules:
    """Receives every durable event, and notifications from real workers and clients."""

    def __init__(self, log: LogWitness, response_checks: ResponseChecks) -> None:
        self._log = log
        self._response_checks = response_checks
        self._attempts: dict[int, Attempt] = {}
        #: Leases that were revoked, some of them while in transit to a worker.
        self._revoked: set[int] = set()
        self._made: dict[bytes, str] = {}
        self._once: set[bytes] = set()
        log.listeners.append(self._heard)

    # -- workers

    def begun(self, worker: str, assignment: Assignment) -> Attempt:
        """Records that a handler starts."""
        self._response_checks.leased(worker, [assignment])
        self._response_checks.started(worker, assignment)
        attempt = self._attempts[assignment.token] = Attempt(worker, assignment)
        return attempt

    def died(self, worker: str) -> None:
        """Records the death of a worker's process, with all attempts that it had not reported."""
        for attempt in self._attempts.values():
            if attempt.worker == worker and not self._log.has_outcome(attempt.token):
                attempt.is_lost = True

    def check_end(self) -> None:
        """Checks that every attempt has an outcome under its token, or its worker died, or its lease was revoked."""
        for token, attempt in self._attempts.items():
            is_settled = self._log.has_outcome(token) or attempt.is_lost or token in self._revoked
            require(is_settled, f"{attempt.worker} ran {attempt.job_id} under token {token}, and no outcome is known")

    # -- clients

    def sent(self, mark: bytes, *, is_repeatable: bool) -> None:
        """Records a submit of a job whose payload begins with the mark."""
        if not is_repeatable:
            self._once.add(mark)

    def answered(self, templates: list[Template], drafts: list[JobDraft], reply: Submitted) -> None:
        """Checks a response that has arrived; ids that the server made are taken from it."""
        jobs = [
            NewJob(draft.id or job_id, draft.template, draft.payload, draft.not_before_ms, draft.extra)
            for draft, job_id in zip(drafts, reply.job_ids, strict=True)
        ]
        self._response_checks.submitted_reply(Submit(templates, jobs), reply)
        self._response_checks.count("runtime submit")

    # -- the log

    def _heard(self, event: AnyEvent) -> None:
        if type(event) is Created:
            for job in event.jobs:
                self._check_single(job)
        elif type(event) is Reported:
            for result in event.results:
                self._check_outcome(result.token, result.state, result.output)
        elif type(event) is Revoked:
            for row in event.rows:
                self._check_revoked(row.token, event.reason)

    def _check_single(self, job: NewJob) -> None:
        if not job.payload.startswith(b"runtime-client"):
            return
        mark = job.payload.partition(_MARK_END)[0]
        first = self._made.setdefault(mark, job.id)
        is_first = first == job.id
        is_again = not is_first and self._log.is_kept(first)
        require(not is_again, f"submission {mark!r} made the job {job.id} while its job {first} was kept")
        require(is_first or mark not in self._once, f"submission {mark!r}, sent once, made the jobs {first}, {job.id}")
        self._made[mark] = job.id

    def _check_outcome(self, token: int, state: int, output: bytes) -> None:
        attempt = self._attempts.get(token)
        if attempt is None or attempt.end is None or state == CANCELED:
            return
        ended, said = attempt.end
        require((ended == DONE) == (state == DONE), f"token {token} ended as {ended} and stands as {state}")
        require(state != DONE or output == said, f"the output under token {token} is not what its handler returned")
        self._response_checks.count("runtime report")

    def _check_revoked(self, token: int, reason: str) -> None:
        self._revoked.add(token)
        attempt = self._attempts.get(token)
        is_forgotten = attempt is not None and reason == _NOT_RUNNING and not attempt.is_lost
        require(not is_forgotten, f"a worker returned without naming the lease {token}, whose job it has begun")
