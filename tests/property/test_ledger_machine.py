"""Random sequences of commands: after each one the ledger must agree with the model."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import structs

from holdfast.core import commands, events, image
from holdfast.core.lane import LaneKey
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING, TERMINAL, State
from holdfast.core.listing import Place
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, BackoffRule, Extra, NewJob, Note, QueueMode, Template
from holdfast.core.overview import queue_stats
from holdfast_lab.simulation.ledger_view import view_job
from holdfast_lab.simulation.model import Model, ModelJob
from tests.unit.core.ledger_driver import LedgerDriver

TEMPLATES = [
    Template("echo"),
    Template("echo", priority=9),
    Template("echo", priority=0, max_attempts=3, max_losses=0, backoff=BackoffRule(FIXED, 20)),
    Template("echo", queue="q2", max_attempts=2, max_losses=1, backoff=BackoffRule(EXPONENTIAL, 50, 80)),
    Template("other", max_attempts=3, max_losses=2, backoff=BackoffRule(QUADRATIC, 30)),
    Template("anything", simulated=True, max_losses=0),
]
WORKERS = st.sampled_from(["w1", "w2", "w3"])
ROUTES = st.sets(st.sampled_from(["echo", "other", "sim"]), min_size=1).map(frozenset)
QUEUES = st.sets(st.sampled_from(["default", "q2"])).map(frozenset)
LEASE_MS = st.sampled_from([10, 100, 1_000])
MODES = st.sampled_from([QueueMode.OPEN, QueueMode.OPEN, QueueMode.PAUSED, QueueMode.DRAINING])
SPECS = st.tuples(
    st.integers(0, len(TEMPLATES) - 1),
    st.sampled_from(["", "", "", "k1", "k2", "k3"]),
    st.sampled_from(["", "", "", "u1", "u2"]),
    st.sampled_from([b"", b"x"]),
    st.sampled_from([0, 0, 0, 30, 2_000]),
)
OUTCOMES = st.sampled_from([DONE, DONE, FAILED, FAILED, CANCELED, QUEUED])


#: The fields in which a repeated submission must equal the first; no two templates share a lane.
Content = tuple[str, LaneKey, bytes, str, str]


def _is_last_chance(job: ModelJob) -> bool:
    return 0 < job.losses >= job.max_losses


class Expectation:
    """The expected reply to a submission, job by job, computed from the model alone."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._index = -1
        #: The indexes of the new jobs.
        self.new: list[int] = []
        self._known: dict[str, Content] = {job.id: _content(job) for job in model.jobs.values()}
        self._keys, self._unique = dict(model.keys), dict(model.unique)

    def of(self, job: NewJob) -> tuple[str, str]:
        """The job id or an empty string, and the reason of a refusal or an empty string."""
        self._index += 1
        template, extra = TEMPLATES[job.template], job.extra or Extra()
        content = (template.type, _lane(template), job.payload, extra.request_id, extra.unique_key)
        for known, reason in ((self._keys.get(extra.request_id), "REQUEST_ID_REUSED"), (job.id, "JOB_ID_REUSED")):
            if known in self._known:
                return (known, "") if self._known[known] == content else ("", reason)
        name = (template.type, extra.unique_key)
        if name in self._unique:
            return self._unique[name], ""
        if self._model.modes.get(template.queue, (0,))[0] == QueueMode.DRAINING:
            return "", "QUEUE_DRAINING"
        self._take(job.id, content, name)
        return job.id, ""

    def _take(self, job_id: str, content: Content, name: tuple[str, str]) -> None:
        self.new.append(self._index)
        self._known[job_id] = content
        if content[3]:
            self._keys[content[3]] = job_id
        if name[1]:
            self._unique[name] = job_id


def _lane(template: Template) -> LaneKey:
    return template.queue, template.route, template.priority


def _content(job: ModelJob) -> Content:
    return job.type, job.lane, job.payload, job.request_id, job.unique_key


class LedgerMachine(RuleBasedStateMachine):
    """A desk with several workers, some of which are late, send wrong data or are gone."""

    dedup_keys_max = 0
    aging_ms = 100

    def __init__(self) -> None:
        super().__init__()
        self.driver = LedgerDriver(aging_ms=self.aging_ms, dedup_keys_max=self.dedup_keys_max)
        self.minted = 0
        #: Every accepted job, for repeated submissions.
        self.submitted: list[NewJob] = []
        #: Every lease ever granted, for late or repeated reports.
        self.granted: list[tuple[str, str, int]] = []
        #: The deadline of each live lease in served time, tracked independently of the ledger.
        self.deadlines: dict[int, int] = {}
        self.snapshot: tuple[list[bytes], int] | None = None

    # -- submitters

    @rule(specs=st.lists(SPECS, min_size=1, max_size=5))
    def submit(self, specs: list[tuple[int, str, str, bytes, int]]) -> None:
        self._submit([self._new_job(*spec) for spec in specs])

    @precondition(lambda self: self.submitted)
    @rule(data=st.data(), changes=st.lists(st.booleans(), min_size=1, max_size=3))
    def submit_again(self, data: st.DataObject, changes: list[bool]) -> None:
        """Submits the same ids again, alone or twice in a batch, some of them with another payload."""
        chosen = [data.draw(st.sampled_from(self.submitted[-12:]), label="job") for _ in changes]
        kept = [job for job in chosen if job.id in self.driver.model.jobs]
        pairs = zip(kept, changes, strict=False)
        if kept:
            self._submit([structs.replace(job, payload=b"!") if change else job for job, change in pairs])

    def _submit(self, jobs: list[NewJob]) -> None:
        expected = Expectation(self.driver.model)
        answers = [expected.of(job) for job in jobs]
        reply = self.driver.do(commands.Submit(TEMPLATES, jobs))
        for index, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
            refusal = reply.refusals.get(index)
            assert (reply.job_ids[index], refusal.reason if refusal else "") == answer, job
            assert (index in reply.existing) == (bool(answer[0]) and index not in expected.new)
        self.submitted += [jobs[index] for index in expected.new]

    def _new_job(self, template: int, key: str, unique_key: str, payload: bytes, delay_ms: int) -> NewJob:
        self.minted += 1
        # Ids whose sort order is not the order of creation.
        job_id = f"{self.minted * 7919 % 1000:03}-{self.minted}"
        due_ms = self.driver.log_ms + delay_ms if delay_ms else 0
        extra = Extra(request_id=key, unique_key=unique_key) if key or unique_key else None
        return NewJob(job_id, template, payload, due_ms, extra)

    @rule(queue=st.sampled_from(["default", "q2"]), mode=MODES, reason=st.sampled_from(["", "why"]))
    def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        assert self.driver.set_mode(queue, mode, reason) is None
        assert self.driver.model.modes.get(queue, (QueueMode.OPEN,))[0] == mode

    @precondition(lambda self: self.minted)
    @rule(data=st.data())
    def cancel_queued(self, data: st.DataObject) -> None:
        jobs = self.driver.model.jobs
        ids = data.draw(st.lists(st.sampled_from([*jobs, "nobody"]), max_size=6), label="ids")
        waiting = [job_id for job_id in dict.fromkeys(ids) if job_id in jobs and jobs[job_id].state == QUEUED]
        assert self.driver.cancel_queued(*ids, reason="purged") == waiting
        assert all(jobs[job_id].state == CANCELED for job_id in waiting)

    @precondition(lambda self: self.minted)
    @rule(data=st.data(), reason=st.sampled_from(["", "enough"]))
    def cancel(self, data: st.DataObject, reason: str) -> None:
        ids = [*self.driver.model.jobs, "nobody"]
        self.driver.cancel(data.draw(st.sampled_from(ids)), reason)

    # -- workers

    @rule(worker=WORKERS, routes=ROUTES, queues=QUEUES, count=st.integers(1, 6), lease_ms=LEASE_MS)
    def lease(self, worker: str, routes: frozenset[str], queues: frozenset[str], count: int, lease_ms: int) -> None:
        granted = self.driver.do(commands.GrantLeases(worker, routes, queues, count, lease_ms))
        for lease in granted:
            queue, route, _ = self.driver.model.jobs[lease.job_id].lane
            assert route in routes
            assert not queues or queue in queues
            self.granted.append((worker, lease.job_id, lease.token))
            self.deadlines[lease.token] = self.driver.served_ms + lease_ms
        due = self._due(routes, queues)
        held = [self.driver.model.jobs[one.job_id] for one in self.driver.model.leases.values() if one.worker == worker]
        if len(held) == 1 and any(_is_last_chance(job) for job in held):
            return
        held_back = {job.lane[:2] for job in due if _is_last_chance(job)}
        left = [job.id for job in due if job.lane[:2] not in held_back]
        assert len(granted) == count or not left, "the worker has free slots although jobs are due"

    def _due(self, routes: frozenset[str], queues: frozenset[str]) -> list[ModelJob]:
        return [
            job
            for job in self.driver.model.jobs.values()
            if job.state == QUEUED
            and job.not_before_ms <= self.driver.log_ms
            and job.lane[1] in routes
            and (not queues or job.lane[0] in queues)
            and self.driver.model.modes.get(job.lane[0], (0,))[0] != QueueMode.PAUSED
        ]

    @rule(worker=WORKERS, lease_ms=LEASE_MS, data=st.data(), grace_ms=st.sampled_from([0, 50]))
    def heartbeat(self, worker: str, lease_ms: int, data: st.DataObject, grace_ms: int) -> None:
        model, served_ms = self.driver.model, self.driver.served_ms
        live = {lease.token for lease in model.leases.values() if lease.worker == worker}
        live = {token for token in live if self.deadlines[token] > served_ms}
        held = data.draw(st.none() | st.sets(st.sampled_from([*sorted(live), 10_000])), label="held")
        young = {token for token in live if self.driver.log_ms - model.leases[token].granted_ms < grace_ms}
        kept = live if held is None else live & (held | young)
        heard = self.driver.extend(worker, lease_ms, held, grace_ms)
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
        reply = self.driver.do(commands.Report(worker, rows))
        assert reply.refused[0] == expected

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), permille=st.integers(-2, 1_001), is_anonymous=st.booleans())
    def note(self, data: st.DataObject, permille: int, is_anonymous: bool) -> None:  # noqa: FBT001
        worker, job_id, token = data.draw(st.sampled_from(self.granted[-12:]), label="lease")
        worker = data.draw(st.sampled_from([worker, worker, worker, "w1"]), label="worker")
        said = Note(job_id, 0 if is_anonymous else token, permille, "words", ("a line",))
        # A state that no report has: a note is refused even if a report with the job's end would be accepted.
        expected = self._expected(worker, commands.ReportRow(job_id, said.token, 0))
        digest, position = self.driver.ledger.digest, self.driver.ledger.position
        assert self.driver.note(said, worker=worker) == [expected]
        assert self.driver.ledger.position == position + (expected == "")
        assert self.driver.ledger.digest == digest

    def _expected(self, worker: str, row: commands.ReportRow) -> str:
        job = self.driver.model.jobs.get(row.job_id)
        if job is None:
            return "UNKNOWN_JOB"
        lease = self.driver.model.leases.get(row.token or job.token)
        if lease is not None and lease.job_id == job.id:
            if lease.worker != worker:
                return "NOT_THE_HOLDER"
            return "" if self.deadlines[lease.token] > self.driver.served_ms else "LEASE_EXPIRED"
        if job.state not in TERMINAL:
            return "STALE_TOKEN"
        assert job.result is not None
        is_repeat = row.token and (row.token, row.state) == job.result[:2]
        return "" if is_repeat else "ALREADY_FINISHED"

    @rule(worker=WORKERS, reason=st.sampled_from(["disconnected", "released"]))
    def revoke(self, worker: str, reason: str) -> None:
        self.driver.revoke(worker, reason)
        assert not [lease for lease in self.driver.model.leases.values() if lease.worker == worker]

    # -- time

    @rule(milliseconds=st.sampled_from([1, 20, 100, 1_500]))
    def time_passes(self, milliseconds: int) -> None:
        self.driver.pass_ms(milliseconds)

    @rule(milliseconds=st.sampled_from([1, 3_600_000]))
    def wall_clock_jumps(self, milliseconds: int) -> None:
        self.driver.log_ms += milliseconds

    @rule(leases_max=st.integers(1, 4))
    def expire(self, leases_max: int) -> None:
        driver = self.driver
        over = [token for token in driver.model.leases if self.deadlines[token] <= driver.served_ms]
        assert driver.ledger.leases.is_expiry_due(driver.now) or not over
        for left in range(len(over), 0, -leases_max):
            driver.expire(leases_max)
            assert len([token for token in over if token in driver.model.leases]) == max(0, left - leases_max)
        assert driver.expire() == []
        assert not driver.ledger.leases.is_behind

    @rule(retain_jobs=st.integers(0, 5), retain_ms=st.sampled_from([0, 1_000, 1 << 40]))
    def evict(self, retain_jobs: int, retain_ms: int) -> None:
        self.driver.evict(retain_ms, retain_jobs)

    # -- reading

    @rule(
        states=st.lists(st.sampled_from(list(State)), max_size=3),
        offset=st.integers(0, 12),
        size=st.integers(1, 5),
        newest_first=st.booleans(),
    )
    def read_page(self, states: list[int], offset: int, size: int, newest_first: bool) -> None:  # noqa: FBT001
        sign = -1 if newest_first else 1
        jobs = [job for job in self.driver.model.jobs.values() if not states or job.state in states]
        ids = [job.id for job in sorted(jobs, key=lambda job: (sign * job.created_ms, job.id))]
        page, has_more = self.driver.ledger.page(states, offset, size, newest_first=newest_first)
        assert [job.id for job in page] == ids[offset : offset + size]
        assert has_more == (len(ids) > offset + size)

    @rule(
        states=st.lists(st.sampled_from(list(State)), max_size=3),
        size=st.integers(1, 5),
        budget=st.integers(1, 40),
        newest_first=st.booleans(),
    )
    def search(self, states: list[int], size: int, budget: int, newest_first: bool) -> None:  # noqa: FBT001
        sign = -1 if newest_first else 1
        jobs = [job for job in self.driver.model.jobs.values() if not states or job.state in states]
        wanted = [job for job in jobs if job.number % 2]
        ids = [job.id for job in sorted(wanted, key=lambda job: (sign * job.created_ms, job.id))]
        found: list[str] = []
        place: Place | None = None
        while True:
            part, place = self.driver.ledger.scan(
                states, place, size, budget, newest_first=newest_first, wants=lambda job: job.number % 2 == 1
            )
            found += [job.id for job in part]
            if place is None:
                break
        assert found == ids

    @rule()
    def count_queues(self) -> None:
        model, now_ms = self.driver.model, self.driver.log_ms
        for view in queue_stats(self.driver.ledger, now_ms):
            jobs = [job for job in model.jobs.values() if job.lane[0] == view.name]
            queued = [job for job in jobs if job.state == QUEUED]
            ready = [job for job in queued if job.not_before_ms <= now_ms]
            running = [job for job in jobs if job.state == RUNNING]
            assert (view.ready, view.delayed) == (len(ready), len(queued) - len(ready))
            assert view.running == len(running)
            assert view.mode == model.modes.get(view.name, (QueueMode.OPEN,))[0]
            waits = [now_ms - max(job.created_ms, job.not_before_ms) for job in ready]
            assert view.oldest_age_ms in waits if waits else view.oldest_age_ms == 0

    # -- restarts

    @rule()
    def restart_from_the_log(self) -> None:
        self._restart(self.driver.replayed)

    @rule()
    def take_snapshot(self) -> None:
        self.snapshot = list(image.dump(self.driver.ledger)), len(self.driver.bodies)

    @precondition(lambda self: self.snapshot and not self.dedup_keys_max)
    @rule()
    def restart_from_snapshot_and_tail(self) -> None:
        self._restart(self._load)

    def _load(self) -> object:
        assert self.snapshot
        chunks, taken_at = self.snapshot
        ledger = image.load(chunks, self.driver.config)
        for body in self.driver.bodies[taken_at:]:
            for event in events.decode(body):
                ledger.apply(event)
        return ledger

    def _restart(self, build: Callable[[], object]) -> None:
        driver = self.driver
        before = image.full_digest(driver.ledger), driver.ledger.digest, driver.ledger.position
        ledger = build()
        assert isinstance(ledger, type(driver.ledger))
        assert (image.full_digest(ledger), ledger.digest, ledger.position) == before
        driver.restart(ledger)
        for token, lease in driver.model.leases.items():
            self.deadlines[token] = driver.model.renewal_ms(lease, driver.log_ms)
        driver.start()

    # -- always

    @invariant()
    def book_is_what_the_model_says(self) -> None:
        self.driver.check()

    @invariant()
    def deadlines_are_never_noticed_late(self) -> None:
        """The next deadline is not later than that of any lease."""
        if self.driver.model.leases:
            wake_ms = self.driver.ledger.leases.next_deadline_ms()
            assert wake_ms is not None
            assert wake_ms <= min(self.deadlines[token] for token in self.driver.model.leases)

    def teardown(self) -> None:
        """In the end every job that is kept becomes terminal."""
        driver = self.driver
        for queue in list(driver.model.modes):
            driver.set_mode(queue, QueueMode.OPEN)
        for _ in range(20 * (len(driver.model.jobs) + 1)):
            if not driver.model.unfinished:
                break
            driver.pass_ms(3_000)
            driver.expire()
            for lease in driver.lease(100, routes=("echo", "other", "sim")):
                assert driver.report(lease.job_id, lease.token) == ""
        assert not driver.model.unfinished
        driver.check()
        for job_id in driver.model.jobs:
            driver.model.compare_job(job_id, view_job(driver.ledger.job(job_id)))


class BoundedKeysMachine(LedgerMachine):
    """The same with storage in memory, where only the newest keys are kept, and with strict priorities."""

    dedup_keys_max = 2
    aging_ms = 0


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40)
TestBoundedKeys = BoundedKeysMachine.TestCase
TestBoundedKeys.settings = settings(max_examples=30, stateful_step_count=30)
