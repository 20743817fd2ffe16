"""A desk that executes commands: a ledger, a clock that tests control, and the model that checks every event.

Every event is encoded and decoded before it is applied, as in the journal, and the model reads the same bytes. A test
that uses a desk fails if the ledger breaks one of its guarantees.
"""

# ruff: noqa: ANN401 - replies are of any type, and a test that expects another one fails at once

from typing import Any

from holdfast.core import commands, events, image
from holdfast.core.commands import AnyCommand, Decision, GrantedLease, Refusal, ReportRow, Submitted
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import Extra, JobRecord, NewJob, Note, Now, QueueMode, Template
from holdfast_lab.simulation.ledger_view import view_ledger
from holdfast_lab.simulation.model import Model

ECHO = Template("echo")


class LedgerDriver:
    """A coordinator without an event loop and without a disk."""

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
        """Advances log time and served time together."""
        self.log_ms += milliseconds
        self.served_ms += milliseconds

    # -- executing commands

    def decide(self, command: AnyCommand) -> Decision | Refusal:
        """Returns the decision of the ledger; decides twice, because a decision must change nothing."""
        before = self.ledger.digest, self.ledger.position
        decided = self.ledger.decide(command, self.now)
        assert decided == self.ledger.decide(command, self.now)
        assert before == (self.ledger.digest, self.ledger.position)
        return decided

    def do(self, command: AnyCommand) -> Any:
        """Returns the reply or the refusal; the event is encoded, checked by the model and applied."""
        decided = self.decide(command)
        if isinstance(decided, Refusal):
            return decided
        if decided.extension is not None:
            self.ledger.leases.prolong(decided.extension)
        if decided.event is not None:
            self.take(decided.event)
        return decided.reply

    def take(self, event: events.AnyEvent) -> None:
        """Encodes an event, checks it with the model, applies it and appends it to the history."""
        body = events.join([events.encode_one(event)])
        self.model.feed(body, self.ledger.position + 1)
        (decoded,) = events.decode(body)
        self.ledger.apply(decoded)
        self.bodies.append(body)

    def check(self) -> None:
        """Checks that the state is consistent and equals the model's state."""
        self.ledger.state.audit()
        self.model.compare(view_ledger(self.ledger))

    # -- restarting

    def replayed(self) -> Ledger:
        """Returns another ledger, replayed from all events."""
        ledger = Ledger(self.config)
        for body in self.bodies:
            for event in events.decode(body):
                ledger.apply(event)
        return ledger

    def reloaded(self) -> Ledger:
        """Returns another ledger, loaded from the bytes of a snapshot."""
        return image.load(list(image.dump(self.ledger)), self.config)

    def restart(self, ledger: Ledger | None = None) -> None:
        """Continues with the ledger of a new process; served time starts at zero again."""
        self.ledger = ledger or self.replayed()
        self.served_ms = 0
        self.ledger.leases.resume(self.now)

    def start(self, process: str = "") -> None:
        """Records the start of a coordinator in the history."""
        self._epoch += 1
        self.do(commands.Start(self._epoch, process))

    # -- short forms of the usual commands

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
        """Reports an outcome; returns the reason of the refusal, empty if the report is accepted."""
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
        """Returns for each note the reason of its refusal, empty if it is accepted."""
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
        """Runs these jobs to DONE in this order; they must be the next jobs to be granted."""
        for job_id in ids:
            lease = self.run_one()
            assert lease.job_id == job_id
            assert self.report(job_id, lease.token, output=output) == ""

    def job(self, job_id: str) -> JobRecord:
        job = self.ledger.job(job_id)
        assert job is not None
        return job
