"""Checks of responses against the log.

A response is checked when it leaves the coordinator, whether or not it arrives. Its content must be durable then. It
stays true, because the log only grows and every recovery is compared with it. Runs of jobs are counted in the workers.
"""

from collections.abc import Collection, Sequence

from holdfast.core import commands
from holdfast.core.commands import (
    CancelReply,
    GrantedLease,
    Refusal,
    ReportReply,
    ReportRow,
    Submit,
    Submitted,
)
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import CANCELED, DONE, TERMINAL
from holdfast.core.model import Extra, NewJob, QueueMode, Template
from holdfast.ports import Assignment
from holdfast_lab.simulation.ledger_view import view_job
from holdfast_lab.simulation.violation import require
from holdfast_lab.simulation.witness import LogWitness


class JobSeen:
    """One job as a read showed it, and the position of the read."""

    __slots__ = ("job_id", "position", "view")

    def __init__(self, ledger: Ledger, job_id: str) -> None:
        self.job_id = job_id
        self.position = ledger.position
        self.view = view_job(ledger.job(job_id))


class PageSeen:
    """A page of a list, and the position of the read."""

    __slots__ = ("has_more", "ids", "newest_first", "offset", "position", "size", "states")

    def __init__(self, ledger: Ledger, states: frozenset[int], offset: int, size: int, *, newest_first: bool) -> None:
        self.position = ledger.position
        self.states = states
        self.offset = offset
        self.size = size
        self.newest_first = newest_first
        jobs, self.has_more = ledger.page(states, offset, size, newest_first=newest_first)
        self.ids = [job.id for job in jobs]


def _extra(job: NewJob) -> Extra:
    return job.extra or Extra()


class ResponseChecks:
    """Checks every response."""

    def __init__(self, log: LogWitness) -> None:
        self._log = log
        #: Ids of acknowledged submits, with their content.
        self.submitted: dict[str, tuple[Template, NewJob]] = {}
        self._key_ids: dict[str, str] = {}
        self._news: dict[str, int] = {}
        self._pushed: set[int] = set()
        #: Every result that a response showed.
        self._ends: dict[str, tuple[object, object]] = {}
        self.runs: dict[str, int] = {}
        self.ran: set[int] = set()
        self.answers: dict[str, int] = {}

    def count(self, what: str) -> None:
        """Counts a success of this kind."""
        self.answers[what] = self.answers.get(what, 0) + 1

    @property
    def backlog(self) -> int:
        """The number of jobs that wait or run."""
        return self._log.backlog

    # -- clients

    def submitted_reply(self, command: Submit, reply: object) -> None:
        """Checks that every acknowledged id is durable, with its payload, under its key."""
        if isinstance(reply, Refusal):
            self.count(f"refused {reply.reason}")
            return
        assert isinstance(reply, Submitted)
        for index, (job, job_id) in enumerate(zip(command.jobs, reply.job_ids, strict=True)):
            template = command.templates[job.template]
            if index in reply.refusals:
                require(not job_id, f"job {job_id} was both refused and accepted")
                self._check_refused_submit(template, job, reply.refusals[index])
            else:
                self._check_accepted(template, job, job_id, is_existing=index in reply.existing)
        self.count("submit" if len(command.jobs) == 1 else "submit batch")

    def _check_accepted(self, template: Template, job: NewJob, job_id: str, *, is_existing: bool) -> None:
        log, extra = self._log, job.extra or Extra()
        key, is_own = extra.request_id, job_id == job.id
        require(log.is_known(job_id), f"job {job_id} was acknowledged before it was durable")
        is_same = any(life.is_same(template, job) for life in log.lives[job_id])
        is_rival = is_existing and bool(extra.unique_key) and self._is_rival(job_id, template, extra)
        require(is_same or is_rival, f"job {job_id} was acknowledged for another submission under the key {key!r}")
        is_found = bool(key) or is_rival
        require(is_own or is_found, f"job {job.id} without a key was given the id {job_id}")
        if not is_existing:
            require(is_own, f"job {job.id} was new and was given the id {job_id}")
            self._check_new(job_id)
        if key and is_same:
            self._check_key(key, job_id)
        if log.last_life(job_id).is_same(template, job):
            self.submitted[job_id] = (template, job)
        self._count_accepted(key, is_own=is_own, is_existing=is_existing, is_same=is_same)

    def _is_rival(self, job_id: str, template: Template, extra: Extra) -> bool:
        """Whether the log created this job under the same type and unique key."""
        name = (template.type, extra.unique_key)
        return any((life.template.type, _extra(life.job).unique_key) == name for life in self._log.lives[job_id])

    def _check_new(self, job_id: str) -> None:
        """Checks that an id is reported as new only as often as it was created: a repeat is reported as such."""
        self._news[job_id] = self._news.get(job_id, 0) + 1
        lives = len(self._log.lives[job_id])
        require(self._news[job_id] <= lives, f"job {job_id} was reported as new more often than it was created")

    def _check_key(self, key: str, job_id: str) -> None:
        first = self._key_ids.get(key, job_id)
        if first != job_id:
            require(not self._log.is_kept(first), f"the key {key!r} gave two ids while the first was kept")
        self._key_ids[key] = job_id

    def _count_accepted(self, key: str, *, is_own: bool, is_existing: bool, is_same: bool) -> None:
        if not is_same:
            self.count("found by unique key")
        elif key:
            self.count("submit with key" if is_own else "repeated submit")
        elif is_existing:
            self.count("repeated id")

    def _check_refused_submit(self, template: Template, job: NewJob, refusal: Refusal) -> None:
        self.count(f"refused {refusal.reason}")
        checks = {"REQUEST_ID_REUSED": self._check_reused_key, "JOB_ID_REUSED": self._check_reused_id}
        if refusal.reason in checks:
            checks[refusal.reason](template, job)
        elif refusal.reason == "QUEUE_DRAINING":
            has_drained = any(mode == QueueMode.DRAINING for _, mode in self._log.modes.get(template.queue, ()))
            require(has_drained, f"job {job.id} was refused by {template.queue}, which was never drained")

    def _check_reused_key(self, template: Template, job: NewJob) -> None:
        key = _extra(job).request_id
        first = self._key_ids.get(key)
        if first is not None and self._log.is_kept(first) and self._log.is_single(first):
            is_same = self._log.last_life(first).is_same(template, job)
            require(not is_same, f"a true repetition under the key {key!r} was refused")

    def _check_reused_id(self, template: Template, job: NewJob) -> None:
        require(self._log.is_known(job.id), f"the id {job.id} was refused as used and never was")
        if self._log.is_single(job.id):
            is_same = self._log.last_life(job.id).is_same(template, job)
            require(not is_same, f"a true repetition of job {job.id} was refused")

    def canceled_reply(self, job_id: str, reply: object) -> None:
        """Checks that a canceled queued job is durably canceled, and that a finished job is unchanged."""
        if isinstance(reply, Refusal):
            self.count(f"refused {reply.reason}")
            if reply.reason == "JOB_NOT_FOUND":
                self._check_absent(job_id)
            return
        assert isinstance(reply, CancelReply)
        job = self._log.model.jobs.get(job_id)
        require(
            job is not None or self._log.is_known(job_id),
            f"the cancel of {job_id} was accepted, but the job never existed",
        )
        if not self._log.is_single(job_id):
            job = None  # the response may be about the job that was removed
        if job is not None and reply.state in TERMINAL:
            require(job.state == reply.state, f"job {job_id} was reported as {reply.state!r} before it was durable")
        elif job is not None:
            is_marked = job.cancel_requested or job.state in TERMINAL
            require(is_marked, f"the cancel of {job_id} was acknowledged before it was durable")
        self.count("cancel queued" if reply.state == CANCELED and not reply.was_terminal else "cancel other")

    def _check_absent(self, job_id: str) -> None:
        """Checks that an unknown job was never acknowledged, or is being removed."""
        job = self._log.model.jobs.get(job_id)
        is_going = job is None or job.state in TERMINAL or job_id not in self.submitted
        is_going |= not self._log.is_single(job_id)
        require(is_going, f"job {job_id} was acknowledged and is unknown now")

    def saw_job(self, reply: object) -> None:
        """Checks that a read shows durable state, and never contradicts an end that was shown before."""
        if isinstance(reply, Refusal):
            self.count(f"refused {reply.reason}")
            return
        assert isinstance(reply, JobSeen)
        log, job_id = self._log, reply.job_id
        require(
            reply.position <= log.position,
            f"a read of {job_id} left before position {reply.position} was durable",
        )
        if reply.view is None:
            self._check_absent(job_id)
        if reply.position == log.position:
            log.model.compare_job(job_id, reply.view)
        if reply.view is not None and log.is_single(job_id):
            self._check_end(job_id, reply.view)
        self.count("get" if reply.view is not None else "get of nothing")

    def _check_end(self, job_id: str, view: dict[str, object]) -> None:
        if view["state"] in TERMINAL:
            end = (view["state"], view["result"])
            require(self._ends.setdefault(job_id, end) == end, f"job {job_id} ended twice, differently")
        else:
            require(job_id not in self._ends, f"job {job_id} was finished and is not any more")

    def saw_page(self, reply: object) -> None:
        """Checks that a page is the slice of all jobs, by creation, that it claims to be."""
        if isinstance(reply, Refusal):
            self.count(f"refused {reply.reason}")
            return
        assert isinstance(reply, PageSeen)
        log = self._log
        require(reply.position <= log.position, f"a list left before position {reply.position} was durable")
        if reply.position == log.position:
            self._compare_page(reply)
        self.count("list")

    def _compare_page(self, page: PageSeen) -> None:
        jobs = [job for job in self._log.model.jobs.values() if not page.states or job.state in page.states]
        jobs.sort(key=lambda job: (-job.created_ms if page.newest_first else job.created_ms, job.id))
        ids = [job.id for job in jobs]
        end = page.offset + page.size
        require(page.ids == ids[page.offset : end], f"a page at {page.offset} is not what the log gives")
        require(page.has_more == (len(ids) > end), f"a page at {page.offset} is wrong about whether more jobs follow")

    # -- workers

    def leased(self, worker: str, leases: Sequence[GrantedLease | Assignment]) -> None:
        """Checks that a lease that leaves the coordinator is durable, and leaves it once."""
        for lease in leases:
            grant = self._log.grants.get(lease.token)
            require(grant is not None, f"the lease {lease.token} left before it was durable")
            assert grant is not None
            require(
                (grant.job_id, grant.worker) == (lease.job_id, worker),
                f"the lease {lease.token} went to another worker",
            )
            require(lease.token not in self._pushed, f"the lease {lease.token} was handed out twice")
            self._pushed.add(lease.token)
            lives = self._log.lives[lease.job_id]
            is_same = any(life.job.payload == lease.payload for life in lives)
            require(is_same, f"the lease {lease.token} carries another payload")
            mode = self._log.mode_at(lives[-1].template.queue, grant.position)
            require(mode != QueueMode.PAUSED, f"the lease {lease.token} was granted from a paused queue")
        self.count("lease")

    def welcomed(self, worker: str, held: frozenset[int], current: Collection[int]) -> None:
        """Checks that a worker that attaches keeps no lease that it did not name.

        A lease that had expired may still be in the log, but not among the `current` ones: a later event revokes it.
        """
        leases = self._log.model.leases.items()
        lost = [t for t, lease in leases if lease.worker == worker and t not in held and t in current]
        require(not lost, f"{worker} attached without the leases {lost} and was left with them")

    def started(self, worker: str, lease: GrantedLease | Assignment) -> None:
        """Checks the start of a run by a worker."""
        require(lease.token not in self.ran, f"the lease {lease.token} was run twice")
        self.ran.add(lease.token)
        runs = self.runs[lease.job_id] = self.runs.get(lease.job_id, 0) + 1
        require(
            runs <= self._log.grants_of[lease.job_id],
            f"job {lease.job_id} ran more often than it was granted",
        )

    def reported_reply(self, command: commands.Report, reply: object) -> None:
        """Checks that an accepted row is durable under its token, from its holder; refused rows changed nothing."""
        if isinstance(reply, Refusal):
            self.count(f"refused {reply.reason}")
            return
        assert isinstance(reply, ReportReply)
        for row, reason in zip(command.rows, reply.refused, strict=True):
            if reason:
                self.count(f"report {reason}")
            else:
                self._check_counted(command.worker, row)
        self.count("report")

    def _check_counted(self, worker: str, row: ReportRow) -> None:
        token = row.token or self._token_of(worker, row.job_id)
        state = self._log.outcomes.get(token)
        require(state is not None, f"the report under token {token} was acknowledged before it was durable")
        grant = self._log.grants[token]
        require(
            (grant.job_id, grant.worker) == (row.job_id, worker),
            f"the report under {token} came from another worker",
        )
        self.count("report accepted")
        require(
            (row.state == DONE) == (state == DONE),
            f"token {token} reported {row.state} and stands as {state}",
        )

    def _token_of(self, worker: str, job_id: str) -> int:
        """Returns the lease of a report without a token: the last one with an outcome."""
        tokens = self._log.tokens_of.get((job_id, worker), [])
        return next((token for token in reversed(tokens) if self._log.has_outcome(token)), 0)

    def acknowledged(self, worker: str, rows: list[ReportRow]) -> None:
        """Checks acknowledged outcomes: each counts, or its refusal is in the log."""
        for row in rows:
            is_settled = self._log.has_outcome(row.token) or (row.job_id, row.token) in self._log.refused
            require(is_settled, f"the report of {worker} under token {row.token} was acknowledged and is lost")
            if self._log.has_outcome(row.token):
                self.count("report accepted")
        self.count("report acknowledged")

    def noted_reply(self, command: commands.TakeNotes, reply: object) -> None:
        """Checks that an accepted note is in the log under its token, from its holder."""
        if isinstance(reply, Refusal):
            self.count(f"refused {reply.reason}")
            return
        assert isinstance(reply, list)
        for note, reason in zip(command.notes, reply, strict=True):
            if reason:
                self.count(f"note {reason}")
                continue
            grant = self._log.grants.get(note.token)
            is_holder = grant is not None and (grant.job_id, grant.worker) == (note.job_id, command.worker)
            require(
                is_holder,
                f"a note of {command.worker} under token {note.token} was taken, but it does not hold that lease",
            )
            is_durable = (note.token, note.message) in self._log.notes
            require(is_durable, f"the note under token {note.token} was acknowledged before it was durable")
            self.count("note")

    # -- everything

    def check_kept(self) -> None:
        """Checks that every acknowledged job is in the log with its payload; a removed one had finished."""
        jobs = self._log.model.jobs
        for job_id, (template, job) in self.submitted.items():
            require(self._log.is_known(job_id), f"job {job_id} was acknowledged and is lost")
            kept = jobs.get(job_id)
            # The id of a removed job may be reused by another job, whose acknowledgement may be in transit or lost.
            if kept is not None and self._log.last_life(job_id).is_same(template, job):
                same = (kept.payload, kept.type) == (job.payload, template.type)
                require(same, f"job {job_id} is not what was submitted")
