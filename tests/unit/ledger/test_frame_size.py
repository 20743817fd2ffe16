"""The size of a frame while the previous one is synced."""

from collections.abc import Callable

from holdfast.clock import Uptime
from holdfast.core import commands
from holdfast.core.commands import GrantedLease, ReportReply, ReportRow
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Template
from holdfast.journal.memory import MemoryJournal
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorPorts, LoopConfig

WORK_FRAME_BYTES = 10_000
OUTPUT = bytes(4_000)
JOBS = 20


class Machine:
    """All ports of a coordinator: time stands still, and a sync ends when the test says so."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._syncs: list[tuple[Callable[[], int], Callable[[int | BaseException], None]]] = []

    def wall_ms(self) -> int:
        return 1_000

    def steady_ms(self) -> int:
        return 1_000

    def uptime(self) -> Uptime | None:
        return None

    def soon(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def later(self, delay_ms: int, call: Callable[[], None]) -> "Machine":
        return self

    def cancel(self) -> None:
        """Cancels a timer, which never fires here."""

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        self._syncs.append((work, done))

    def turn(self) -> None:
        """Runs all pending calls, but ends no sync."""
        while self._calls:
            self._calls.pop(0)()

    def settle(self) -> None:
        """Runs calls and syncs until nothing is pending."""
        self.turn()
        while self._syncs:
            work, done = self._syncs.pop(0)
            done(work())
            self.turn()


class Journal(MemoryJournal):
    """A journal that records the size of its frames."""

    def __init__(self) -> None:
        super().__init__(cluster_id=bytes(16))
        self.sizes: list[int] = []

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        self.sizes.append(len(body))
        return super().write(body, count, digest, now_ms)


def fatal(error: BaseException) -> None:
    raise error


def test_outputs_that_pile_up_behind_a_slow_sync_are_spread_over_frames() -> None:
    """Reports that arrive during one sync are spread over frames, which exceed the limit by at most one report."""
    machine, journal = Machine(), Journal()
    config = LoopConfig(frame_bytes=5_000, work_frame_bytes=WORK_FRAME_BYTES, linger_callers=1_000)
    coordinator = Coordinator(
        Ledger(LedgerConfig()), journal, CoordinatorPorts(machine, machine, machine, fatal), config
    )
    coordinator.start()
    answers: list[object] = []
    jobs = [NewJob(f"job-{number}", 0, b"") for number in range(JOBS)]
    coordinator.call(CommandLane.SUBMIT, commands.Submit([Template("t")], jobs), answers.append)
    command = commands.GrantLeases("w", frozenset({"t"}), frozenset(), JOBS, 60_000)
    machine.settle()
    coordinator.call(CommandLane.WORK, command, answers.append)
    machine.settle()
    granted = answers.pop()
    assert isinstance(granted, list)
    coordinator.call(CommandLane.SUBMIT, commands.Submit([Template("t")], [NewJob("last", 0, b"")]), answers.append)
    machine.turn()  # its frame is being synced from here on
    answers.clear()
    for lease in granted:
        assert isinstance(lease, GrantedLease)
        row = ReportRow(lease.job_id, lease.token, DONE, OUTPUT)
        coordinator.call(CommandLane.WORK, commands.Report("w", [row]), answers.append)
    machine.settle()
    assert [answer.refused for answer in answers if isinstance(answer, ReportReply)] == [[""]] * JOBS
    assert max(journal.sizes) < WORK_FRAME_BYTES + 2 * len(OUTPUT)


def test_frame_stays_open_until_the_usual_number_of_callers_has_joined() -> None:
    """With many callers a frame stays open until the usual number of callers has joined, and no longer."""
    machine, journal = Machine(), Journal()
    world, config = CoordinatorPorts(machine, machine, machine, fatal), LoopConfig(linger_callers=4)
    coordinator = Coordinator(Ledger(LedgerConfig()), journal, world, config)
    coordinator.start()
    machine.settle()
    answers: list[object] = []

    def submit(name: str) -> None:
        job = NewJob(name, 0, b"")
        coordinator.call(CommandLane.SUBMIT, commands.Submit([Template("t")], [job]), answers.append)

    for number in range(20 * 8):
        submit(f"usual-{number}")
        if number % 8 == 7:
            machine.settle()
    assert len(answers) == 20 * 8
    frames = len(journal.sizes)
    for name in ("first", "second", "third"):
        submit(name)
        machine.settle()
    assert len(journal.sizes) == frames
    for number in range(5):
        submit(f"late-{number}")
    machine.settle()
    assert (len(journal.sizes), len(answers)) == (frames + 1, 20 * 8 + 8)
