"""A desk at which commands are handed in: a ledger, a clock that tests turn, and the model looking on.

Every event goes through its encoded form before it is applied, as it would through the journal, and the model
reads the same bytes; a test that goes through a desk cannot break a promise without noticing.
"""

# ruff: noqa: ANN401 - replies are of any type, and a test that expects another one fails at once

from typing import Any

from holdfast.core import commands, events, image
from holdfast.core.commands import AnyCommand, Decision, GrantedLease, Refusal, ReportRow, Submitted
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import Extra, Job, NewJob, Note, Now, QueueMode, Template
from holdfast.testing.ledger_view import view_ledger
from holdfast.testing.model import Model

ECHO = Template("echo")


class Desk:
    """One coordinator's view, without a loop and without a disk."""

    def __init__(
        self, *, aging_ms: int = 60_000, dedup_keys_max: int = 0, at_ms: int = 1_000, memory_bytes: int = 0
    ) -> None:
        self.config = LedgerConfig(aging_ms, dedup_keys_max, memory_bytes)
        self.ledger = Ledger(self.config)
        self.model = Model(aging_ms=aging_ms, dedup_keys_max=dedup_keys_max)
        self.log_ms = at_ms
        self.served_ms = 0
        self.bodies: list[bytes] = []
        self._epoch = 0
        self.ledger.leases.resume(self.now)

    @property
    def now(self) -> Now:
        return Now(self.log_ms, self.served_ms)

    def pass_ms(self, milliseconds: int) -> None:
        """Both clocks go on together, as they do on a quiet day."""
        self.log_ms += milliseconds
        self.served_ms += milliseconds

    # -- handing in

    def decide(self, command: AnyCommand) -> Decision | Refusal:
        """What the ledger would do; asks twice, because asking must change nothing."""
        before = self.ledger.digest, self.ledger.position
        decided = self.ledger.decide(command, self.now)
        assert decided == self.ledger.decide(command, self.now)
        assert before == (self.ledger.digest, self.ledger.position)
        return decided

    def do(self, command: AnyCommand) -> Any:
        """The reply to a command, whose event has gone through bytes and past the model, or the refusal."""
        decided = self.decide(command)
        if isinstance(decided, Refusal):
            return decided
        if decided.extension is not None:
            self.ledger.leases.prolong(decided.extension)
        if decided.event is not None:
            self.take(decided.event)
        return decided.reply

    def take(self, event: events.AnyEvent) -> None:
        """Makes an event part of the history."""
        body = events.join([events.encode_one(event)])
        self.model.feed(body, self.ledger.position + 1)
        (decoded,) = events.decode(body)
        self.ledger.apply(decoded)
        self.bodies.append(body)

    def check(self) -> None:
        """The book is consistent and is what the model says."""
        self.ledger.book.audit()
        self.model.compare(view_ledger(self.ledger))

    # -- restarting

    def replayed(self) -> Ledger:
        """Another ledger, from the whole history."""
        ledger = Ledger(self.config)
        for body in self.bodies:
            for event in events.decode(body):
                ledger.apply(event)
        return ledger

    def reloaded(self) -> Ledger:
        """Another ledger, from the bytes of a snapshot."""
        return image.load(list(image.dump(self.ledger)), self.config)

    def restart(self, ledger: Ledger | None = None) -> None:
        """Goes on with a ledger that a new process would have; served time begins anew."""
        self.ledger = ledger or self.replayed()
        self.served_ms = 0
        self.ledger.leases.resume(self.now)

    def start(self, process: str = "") -> None:
        """A coordinator begins to serve, which is part of the history."""
        self._epoch += 1
        self.do(commands.Start(self._epoch, process))

    # -- the usual commands, in short

    def submit(self, *ids: str, template: Template = ECHO, **fields: Any) -> Submitted:
        reply = self.do(commands.Submit([template], [NewJob(job_id, 0, **fields) for job_id in ids]))
        assert isinstance(reply, Submitted), reply
        return reply

    def submit_keyed(self, job_id: str, key: str, payload: bytes = b"", template: Template = ECHO) -> Submitted:
        return self.submit(job_id, template=template, payload=payload, extra=Extra(request_id=key))

    def submit_unique(self, job_id: str, key: str, template: Template = ECHO, **fields: Any) -> Submitted:
        return self.submit(job_id, template=template, extra=Extra(unique_key=key), **fields)

    def lease(
        self,
        count: int = 1,
        worker: str = "w1",
        routes: tuple[str, ...] = ("echo",),
        queues: tuple[str, ...] = (),
        lease_ms: int = 1_000,
        *,
        is_local: bool = False,
    ) -> list[GrantedLease]:
        command = commands.GrantLeases(worker, frozenset(routes), frozenset(queues), count, lease_ms, is_local)
        reply = self.do(command)
        assert isinstance(reply, list)
        return reply

    def leased_ids(self, count: int = 1, **options: Any) -> list[str]:
        return [lease.job_id for lease in self.lease(count, **options)]

    def run_one(self, **options: Any) -> GrantedLease:
        (lease,) = self.lease(**options)
        return lease

    def report(self, job_id: str, token: int, state: int = DONE, worker: str = "w1", **fields: Any) -> str:
        """Why the report does not count; empty if it does."""
        reply = self.do(commands.Report(worker, [ReportRow(job_id, token, state, **fields)]))
        (reason,) = reply.refused
        assert isinstance(reason, str)
        return reason

    def extend(
        self, worker: str = "w1", lease_ms: int = 1_000, held: set[int] | None = None, grace_ms: int = 0
    ) -> commands.Heard:
        tokens = None if held is None else frozenset(held)
        reply = self.do(commands.Extend(worker, lease_ms, tokens, grace_ms))
        assert isinstance(reply, commands.Heard)
        return reply

    def cancel(self, job_id: str, reason: str = "") -> Any:
        return self.do(commands.Cancel(job_id, reason))

    def cancel_queued(self, *ids: str, reason: str = "") -> Any:
        return self.do(commands.CancelQueued(list(ids), reason))

    def set_mode(self, queue: str, mode: QueueMode, reason: str = "") -> Any:
        return self.do(commands.SetQueueMode(queue, mode, reason))

    def note(self, *notes: Note, worker: str = "w1") -> Any:
        """For each note why it was not taken; empty if it was."""
        return self.do(commands.TakeNotes(worker, list(notes)))

    def expire(self, leases_max: int = 1_000) -> Any:
        return self.do(commands.Expire(leases_max))

    def revoke(self, worker: str = "w1", reason: str = "disconnected", **options: Any) -> Any:
        options.setdefault("is_spent", reason != "released")
        return self.do(commands.Revoke(worker, reason, **options))

    def evict(
        self,
        retain_ms: int = 1 << 40,
        retain_jobs: int = 1 << 40,
        retain_bytes: int = 1 << 60,
        retain_failed_ms: int = 1 << 40,
    ) -> Any:
        return self.do(commands.Evict(retain_ms, retain_jobs, retain_bytes, retain_failed_ms))

    def finish(self, *ids: str, output: bytes = b"") -> None:
        """Runs these jobs to DONE, in this order; they must be the next ones."""
        for job_id in ids:
            lease = self.run_one()
            assert lease.job_id == job_id
            assert self.report(job_id, lease.token, output=output) == ""

    def job(self, job_id: str) -> Job:
        job = self.ledger.job(job_id)
        assert job is not None
        return job
