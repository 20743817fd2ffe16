"""Random histories: whatever is asked of a ledger, in any order, the model has nothing to object to."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core import commands, events, image
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, TERMINAL, State
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, Backoff, Extra, NewJob, Template
from holdfast.testing.ledger_view import view_job
from holdfast.testing.model import ModelJob
from tests.unit.core.desk import Desk

TEMPLATES = [
    Template("echo"),
    Template("echo", priority=9),
    Template("echo", priority=0, max_attempts=3, max_losses=0, backoff=Backoff(FIXED, 20)),
    Template("echo", queue="q2", max_attempts=2, max_losses=1, backoff=Backoff(EXPONENTIAL, 50, 80)),
    Template("other", max_attempts=3, max_losses=2, backoff=Backoff(QUADRATIC, 30)),
    Template("anything", simulated=True, max_losses=0),
]
WORKERS = st.sampled_from(["w1", "w2", "w3"])
ROUTES = st.sets(st.sampled_from(["echo", "other", "sim"]), min_size=1).map(frozenset)
QUEUES = st.sets(st.sampled_from(["default", "q2"])).map(frozenset)
LEASE_MS = st.sampled_from([10, 100, 1_000])
SPECS = st.tuples(
    st.integers(0, len(TEMPLATES) - 1),
    st.sampled_from(["", "", "k1", "k2", "k3"]),
    st.sampled_from([b"", b"x"]),
    st.sampled_from([0, 0, 0, 30, 2_000]),
)
OUTCOMES = st.sampled_from([DONE, DONE, FAILED, FAILED, CANCELED, QUEUED])


def _is_last_chance(job: ModelJob) -> bool:
    return 0 < job.losses >= job.max_losses


class LedgerMachine(RuleBasedStateMachine):
    """A desk with several workers behind it, some of which are late, confused or gone."""

    dedup_keys_max = 0
    aging_ms = 100

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(aging_ms=self.aging_ms, dedup_keys_max=self.dedup_keys_max)
        self.minted = 0
        #: Every lease ever granted, for reports that come late or twice.
        self.granted: list[tuple[str, str, int]] = []
        #: When each live lease ends in served time, kept apart from what the ledger believes.
        self.deadlines: dict[int, int] = {}
        self.snapshot: tuple[list[bytes], int] | None = None

    # -- submitters

    @rule(specs=st.lists(SPECS, min_size=1, max_size=5))
    def submit(self, specs: list[tuple[int, str, bytes, int]]) -> None:
        jobs = [self._new_job(*spec) for spec in specs]
        keys = dict(self.desk.model.keys)
        reply = self.desk.do(commands.Submit(TEMPLATES, jobs))
        for index, (job, job_id) in enumerate(zip(jobs, reply.job_ids, strict=True)):
            assert bool(job_id) != (index in reply.refusals)
            if job.extra and job.extra.request_id in keys:
                assert job_id in ("", keys[job.extra.request_id])

    def _new_job(self, template: int, key: str, payload: bytes, delay_ms: int) -> NewJob:
        self.minted += 1
        # Ids that do not sort as they were made, so that order by id and order by age differ.
        job_id = f"{self.minted * 7919 % 1000:03}-{self.minted}"
        due_ms = self.desk.log_ms + delay_ms if delay_ms else 0
        return NewJob(job_id, template, payload, due_ms, Extra(request_id=key) if key else None)

    @precondition(lambda self: self.minted)
    @rule(data=st.data(), reason=st.sampled_from(["", "enough"]))
    def cancel(self, data: st.DataObject, reason: str) -> None:
        ids = [*self.desk.model.jobs, "nobody"]
        self.desk.cancel(data.draw(st.sampled_from(ids)), reason)

    # -- workers

    @rule(worker=WORKERS, routes=ROUTES, queues=QUEUES, count=st.integers(1, 6), lease_ms=LEASE_MS)
    def lease(self, worker: str, routes: frozenset[str], queues: frozenset[str], count: int, lease_ms: int) -> None:
        granted = self.desk.do(commands.Lease(worker, routes, queues, count, lease_ms))
        for lease in granted:
            queue, route, _ = self.desk.model.jobs[lease.job_id].lane
            assert route in routes
            assert not queues or queue in queues
            self.granted.append((worker, lease.job_id, lease.token))
            self.deadlines[lease.token] = self.desk.served_ms + lease_ms
        due = self._due(routes, queues)
        held = [self.desk.model.jobs[one.job_id] for one in self.desk.model.leases.values() if one.worker == worker]
        if len(held) == 1 and any(_is_last_chance(job) for job in held):
            return
        held_back = {job.lane[:2] for job in due if _is_last_chance(job)}
        left = [job.id for job in due if job.lane[:2] not in held_back]
        assert len(granted) == count or not left, "a worker went away with free slots while jobs were due"

    def _due(self, routes: frozenset[str], queues: frozenset[str]) -> list[ModelJob]:
        return [
            job
            for job in self.desk.model.jobs.values()
            if job.state == QUEUED
            and job.not_before_ms <= self.desk.log_ms
            and job.lane[1] in routes
            and (not queues or job.lane[0] in queues)
        ]

    @rule(worker=WORKERS, lease_ms=LEASE_MS, data=st.data(), grace_ms=st.sampled_from([0, 50]))
    def heartbeat(self, worker: str, lease_ms: int, data: st.DataObject, grace_ms: int) -> None:
        model, served_ms = self.desk.model, self.desk.served_ms
        live = {lease.token for lease in model.leases.values() if lease.worker == worker}
        live = {token for token in live if self.deadlines[token] > served_ms}
        held = data.draw(st.none() | st.sets(st.sampled_from([*sorted(live), 10_000])), label="held")
        young = {token for token in live if self.desk.log_ms - model.leases[token].granted_ms < grace_ms}
        kept = live if held is None else live & (held | young)
        heard = self.desk.extend(worker, lease_ms, held, grace_ms)
        assert set(heard.held) == kept
        if kept == live:
            self.deadlines.update(dict.fromkeys(kept, served_ms + lease_ms))

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), state=OUTCOMES, is_retryable=st.booleans(), is_anonymous=st.booleans())
    def report(self, data: st.DataObject, state: State, is_retryable: bool, is_anonymous: bool) -> None:  # noqa: FBT001
        worker, job_id, token = data.draw(st.sampled_from(self.granted[-12:]), label="lease")
        worker = data.draw(st.sampled_from([worker, worker, worker, "w1"]), label="worker")
        row = commands.ReportRow(job_id, 0 if is_anonymous else token, state, b"out", "sum", "why", 5, is_retryable)
        rows = [row] * data.draw(st.integers(1, 2), label="times")
        expected = self._expected(worker, row)
        reply = self.desk.do(commands.Report(worker, rows))
        assert reply.refused[0] == expected

    def _expected(self, worker: str, row: commands.ReportRow) -> str:
        job = self.desk.model.jobs.get(row.job_id)
        if job is None:
            return "UNKNOWN_JOB"
        lease = self.desk.model.leases.get(row.token or job.token)
        if lease is not None and lease.job_id == job.id:
            if lease.worker != worker:
                return "NOT_THE_HOLDER"
            return "" if self.deadlines[lease.token] > self.desk.served_ms else "LEASE_EXPIRED"
        if job.state not in TERMINAL:
            return "STALE_TOKEN"
        assert job.result is not None
        is_repeat = row.token and (row.token, row.state) == job.result[:2]
        return "" if is_repeat else "ALREADY_FINISHED"

    @rule(worker=WORKERS, reason=st.sampled_from(["disconnected", "released"]))
    def revoke(self, worker: str, reason: str) -> None:
        self.desk.revoke(worker, reason)
        assert not [lease for lease in self.desk.model.leases.values() if lease.worker == worker]

    # -- time

    @rule(milliseconds=st.sampled_from([1, 20, 100, 1_500]))
    def time_passes(self, milliseconds: int) -> None:
        self.desk.pass_ms(milliseconds)

    @rule(milliseconds=st.sampled_from([1, 3_600_000]))
    def wall_clock_jumps(self, milliseconds: int) -> None:
        self.desk.log_ms += milliseconds

    @rule()
    def expire(self) -> None:
        desk = self.desk
        over = [token for token in desk.model.leases if self.deadlines[token] <= desk.served_ms]
        assert desk.ledger.leases.is_expiry_due(desk.now) == bool(over)
        desk.expire()
        assert not [token for token in over if token in desk.model.leases]
        assert not desk.ledger.leases.is_expiry_due(desk.now)

    @rule(retain_jobs=st.integers(0, 5), retain_ms=st.sampled_from([0, 1_000, 1 << 40]))
    def evict(self, retain_jobs: int, retain_ms: int) -> None:
        self.desk.evict(retain_ms, retain_jobs)

    # -- reading

    @rule(
        states=st.lists(st.sampled_from(list(State)), max_size=3),
        offset=st.integers(0, 12),
        size=st.integers(1, 5),
        newest_first=st.booleans(),
    )
    def read_page(self, states: list[int], offset: int, size: int, newest_first: bool) -> None:  # noqa: FBT001
        sign = -1 if newest_first else 1
        jobs = [job for job in self.desk.model.jobs.values() if not states or job.state in states]
        ids = [job.id for job in sorted(jobs, key=lambda job: (sign * job.created_ms, job.id))]
        page, has_more = self.desk.ledger.page(states, offset, size, newest_first=newest_first)
        assert [job.id for job in page] == ids[offset : offset + size]
        assert has_more == (len(ids) > offset + size)

    # -- restarts

    @rule()
    def restart_from_the_log(self) -> None:
        self._restart(self.desk.replayed)

    @rule()
    def take_snapshot(self) -> None:
        self.snapshot = list(image.dump(self.desk.ledger)), len(self.desk.bodies)

    @precondition(lambda self: self.snapshot and not self.dedup_keys_max)
    @rule()
    def restart_from_snapshot_and_tail(self) -> None:
        self._restart(self._load)

    def _load(self) -> object:
        assert self.snapshot
        chunks, taken_at = self.snapshot
        ledger = image.load(chunks, self.desk.config)
        for body in self.desk.bodies[taken_at:]:
            for event in events.decode(body):
                ledger.apply(event)
        return ledger

    def _restart(self, build: Callable[[], object]) -> None:
        desk = self.desk
        before = image.full_digest(desk.ledger), desk.ledger.digest, desk.ledger.position
        ledger = build()
        assert isinstance(ledger, type(desk.ledger))
        assert (image.full_digest(ledger), ledger.digest, ledger.position) == before
        desk.restart(ledger)
        for token, lease in desk.model.leases.items():
            self.deadlines[token] = min(lease.expires_ms - desk.log_ms, lease.lease_ms)

    # -- always

    @invariant()
    def book_is_what_the_model_says(self) -> None:
        self.desk.check()

    @invariant()
    def deadlines_are_never_noticed_late(self) -> None:
        """Whoever sleeps until the next deadline does not oversleep any lease."""
        if self.desk.model.leases:
            wake_ms = self.desk.ledger.leases.next_deadline_ms()
            assert wake_ms is not None
            assert wake_ms <= min(self.deadlines[token] for token in self.desk.model.leases)

    def teardown(self) -> None:
        """After the trouble everything drains: every job that is kept becomes terminal."""
        desk = self.desk
        for _ in range(20 * (len(desk.model.jobs) + 1)):
            if not desk.model.unfinished:
                break
            desk.pass_ms(3_000)
            desk.expire()
            for lease in desk.lease(100, routes=("echo", "other", "sim")):
                assert desk.report(lease.job_id, lease.token) == ""
        assert not desk.model.unfinished
        desk.check()
        for job_id in desk.model.jobs:
            desk.model.compare_job(job_id, view_job(desk.ledger.job(job_id)))


class BoundedKeysMachine(LedgerMachine):
    """The same with storage in memory, where only the newest keys are kept, and strict priorities."""

    dedup_keys_max = 2
    aging_ms = 0


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40)
TestBoundedKeys = BoundedKeysMachine.TestCase
TestBoundedKeys.settings = settings(max_examples=30, stateful_step_count=30)
