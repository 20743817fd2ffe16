"""A synthetic run in which every guarantee was tested and kept."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from holdfast_lab.history.records import (
    CANCELED,
    DONE,
    FAILED,
    Answered,
    Asked,
    Began,
    Broken,
    Ended,
    EndFact,
    GrantFact,
    JobFact,
    JobSnapshot,
    JobSpec,
    Lost,
    Record,
    Refused,
    Run,
    Schedule,
    TickFact,
)

BEGUN_US, WALL_MS = 1_000_000_000, 1_700_000_000_000
EVERY_MS = 1_000
WORK = "torture.work"


class Builder:
    """Builds a history as its writers would; each record advances time by a millisecond."""

    def __init__(self) -> None:
        self.at_us = BEGUN_US
        self.records: list[Record] = []
        self.jobs: dict[str, JobFact] = {}
        self.seen: dict[str, JobSnapshot] = {}
        self._places = self._ops = self._runs = 0
        self._tokens: dict[str, int] = {}

    def now_us(self) -> int:
        self.at_us += 1_000
        return self.at_us

    def wall_ms(self) -> int:
        return WALL_MS + (self.at_us - BEGUN_US) // 1_000

    # -- clients

    def ask(self, call: str, *, via: str = "grpc", job_id: str = "", wanted: Sequence[JobSpec] = ()) -> str:
        self._ops += 1
        op = f"op{self._ops}"
        asked = Asked(self.now_us(), op, "client-1", call, via, list(wanted), job_id=job_id, deadline_ms=5_000)
        self.records.append(asked)
        return op

    def answer(self, op: str, **fields: Any) -> None:  # noqa: ANN401 - those of the record
        self.records.append(Answered(self.now_us(), op, **fields))

    def refuse(self, op: str, code: str) -> None:
        self.records.append(Refused(self.now_us(), op, code))

    def lose(self, op: str) -> None:
        self.records.append(Lost(self.now_us(), op, "UNAVAILABLE"))

    def submit(self, job_id: str, wanted: JobSpec) -> None:
        """Adds a job that is submitted, acknowledged and stored."""
        op = self.ask("submit", wanted=[wanted])
        self.answer(op, ids=[job_id])
        self.make(job_id, wanted)

    def make(self, job_id: str, wanted: JobSpec, **fields: Any) -> None:  # noqa: ANN401 - those of the record
        """Adds a job to the store."""
        made_ms = self.wall_ms()
        self.jobs[job_id] = JobFact(
            job_id,
            wanted.name,
            1,
            type=wanted.type or WORK,
            queue=wanted.queue,
            priority=wanted.priority,
            number=len(self.jobs) + 1,
            store="node-1",
            key=wanted.key,
            created_ms=made_ms,
            not_before_ms=made_ms + wanted.delay_ms if wanted.delay_ms else 0,
            **fields,
        )
        self.seen[job_id] = JobSnapshot(job_id, 1, wanted.name)

    def read(self, job_id: str, *, via: str = "grpc", call: str = "get") -> None:
        op = self.ask(call, via=via, job_id=job_id)
        self.answer(op, seen=[self.seen[job_id]])

    def cancel(self, job_id: str, *, is_heard: bool = True) -> None:
        """Cancels a waiting job."""
        op = self.ask("cancel", job_id=job_id)
        self.end(job_id, CANCELED)
        if is_heard:
            self.answer(op, seen=[self.seen[job_id]])
        else:
            self.lose(op)

    # -- workers and the store

    def grant(self, job_id: str) -> int:
        self._places += 1
        token = self._tokens[job_id] = self._tokens.get(job_id, 0) + 7
        self.records.append(GrantFact(job_id, token, self._places, "node-1", self.wall_ms()))
        self.jobs[job_id] = replace(self.jobs[job_id], state=2, grants=self.jobs[job_id].grants + 1)
        self.seen[job_id] = replace(self.seen[job_id], state=2, attempts=self.jobs[job_id].grants)
        return token

    def attempt(self, job_id: str, outcome: str) -> tuple[int, str]:
        """Adds an attempt that is granted, begun and ended; returns its token and its run."""
        token = self.grant(job_id)
        self._runs += 1
        run = f"run{self._runs}"
        number = self.jobs[job_id].grants
        self.records.append(Began(self.now_us(), run, job_id, token, "worker-1", number, self.wall_ms()))
        if outcome != "killed":
            self.records.append(Ended(self.now_us(), run, outcome))
        return token, run

    def end(self, job_id: str, state: int, token: int = 0, run: str = "") -> None:
        self._places += 1
        self.records.append(EndFact(job_id, state, token, self._places))
        self.jobs[job_id] = replace(self.jobs[job_id], state=state, token=token, run=run)
        self.seen[job_id] = replace(self.seen[job_id], state=state, run=run)

    def do(self, job_id: str) -> None:
        """Runs the job once, with success."""
        token, run = self.attempt(job_id, "done")
        self.end(job_id, DONE, token, run)

    def fail(self, job_id: str, times: int) -> None:
        """Fails the job this many times, and ends it."""
        for _ in range(times):
            token, _ = self.attempt(job_id, "failed")
        self.end(job_id, FAILED, token)

    def break_(self, kind: str, target: str, lasts_us: int = 500) -> None:
        at_us = self.now_us()
        self.records.append(Broken(at_us, at_us + lasts_us, kind, target))


def sound() -> tuple[Run, list[Record]]:
    """Returns a history in which every rule has cases and no finding."""
    build = Builder()
    _quiet(build)
    _repeated(build)
    _retried(build)
    _ticks(build)
    build.break_("kill", "server")
    _interrupted(build)
    _unheard(build)
    build.break_("duplicate", "clients", lasts_us=5_000)
    _doubled(build)
    ended_us = build.now_us()
    drained_us = build.now_us()
    _read_at_the_end(build)
    run = Run(
        "made-up",
        1,
        faults=["kill", "duplicate"],
        calls=["submit", "get", "result", "cancel", "retry", "list"],
        keeps=["grants", "order", "ticks"],
        schedules=[Schedule("hourly", EVERY_MS, WALL_MS, WALL_MS + 3 * EVERY_MS)],
        begun_us=BEGUN_US,
        faults_ended_us=ended_us,
        drained_us=drained_us,
        drain_bound_s=30.0,
    )
    return run, [*build.records, *build.jobs.values()]


def _quiet(build: Builder) -> None:
    """Two jobs in a lane, a delayed one, and a canceled one."""
    build.submit("first", JobSpec("first", digest="one"))
    build.submit("second", JobSpec("second", digest="two"))
    build.submit("later", JobSpec("later", delay_ms=20))
    build.submit("canceled", JobSpec("canceled"))
    build.cancel("canceled")
    build.do("first")
    build.do("second")
    build.at_us += 100_000
    build.do("later")
    for name in ("first", "second", "canceled"):
        build.read(name)
        build.read(name, via="http", call="result")


def _repeated(build: Builder) -> None:
    """Repeats under a key and under an id, other content under the key, and a partly refused batch."""
    keyed = JobSpec("keyed", key="key", digest="one")
    build.lose(build.ask("submit", wanted=[keyed]))
    build.submit("keyed", keyed)
    build.answer(build.ask("submit", wanted=[keyed]), ids=["keyed"], existing=[0])
    other = JobSpec("other", key="key", digest="two")
    build.refuse(build.ask("submit", wanted=[other]), "FAILED_PRECONDITION")
    named = JobSpec("named", id="named")
    build.submit("named", named)
    build.answer(build.ask("submit", via="http", wanted=[named]), ids=["named"], existing=[0])
    batch = [JobSpec("batch-1"), JobSpec("batch-2")]
    build.answer(build.ask("submit", wanted=batch), ids=["batch-1", ""], refusals={1: "QUEUE_FULL"})
    build.make("batch-1", batch[0])
    for name in ("keyed", "named", "batch-1"):
        build.do(name)


def _retried(build: Builder) -> None:
    """A poison job and four retries of it: two responses arrive; of each kind one job names its original."""
    poison = JobSpec("poison", max_attempts=2, fails=2)
    build.submit("poison", poison)
    build.fail("poison", 2)
    build.answer(build.ask("retry", job_id="poison"), ids=["again"])
    build.make("again", poison, retry_of="poison")
    build.answer(build.ask("retry", job_id="poison"), ids=["again-unnamed"])
    build.make("again-unnamed", poison)
    build.lose(build.ask("retry", job_id="poison"))
    build.make("unheard-again", poison)
    build.lose(build.ask("retry", job_id="poison"))
    build.make("unheard-named", poison, retry_of="poison")
    for name in ("again", "again-unnamed", "unheard-again", "unheard-named"):
        build.fail(name, 2)


def _ticks(build: Builder) -> None:
    """Ticks that are fired, skipped, passed over together with the skipped one, and fired."""
    for number in (0, 3):
        job_id = f"tick-{number}"
        build.make(job_id, JobSpec(""), schedule="hourly")
        build.records.append(TickFact("hourly", WALL_MS + number * EVERY_MS, "fired", job_id))
        build.do(job_id)
    build.records.append(TickFact("hourly", WALL_MS + EVERY_MS, "skipped", passed=1))


def _interrupted(build: Builder) -> None:
    """A job that a kill interrupts, and that another attempt ends."""
    build.submit("killed", JobSpec("killed", max_attempts=3))
    build.attempt("killed", "killed")
    build.do("killed")


def _unheard(build: Builder) -> None:
    """Submits with unknown outcomes (done, not done, repeated), and such a cancel."""
    build.lose(build.ask("submit", wanted=[JobSpec("made")]))
    build.make("made", JobSpec("made"))
    build.do("made")
    build.lose(build.ask("submit", wanted=[JobSpec("not-made")]))
    build.ask("submit", wanted=[JobSpec("never-answered", key="never")])
    build.lose(build.ask("submit", wanted=[JobSpec("plain")]))
    build.make("plain", JobSpec("plain"))
    build.submit("plain-again", JobSpec("plain"))
    build.do("plain")
    build.do("plain-again")
    build.submit("let-go", JobSpec("let-go"))
    build.cancel("let-go", is_heard=False)


def _doubled(build: Builder) -> None:
    """Jobs while connections are duplicated: with a key one job, without one maybe two, like a retry."""
    build.submit("once", JobSpec("once", key="once"))
    build.submit("twice", JobSpec("twice"))
    build.make("twice-more", JobSpec("twice"))
    build.answer(build.ask("retry", job_id="killed"), ids=["killed-again"])
    for name in ("killed-again", "killed-once-more"):
        build.make(name, JobSpec("killed"), retry_of="killed")
    for name in ("once", "twice", "twice-more", "killed-again", "killed-once-more"):
        build.do(name)


def _read_at_the_end(build: Builder) -> None:
    for name in ("keyed", "killed", "poison", "again", "once"):
        build.read(name, call="result")
        build.read(name, via="http")
    build.answer(build.ask("list"), seen=list(build.seen.values()))
