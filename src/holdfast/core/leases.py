"""LeaseManager: grants, extends and revokes the right of a worker to run a job.

Invariants: a job has at most one lease; a token is used once and tokens only increase; an expired lease is never
revived; a report is accepted only under the current, unexpired lease. The passing of time revokes leases and has no
other effect.

Deadlines are in served time and are soft state: replay does not build them, `resume` does, and heartbeats move them
without an event. A start renews every lease, once: the journal records the renewal (`Started`) and the first heartbeat
after it (`Extended`). A heap entry may be stale (its lease ended or was extended). It is checked when it reaches the
top, so a heartbeat does not touch the heap.

Also soft state: a lease whose outcome waits for journal space is kept, even if its deadline passes or its worker is
lost.
"""

import heapq

from holdfast import limits
from holdfast.core import commands
from holdfast.core.commands import (
    Decision,
    Expire,
    Extend,
    Extension,
    GrantedLease,
    Heard,
    Report,
    ReportReply,
    ReportRow,
    Revoke,
)
from holdfast.core.events import Extended, Granted, RefusedReport, Reported, Revoked, Started
from holdfast.core.lane_order import RouteFilter
from holdfast.core.lifecycle import FAILED, QUEUED, RUNNING, TERMINAL
from holdfast.core.model import JobRecord, Lease, Now, Result
from holdfast.core.outcomes import LOSSES_SPENT, result_of, revocation_of
from holdfast.core.quarantine import runs_alone
from holdfast.core.state import LedgerState
from holdfast.core.tasks import end
from holdfast.core.text import as_text

_STALE_DEADLINES_MAX = 4_096


def _after(result: Result, row: ReportRow) -> str:
    """The answer to a second report for a lease in the same batch: the same as for a later report."""
    if result.state not in TERMINAL:
        return "STALE_TOKEN"
    return "" if row.token and row.state == result.state else "ALREADY_FINISHED"


def _renewed_ms(lease: Lease, log_ms: int) -> int:
    """The remaining time of a lease when a coordinator starts.

    The first start renews the full length. Later starts without a heartbeat in between keep the expiry of the journal,
    limited to half the length, a quarter, and so on. So the lease ends even if log time does not advance between
    starts.
    """
    if not lease.restarts:
        return lease.lease_ms
    return min(lease.expires_ms - log_ms, lease.lease_ms >> lease.restarts)


class LeaseManager:
    """The part of the ledger that owns the leases."""

    __slots__ = ("_deadlines", "_kept", "_served_ms", "_state", "_watching", "aging_ms", "is_behind")

    def __init__(self, state: LedgerState, aging_ms: int) -> None:
        self._state = state
        self.aging_ms = aging_ms
        self._deadlines: list[tuple[int, int, int]] = []
        self._kept: set[int] = set()
        self._served_ms = 0
        self._watching = False
        #: Whether the last `Expire` stopped before it had examined every deadline that has passed.
        self.is_behind = False

    # -- time

    def resume(self, now: Now) -> None:
        """Sets all deadlines after replay; the `Started` event that follows makes the renewal durable."""
        self._served_ms = now.served_ms
        self._watching = True
        self._deadlines = []
        self._kept.clear()
        self.is_behind = False
        for lease in self._state.leases.values():
            lease.deadline_ms = now.served_ms + _renewed_ms(lease, now.log_ms)
            self._deadlines.append((lease.deadline_ms, lease.token, 1))
        heapq.heapify(self._deadlines)

    def prolong(self, extension: Extension) -> None:
        """Moves the deadlines of leases that a heartbeat extended; old heap entries become stale."""
        deadline_ms, leases = self._served_ms + extension.lease_ms, self._state.leases
        for token in extension.tokens:
            lease = leases[token]
            if deadline_ms < lease.deadline_ms:  # the old heap entry would be too late
                heapq.heappush(self._deadlines, (deadline_ms, token, 1))
            lease.deadline_ms = deadline_ms

    def next_deadline_ms(self) -> int | None:
        """The earliest served time at which a lease can expire; may be early, never late."""
        return self._deadlines[0][0] if self._deadlines else None

    def is_expiry_due(self, now: Now) -> bool:
        """Whether a lease may be past its deadline; `Expire` decides whether one is."""
        heap = self._deadlines
        return bool(heap) and heap[0][0] <= now.served_ms

    def keep(self, report: Report, now: Now) -> None:
        """Protects the leases of a report that waits for journal space until the report is recorded."""
        leases = [self.holding(report.worker, row.job_id, row.token, now)[0] for row in report.rows]
        self._kept.update(lease.token for lease in leases if lease is not None)

    def let_go(self, report: Report) -> None:
        """Undoes `keep` for a report that no longer waits."""
        jobs = self._state.jobs
        self._kept.difference_update(row.token or jobs[row.job_id].token for row in report.rows if row.job_id in jobs)

    def is_kept(self, token: int) -> bool:
        """Whether the outcome of this lease was received and waits for journal space."""
        return token in self._kept

    def observe(self, now: Now) -> None:
        """Sets the served time from which the next event's deadlines count."""
        self._served_ms = now.served_ms

    # -- decisions

    def lease(self, command: commands.GrantLeases, now: Now) -> Decision:
        """Grants the next jobs that this worker may run, in order."""
        state = self._state
        jobs = self._choose(command, now.log_ms)
        if not jobs:
            return Decision(None, [])
        token = state.next_token
        ids = [job.id for job in jobs]
        event = Granted(now.log_ms, command.worker, command.lease_ms, token, ids, command.is_local)
        granted = [
            GrantedLease(
                token + i,
                job.id,
                job.template,
                job.payload,
                job.failures + job.losses + 1,
                job.extra,
                job.template.max_attempts - job.failures - 1,
            )
            for i, job in enumerate(jobs)
        ]
        return Decision(event, granted)

    def _choose(self, command: commands.GrantLeases, now_ms: int) -> list[JobRecord]:
        """The next jobs for this worker. A job on its last chance runs alone in its worker for a while.

        If a job kills its worker, the jobs that run beside it are lost too, each time they are granted together. On its
        last chance each of them runs alone: the job that kills workers fails, and the others finish. Until a worker
        without leases is available, such a job blocks the jobs behind it on the same route of its queue, so that order
        holds; other routes are not affected. Both the wait and the exclusive run are limited in time, so that other
        jobs are not blocked for long.
        """
        tokens = self._state.tokens_of.get(command.worker, ())
        if len(tokens) == 1 and any(runs_alone(self._state.leases[token].job, now_ms) for token in tokens):
            return []
        route_filter = RouteFilter(command.routes, command.queues)
        return self._state.ready.choose(route_filter, command.count, self.aging_ms, now_ms, is_free=not tokens)

    def extend(self, command: Extend, now: Now) -> Decision:
        """Extends the leases that the worker still holds, and revokes those that it does not run.

        The heartbeat is journaled only if the next start depends on it.
        """
        tokens = self._state.tokens_of.get(command.worker, ())
        leases = [self._state.leases[token] for token in tokens]
        held, lost = [], []
        for lease in leases:
            if self._is_over(lease, now.served_ms):
                continue  # expired: a late heartbeat does not extend it, and `expire` revokes it
            is_young = now.log_ms - lease.granted_ms < command.grace_ms
            is_run = command.held is None or lease.token in command.held or lease.token in self._kept
            if is_run or is_young:
                held.append(lease)
            else:
                lost.append(lease)
        live = [lease.token for lease in held]
        reply = Heard(live, [lease.token for lease in held if lease.job.cancel_requested])
        extension = Extension(live, command.lease_ms)
        if lost:
            rows = [revocation_of(lease.job, is_spent=False) for lease in lost]
            ids = [lease.job.id for lease in lost]
            return Decision(Revoked(now.log_ms, command.worker, "not-running", rows, ids), reply, extension)
        unheard = [lease.token for lease in held if lease.restarts or lease.lease_ms != command.lease_ms]
        event = Extended(now.log_ms, command.worker, command.lease_ms, unheard) if unheard else None
        return Decision(event, reply, extension)

    def report(self, command: Report, now: Now) -> Decision:
        """One event for all rows: rows under a current lease are accepted, the others are kept as evidence."""
        results: list[Result] = []
        ids: list[str] = []
        refused: list[RefusedReport] = []
        reasons: list[str] = []
        seen: dict[int, Result] = {}
        worker, now_ms = command.worker, now.log_ms
        for row in command.rows:
            lease, reason = self.holding(worker, row.job_id, row.token, now)
            if lease is None:
                if reason == "ALREADY_FINISHED" and self._is_repeat(row):
                    reason = ""
            elif lease.token not in seen:
                job, token = lease.job, lease.token
                result = seen[token] = result_of(job, token, row, now_ms)
                results.append(result)
                ids.append(job.id)
            else:
                reason = _after(seen[lease.token], row)
            if reason:
                shown = as_text(row.job_id[: limits.JOB_ID_CHARS_MAX])
                refused.append(RefusedReport(shown, row.token, reason))
            reasons.append(reason)
        event = Reported(now.log_ms, command.worker, results, refused, ids) if results or refused else None
        return Decision(event, ReportReply(reasons))

    def revoke(self, command: Revoke, now: Now) -> Decision:
        """Revokes leases of a worker before their deadline."""
        tokens = [
            token
            for token in self._state.tokens_of.get(command.worker, ())
            if (command.tokens is None or token in command.tokens) and token not in self._kept
        ]
        if not tokens:
            return Decision(None, [])
        jobs = [self._state.leases[token].job for token in tokens]
        rows = [revocation_of(job, is_spent=command.is_spent) for job in jobs]
        return Decision(Revoked(now.log_ms, command.worker, command.reason, rows, [job.id for job in jobs]), tokens)

    def expire(self, command: Expire, now: Now) -> Decision:
        """Revokes overdue leases, up to a limit; those beyond it count as expired too (see `holding`)."""
        overdue = self._overdue(now.served_ms, command.leases_max)
        if not overdue:
            return Decision(None, [])
        workers = {lease.worker for lease in overdue}
        worker = workers.pop() if len(workers) == 1 else ""
        rows = [revocation_of(lease.job, is_spent=True) for lease in overdue]
        event = Revoked(now.log_ms, worker, "expired", rows, [lease.job.id for lease in overdue])
        return Decision(event, [(lease.worker, lease.token) for lease in overdue])

    def _overdue(self, served_ms: int, leases_max: int) -> list[Lease]:
        """The first leases past their deadline. They keep a heap entry until an event ends them.

        At most `4 * leases_max` entries are examined. This leaves a budget for entries of leases that the last call
        found, and for entries that heartbeats made stale. So the work of a call is bounded, and the next call
        continues.
        """
        heap, leases = self._deadlines, self._state.leases
        found: dict[int, Lease] = {}
        looks = 4 * leases_max
        while heap and heap[0][0] <= served_ms and looks > 0 and len(found) < leases_max:
            deadline_ms, first, count = heapq.heappop(heap)
            whole, count = count, min(count, looks, leases_max - len(found))
            if whole > count:
                heapq.heappush(heap, (deadline_ms, first + count, whole - count))
            looks -= count
            for token in range(first, first + count):
                lease = leases.get(token)
                if lease is None:
                    continue
                if self._is_over(lease, served_ms):
                    found[token] = lease
                    continue
                if lease.deadline_ms <= served_ms:  # kept by a waiting report, so it is extended
                    lease.deadline_ms = served_ms + lease.lease_ms
                heapq.heappush(heap, (lease.deadline_ms, token, 1))
        self.is_behind = bool(heap) and heap[0][0] <= served_ms
        for lease in found.values():
            heapq.heappush(heap, (lease.deadline_ms, lease.token, 1))
        # In the order of grants: the order of the heap depends on earlier calls.
        return [found[token] for token in sorted(found)]

    def _is_over(self, lease: Lease, served_ms: int) -> bool:
        return lease.deadline_ms <= served_ms and lease.token not in self._kept

    def holding(self, worker: str, job_id: str, token: int, now: Now) -> tuple[Lease | None, str]:
        """The current lease that a worker names, or the reason why it has none; token 0 means the job's lease."""
        job = self._state.jobs.get(job_id)
        if job is None:
            return None, "UNKNOWN_JOB"
        lease = self._state.leases.get(token or job.token)
        if lease is not None and lease.job is job:
            if lease.worker != worker:
                return None, "NOT_THE_HOLDER"
            return (None, "LEASE_EXPIRED") if self._is_over(lease, now.served_ms) else (lease, "")
        return None, "ALREADY_FINISHED" if job.state in TERMINAL else "STALE_TOKEN"

    def _is_repeat(self, row: ReportRow) -> bool:
        """Whether the last holder repeats the outcome that ended the job."""
        job = self._state.jobs[row.job_id]
        return job.result is not None and job.result.token == row.token != 0 and job.state == row.state

    # -- application

    def apply_started(self, event: Started) -> None:
        """Records the renewal of all leases that `resume` made."""
        self._state.process = event.process
        for lease in self._state.leases.values():
            lease.expires_ms = event.at_ms + _renewed_ms(lease, event.at_ms)
            lease.restarts += 1

    def apply_granted(self, event: Granted) -> None:
        """Moves jobs from their lanes to the worker's leases."""
        state, at_ms, worker = self._state, event.at_ms, event.worker
        state.ready.promote(at_ms)
        expires_ms, deadline_ms = at_ms + event.lease_ms, self._served_ms + event.lease_ms
        tokens = state.tokens_of.setdefault(worker, {})
        assert event.first_token == state.next_token
        jobs = [state.jobs[job_id] for job_id in event.job_ids]
        leases, leave, enter = state.leases, state.leave, state.enter
        host = state.process if event.is_local else ""
        for token, job in enumerate(jobs, event.first_token):
            leave(job, RUNNING)
            job.token = token
            job.grants += 1
            job.started_ms = at_ms
            enter(job, RUNNING)
            leases[token] = Lease(token, job, worker, at_ms, event.lease_ms, expires_ms, deadline_ms, 0, host)
            tokens[token] = None
        state.ready.take_all(jobs)
        state.next_token += len(event.job_ids)
        if self._watching:
            self._watch(deadline_ms, event.first_token, len(event.job_ids))

    def _watch(self, deadline_ms: int, first_token: int, count: int) -> None:
        """Adds one heap entry for all leases of a grant; rebuilds the heap when most entries are stale."""
        heapq.heappush(self._deadlines, (deadline_ms, first_token, count))
        leases = self._state.leases
        if len(self._deadlines) > 2 * len(leases) + _STALE_DEADLINES_MAX:
            self._deadlines = [(lease.deadline_ms, token, 1) for token, lease in leases.items()]
            heapq.heapify(self._deadlines)

    def apply_extended(self, event: Extended) -> None:
        """Records a heartbeat: the next start renews these leases again. `prolong` has moved the deadlines."""
        expires_ms, leases = event.at_ms + event.lease_ms, self._state.leases
        for token in event.tokens:
            lease = leases[token]
            lease.lease_ms, lease.expires_ms, lease.restarts = event.lease_ms, expires_ms, 0

    def apply_revoked(self, event: Revoked) -> None:
        """Ends leases, and requeues or ends their jobs."""
        state = self._state
        for row in event.rows:
            job = state.leases[row.token].job
            state.leave(job, row.state)
            state.drop_lease(row.token)
            job.losses += row.is_spent
            job.lost_ms = event.at_ms
            if row.state == QUEUED:
                self._requeue(job, event.at_ms)
            else:
                reason = LOSSES_SPENT if row.state == FAILED else ""
                tries = job.failures + job.losses
                summary = job.cancel_reason or f"its lease ended ({event.reason}) after {tries} attempts"
                end(state, job, Result(0, row.state, summary=summary, failure_reason=reason), event.at_ms)

    def apply_reported(self, event: Reported) -> None:
        """Ends leases with their results; refused rows change nothing."""
        state, at_ms = self._state, event.at_ms
        for result in event.results:
            job = state.leases[result.token].job
            state.leave(job, result.state)
            state.drop_lease(result.token)
            self._kept.discard(result.token)
            if result.state == QUEUED:
                job.failures += 1
                job.not_before_ms = result.not_before_ms
                self._requeue(job, at_ms)
            else:
                end(state, job, result, at_ms)

    def _requeue(self, job: JobRecord, at_ms: int) -> None:
        self._state.enter(job, QUEUED)
        self._state.ready.put_back(job, at_ms)
