"""Cost of a submit, of a grant and of the longest turn, by the number of idle workers and of queues with jobs.

The real loop, ledger and dispatcher run in this process, with a journal in memory and without a network. So the figures
are the cost of deciding alone, in processor time. The ratios to the smallest case depend little on the machine.
"""

import gc
import statistics
import time
from collections import deque
from collections.abc import Callable

import msgspec

from holdfast.clock import SystemClock
from holdfast.core import commands
from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Template
from holdfast.journal.memory import MemoryJournal
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.sessions import Hello, Session, SessionConfig, SessionDispatcher
from holdfast.process.garbage_collector import tune_collector
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.measures import progress
from holdfast_lab.measure.rounds import Say
from holdfast_lab.measure.tables import columns

SIZES = (10, 1_000, 10_000)
#: The number of workers with many queues, and the capacity of each.
WORKERS, ROOM = 300, 10
#: The number of operations from which the median is taken.
SAMPLES = 200
#: A step of time, shorter than a stall.
_STEP_MS = 200
_TYPE = "measured"
_HOUR_MS = 3_600_000
_LEASE_MS = 60_000


class _IdleTimer:
    """A timer that never fires: nothing measured here waits for time."""

    def cancel(self) -> None:
        """Does nothing."""


class _SteppedClock(SystemClock):
    """The machine's clocks plus an offset."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        """UTC since 1970."""
        return SystemClock.wall_ms(self) + self.ahead_ms

    def steady_ms(self) -> int:
        """Since boot."""
        return SystemClock.steady_ms(self) + self.ahead_ms


class TimedServer:
    """A coordinator whose calls run one after the other and are timed."""

    def __init__(self, lease_ms: int = _HOUR_MS) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self.longest_s = 0.0
        self.spent_s = 0.0
        self.clock = _SteppedClock()
        world = CoordinatorPorts(self.clock, self, self, _raise)
        self.ledger = Ledger(LedgerConfig())
        journal = MemoryJournal(keeps_frames=False)
        self.coordinator = Coordinator(self.ledger, journal, world, LoopConfig())
        self.dispatcher = SessionDispatcher(self.coordinator, SessionConfig(lease_ms, _HOUR_MS))
        self.workers: dict[str, tuple[Session, list[GrantedLease]]] = {}
        self.coordinator.start()
        self.settle()

    def soon(self, call: Callable[[], None]) -> None:
        """Runs the call in the next round."""
        self._calls.append(call)

    def later(self, _delay_ms: int, _call: Callable[[], None]) -> _IdleTimer:
        """Never runs the call."""
        return _IdleTimer()

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Runs the work in the next round, in place of another thread."""
        del is_lone
        self._calls.append(lambda: done(work()))

    def settle(self) -> None:
        """Runs every call that is due, and times each."""
        while self._calls:
            call = self._calls.popleft()
            started = time.thread_time()
            call()
            took_s = time.thread_time() - started
            self.spent_s += took_s
            self.longest_s = max(self.longest_s, took_s)

    def timed(self, act: Callable[[], None]) -> float:
        """Returns the seconds that an act and its consequences take on the coordinator's thread."""
        self.spent_s = 0.0
        started = time.thread_time()
        act()
        called_s = time.thread_time() - started
        self.settle()
        return called_s + self.spent_s

    def pass_ms(self, ms: int) -> None:
        """Advances time in steps too short for a stall; each step wakes the coordinator, because no timer does."""
        for _ in range(0, ms, _STEP_MS):
            self.clock.ahead_ms += _STEP_MS
            self.coordinator.wake()
            self.settle()

    # -- clients and workers

    def submit(self, job_id: str, queue: str = "default", not_before_ms: int = 0) -> None:
        """Submits one job."""
        command = commands.Submit([Template(_TYPE, queue)], [NewJob(job_id, 0, not_before_ms=not_before_ms)])
        self.coordinator.call(CommandLane.SUBMIT, command, _ignore)

    def attach(self, name: str, room: int, *queues: str) -> None:
        """Attaches a worker that waits for jobs."""
        leases: list[GrantedLease] = []
        hello = Hello(name, frozenset({_TYPE}), frozenset(queues))
        session = Session(hello, lambda push: leases.extend(push.leases), _nothing)
        self.workers[name] = session, leases
        self.dispatcher.attach(session)
        if room:
            self.dispatcher.grant_credits(session, room)

    def finish(self, name: str, count: int) -> None:
        """Reports jobs of a worker as done, and grants credits for as many again."""
        session, leases = self.workers[name]
        rows = [ReportRow(lease.job_id, lease.token, DONE) for lease in leases[:count]]
        del leases[:count]
        self.dispatcher.report(session, 1, rows)
        self.dispatcher.grant_credits(session, len(rows))


def _raise(error: BaseException) -> None:
    raise error


def _ignore(_: object) -> None:
    """Ignores the reply."""


def _nothing() -> None:
    """Does nothing: no session is superseded."""


class Row(msgspec.Struct, frozen=True):
    """One case: its sizes, medians in microseconds, and the longest turn in milliseconds."""

    case: str
    workers: int
    queues: int
    submit_us: float
    finish_us: float
    longest_turn_ms: float


def idle_workers(count: int, *, is_own_kind: bool) -> Row:
    """Measures single submits while this many workers wait, all alike or each with a queue of its own too."""
    server = TimedServer()
    for number in range(count):
        server.attach(f"w{number}", 1, *(("default", f"own-{number}") if is_own_kind else ()))
    server.settle()
    server.longest_s = 0.0
    submits, finishes = [], []
    for number in range(SAMPLES):
        submits.append(server.timed(lambda number=number: server.submit(f"job-{number}")))  # type: ignore[misc] # mypy cannot infer the default
        holder = next(lease for lease in server.ledger.state.leases.values()).worker
        finishes.append(server.timed(lambda holder=holder: server.finish(holder, 1)))  # type: ignore[misc] # mypy cannot infer the default
    case = "idle workers, each with other queues" if is_own_kind else "idle workers"
    return _row(case, count, 1, submits, finishes, server)


def many_queues(count: int, *, are_named: bool) -> Row:
    """Measures jobs waiting in this many queues when workers attach; then each report frees a slot for the next job."""
    server = TimedServer()
    names = [f"q{number}" for number in range(count)]
    for number in range(max(count, 2 * WORKERS * ROOM)):
        server.submit(f"first-{number}", names[number % count])
        server.settle()
    server.longest_s = 0.0
    for number in range(WORKERS):
        server.attach(f"w{number}", ROOM, *(names if are_named else ()))
    server.settle()
    submits, finishes = [], []
    for number in range(SAMPLES):
        queue = names[number * 7 % count]
        submits.append(server.timed(lambda number=number, queue=queue: server.submit(f"job-{number}", queue)))  # type: ignore[misc] # mypy cannot infer the default
        holder = f"w{number % WORKERS}"
        finishes.append(server.timed(lambda holder=holder: server.finish(holder, 1)))  # type: ignore[misc] # mypy cannot infer the default
    case = f"jobs in queues, {WORKERS} workers" + (" that name all of them" if are_named else "")
    return _row(case, WORKERS, count, submits, finishes, server)


def together(count: int, what: str) -> Row:
    """Measures the longest turn when this many leases, workers or delayed jobs are due at one instant."""
    server = TimedServer(_LEASE_MS)
    due_ms = server.coordinator.time.now().log_ms + _LEASE_MS if what == "delayed jobs that are due" else 0
    for number in range(count):
        if not due_ms:
            server.attach(f"w{number}", 1)
        server.submit(f"job-{number}", not_before_ms=due_ms)
        server.settle()
    if what == "leases that expire":
        for session, _ in server.workers.values():
            server.dispatcher.heartbeat(session)
        server.settle()
    elif what == "workers that are lost":
        for session, _ in server.workers.values():
            server.dispatcher.detach(session)
    server.longest_s = 0.0
    server.pass_ms(2 * _LEASE_MS)
    assert not server.ledger.state.leases
    assert not server.ledger.state.ready.delayed
    return Row(f"{what} at one instant", 0 if due_ms else count, 1, 0.0, 0.0, server.longest_s * 1e3)


def _row(case: str, workers: int, queues: int, submits: list[float], finishes: list[float], server: TimedServer) -> Row:
    return Row(
        case,
        workers,
        queues,
        statistics.median(submits) * 1e6,
        statistics.median(finishes) * 1e6,
        server.longest_s * 1e3,
    )


def measure(say: Say, sizes: tuple[int, ...] = SIZES) -> list[Row]:
    """Measures all cases, the smallest first."""
    cases: list[Callable[[int], Row]] = [
        lambda size: idle_workers(size, is_own_kind=False),
        lambda size: idle_workers(size, is_own_kind=True),
        lambda size: many_queues(size, are_named=False),
        lambda size: many_queues(size, are_named=True),
        lambda size: together(size, "leases that expire"),
        lambda size: together(size, "workers that are lost"),
        lambda size: together(size, "delayed jobs that are due"),
    ]
    rows = []
    for case in cases:
        for size in sizes:
            gc.collect()
            rows.append(case(size))
            say(f"{rows[-1].case}: {size:,}")
    return rows


def shown(rows: list[Row]) -> str:
    """Returns a table with each cost also as a ratio to the smallest case of its kind."""
    lines = []
    least: dict[str, Row] = {}
    for row in rows:
        first = least.setdefault(row.case, row)
        costs = (*_shown_cost(row.submit_us, first.submit_us), *_shown_cost(row.finish_us, first.finish_us))
        lines.append((row.case, f"{row.workers:,}", f"{row.queues:,}", *costs, f"{row.longest_turn_ms:,.1f}"))
    heads = ("case", "workers", "queues", "submit µs", "×", "report and next job µs", "×", "longest turn ms")
    return columns(heads, lines)


def _shown_cost(cost_us: float, least_us: float) -> tuple[str, str]:
    return (f"{cost_us:,.0f}", f"{cost_us / least_us:.1f}") if least_us else ("–", "–")


def main() -> None:
    """Print the figures."""
    options = parser(__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="idle workers, and queues with jobs")
    given = options.parse_args()
    tune_collector()  # as a server does
    rows = measure(progress(), tuple(given.sizes))
    show(rows, shown(rows), as_json=given.json)


if __name__ == "__main__":
    main()
