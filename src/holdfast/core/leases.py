"""LeaseManager: who may run what, and until when.

Invariants: at most one lease per job; a token is used once and only grows; an expired lease is never revived;
a report counts only under the current, unexpired lease. Time takes leases away and does nothing else.

Deadlines run in served time and are soft: replay does not build them, `resume` does. A heap entry may be stale
(its lease ended or was extended); it is checked when it comes up, so a heartbeat touches no heap.
"""

import heapq
from collections.abc import Callable

from holdfast import limits
from holdfast.core import commands
from holdfast.core.book import Book
from holdfast.core.commands import (
    Decision,
    Extend,
    GrantedLease,
    Heard,
    Report,
    ReportReply,
    ReportRow,
    Revoke,
)
from holdfast.core.events import Extended, Granted, RefusedReport, Reported, Revoked
from holdfast.core.lifecycle import FAILED, QUEUED, RUNNING, TERMINAL
from holdfast.core.model import Job, Lease, Now, QueueMode, Result
from holdfast.core.outcomes import LOSSES_SPENT, result_of, revocation_of
from holdfast.core.ready_queue import LaneKey
from holdfast.core.tasks import end
from holdfast.core.text import as_text

_STALE_DEADLINES_MAX = 4_096


def _after(result: Result, row: ReportRow) -> str:
    """What a second report in the same breath is told: the same as if it had come later."""
    if result.state not in TERMINAL:
        return "STALE_TOKEN"
    return "" if row.token and row.state == result.state else "ALREADY_FINISHED"


def _is_last_chance(job: Job) -> bool:
    return 0 < job.losses >= job.template.max_losses


def _wants_solitude(job: Job, now_ms: int) -> bool:
    return job.losses > 0 and _is_last_chance(job) and now_ms - job.lost_ms < limits.QUARANTINE_MS


def _is_alone(job: Job, now_ms: int) -> bool:
    return _is_last_chance(job) and now_ms - job.started_ms < limits.QUARANTINE_MS


def _route(job: Job) -> tuple[str, str]:
    return job.template.queue, job.template.route


class LeaseManager:
    """The part of the ledger that owns the right to run."""

    __slots__ = ("_book", "_deadlines", "_served_ms", "_watching", "aging_ms")

    def __init__(self, book: Book, aging_ms: int) -> None:
        self._book = book
        self.aging_ms = aging_ms
        self._deadlines: list[tuple[int, int, int]] = []
        self._served_ms = 0
        self._watching = False

    # -- time

    def resume(self, now: Now) -> None:
        """Replay is over: what remains of each lease is no more than it was ever given."""
        self._served_ms = now.served_ms
        self._watching = True
        self._deadlines = []
        for lease in self._book.leases.values():
            remaining_ms = min(lease.expires_ms - now.log_ms, lease.lease_ms)
            lease.deadline_ms = now.served_ms + remaining_ms
            self._deadlines.append((lease.deadline_ms, lease.token, 1))
        heapq.heapify(self._deadlines)

    def next_deadline_ms(self) -> int | None:
        """The earliest served time at which a lease can expire; may be early, never late."""
        return self._deadlines[0][0] if self._deadlines else None

    def is_expiry_due(self, now: Now) -> bool:
        """Whether some lease is past its deadline."""
        heap = self._deadlines
        return bool(heap) and heap[0][0] <= now.served_ms and bool(self._overdue(now.served_ms))

    def observe(self, now: Now) -> None:
        """Deadlines of leases granted or extended by the next event count from here."""
        self._served_ms = now.served_ms

    # -- decisions

    def lease(self, command: commands.Lease, now: Now) -> Decision:
        """Grants the next jobs that this worker may run, in order."""
        book = self._book
        book.ready.promote(now.log_ms)
        paused = book.queues_in(QueueMode.PAUSED) if book.modes else ()

        def wants(key: LaneKey) -> bool:
            queue, route, _ = key
            return route in command.routes and (not command.queues or queue in command.queues) and queue not in paused

        jobs = self._choose(command.worker, wants, command.count, now.log_ms)
        if not jobs:
            return Decision(None, [])
        token = book.next_token
        event = Granted(now.log_ms, command.worker, command.lease_ms, token, [job.id for job in jobs])
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

    def _choose(self, worker: str, wants: Callable[[LaneKey], bool], count: int, now_ms: int) -> list[Job]:
        """The next jobs, except that a job which one more loss would end runs alone in its worker, for a while.

        Whoever runs beside a job that kills its worker is lost with it, as often as they are granted together. On its
        last chance each of them is alone: the guilty one ends there, and the others get through. Until a worker is free
        for it, it holds back what comes after it on the same route of its queue, so that order holds; other routes go
        on. Both the wait and the solitude end after a while, so that nobody is held up for long.
        """
        tokens = self._book.tokens_of.get(worker, ())
        if len(tokens) == 1 and any(_is_alone(self._book.leases[token].job, now_ms) for token in tokens):
            return []
        before: list[Job] = []
        held_back: set[tuple[str, str]] = set()
        while True:
            free = count - len(before)
            jobs = self._book.ready.choose(lambda key: wants(key) and key[:2] not in held_back, free, self.aging_ms)
            suspect = next((index for index, job in enumerate(jobs) if _wants_solitude(job, now_ms)), None)
            if suspect is None:
                return before + jobs
            if suspect == 0 and not tokens and not before:
                return jobs[:1]
            route = _route(jobs[suspect])
            held_back.add(route)
            before += [job for job in jobs[:suspect] if _route(job) == route]

    def extend(self, command: Extend, now: Now) -> Decision:
        """One event moves the expiry of all that the worker holds, or takes back what it does not run."""
        tokens = self._book.tokens_of.get(command.worker, ())
        leases = [self._book.leases[token] for token in tokens]
        held, lost = [], []
        for lease in leases:
            if lease.deadline_ms <= now.served_ms:
                continue  # over, and left to `expire`: a heartbeat that comes too late neither keeps nor spares it
            is_young = now.log_ms - lease.granted_ms < command.grace_ms
            if command.held is None or lease.token in command.held or is_young:
                held.append(lease)
            else:
                lost.append(lease)
        live = [lease.token for lease in held]
        reply = Heard(live, [lease.token for lease in held if lease.job.cancel_requested])
        if lost:
            rows = [revocation_of(lease.job, is_spent=False) for lease in lost]
            ids = [lease.job.id for lease in lost]
            return Decision(Revoked(now.log_ms, command.worker, "not-running", rows, ids), reply)
        return Decision(Extended(now.log_ms, command.worker, command.lease_ms, live) if live else None, reply)

    def report(self, command: Report, now: Now) -> Decision:
        """One event for all rows: those under a current lease count, the others are evidence."""
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
        """Takes leases of a worker back before their time."""
        tokens = [
            token
            for token in self._book.tokens_of.get(command.worker, ())
            if command.tokens is None or token in command.tokens
        ]
        if not tokens:
            return Decision(None, [])
        jobs = [self._book.leases[token].job for token in tokens]
        rows = [revocation_of(job, is_spent=command.is_spent) for job in jobs]
        return Decision(Revoked(now.log_ms, command.worker, command.reason, rows, [job.id for job in jobs]), tokens)

    def expire(self, now: Now) -> Decision:
        """Takes back every lease whose deadline has passed."""
        overdue = self._overdue(now.served_ms)
        if not overdue:
            return Decision(None, [])
        workers = {lease.worker for lease in overdue}
        worker = workers.pop() if len(workers) == 1 else ""
        rows = [revocation_of(lease.job, is_spent=True) for lease in overdue]
        event = Revoked(now.log_ms, worker, "expired", rows, [lease.job.id for lease in overdue])
        return Decision(event, [(lease.worker, lease.token) for lease in overdue])

    def _overdue(self, served_ms: int) -> list[Lease]:
        """Leases past their deadline. They stay watched until an event ends them."""
        heap, leases = self._deadlines, self._book.leases
        found: dict[int, Lease] = {}
        while heap and heap[0][0] <= served_ms:
            _, first, count = heapq.heappop(heap)
            for token in range(first, first + count):
                lease = leases.get(token)
                if lease is None:
                    continue
                if lease.deadline_ms <= served_ms:
                    found[token] = lease
                else:
                    heapq.heappush(heap, (lease.deadline_ms, token, 1))
        for lease in found.values():
            heapq.heappush(heap, (lease.deadline_ms, lease.token, 1))
        # In the order of grants: the heap's order depends on which questions were asked before.
        return [found[token] for token in sorted(found)]

    def holding(self, worker: str, job_id: str, token: int, now: Now) -> tuple[Lease | None, str]:
        """The current lease that a worker speaks for, or why there is none; token 0 means the one on the job."""
        job = self._book.jobs.get(job_id)
        if job is None:
            return None, "UNKNOWN_JOB"
        lease = self._book.leases.get(token or job.token)
        if lease is not None and lease.job is job:
            if lease.worker != worker:
                return None, "NOT_THE_HOLDER"
            return (lease, "") if lease.deadline_ms > now.served_ms else (None, "LEASE_EXPIRED")
        return None, "ALREADY_FINISHED" if job.state in TERMINAL else "STALE_TOKEN"

    def _is_repeat(self, row: ReportRow) -> bool:
        """Whether this is how the job ended, as its last holder said before."""
        job = self._book.jobs[row.job_id]
        return job.result is not None and job.result.token == row.token != 0 and job.state == row.state

    # -- application

    def apply_granted(self, event: Granted) -> None:
        """Moves jobs from their lanes to their holder."""
        book, at_ms, worker = self._book, event.at_ms, event.worker
        book.ready.promote(at_ms)
        expires_ms, deadline_ms = at_ms + event.lease_ms, self._served_ms + event.lease_ms
        tokens = book.tokens_of.setdefault(worker, {})
        assert event.first_token == book.next_token
        jobs = [book.jobs[job_id] for job_id in event.job_ids]
        leases, leave, enter = book.leases, book.leave, book.enter
        for token, job in enumerate(jobs, event.first_token):
            leave(job, RUNNING)
            job.token = token
            job.grants += 1
            job.started_ms = at_ms
            enter(job, RUNNING)
            leases[token] = Lease(token, job, worker, at_ms, event.lease_ms, expires_ms, deadline_ms)
            tokens[token] = None
        book.ready.take_all(jobs)
        book.next_token += len(event.job_ids)
        if self._watching:
            self._watch(deadline_ms, event.first_token, len(event.job_ids))

    def _watch(self, deadline_ms: int, first_token: int, count: int) -> None:
        """One entry for all leases of a grant; entries of ended leases go once they are the most."""
        heapq.heappush(self._deadlines, (deadline_ms, first_token, count))
        leases = self._book.leases
        if len(self._deadlines) > 2 * len(leases) + _STALE_DEADLINES_MAX:
            self._deadlines = [(lease.deadline_ms, token, 1) for token, lease in leases.items()]
            heapq.heapify(self._deadlines)

    def apply_extended(self, event: Extended) -> None:
        """Moves expiry; the heap notices when the old entry comes up."""
        expires_ms, deadline_ms = event.at_ms + event.lease_ms, self._served_ms + event.lease_ms
        leases = self._book.leases
        for token in event.tokens:
            lease = leases[token]
            if self._watching and deadline_ms < lease.deadline_ms:  # the old entry would come up too late
                heapq.heappush(self._deadlines, (deadline_ms, token, 1))
            lease.lease_ms, lease.expires_ms, lease.deadline_ms = event.lease_ms, expires_ms, deadline_ms

    def apply_revoked(self, event: Revoked) -> None:
        """Ends leases and places their jobs."""
        book = self._book
        for row in event.rows:
            job = book.leases[row.token].job
            book.leave(job, row.state)
            book.drop_lease(row.token)
            job.losses += row.is_spent
            job.lost_ms = event.at_ms
            if row.state == QUEUED:
                self._requeue(job, event.at_ms)
            else:
                reason = LOSSES_SPENT if row.state == FAILED else ""
                tries = job.failures + job.losses
                summary = job.cancel_reason or f"its lease ended ({event.reason}) after {tries} attempts"
                end(book, job, Result(0, row.state, summary=summary, failure_reason=reason), event.at_ms)

    def apply_reported(self, event: Reported) -> None:
        """Ends leases with their results; refused rows change nothing."""
        book, at_ms = self._book, event.at_ms
        for result in event.results:
            job = book.leases[result.token].job
            book.leave(job, result.state)
            book.drop_lease(result.token)
            if result.state == QUEUED:
                job.failures += 1
                job.not_before_ms = result.not_before_ms
                self._requeue(job, at_ms)
            else:
                end(book, job, result, at_ms)

    def _requeue(self, job: Job, at_ms: int) -> None:
        self._book.enter(job, QUEUED)
        self._book.ready.put_back(job, at_ms)
