"""The window of recent events: content, eviction and size."""

import threading
from collections.abc import Generator

import pytest

from holdfast.core import commands
from holdfast.core.commands import AnyCommand, Decision, ReportRow
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Note, Now, Template
from holdfast.ledger.event_window import EventWindow, WindowConfig
from holdfast.ledger.past_events import JournalWalk


class Told:
    """A ledger and a window that observes it."""

    def __init__(self, config: WindowConfig) -> None:
        self.ledger = Ledger(LedgerConfig())
        self.window = EventWindow(0, config)
        self._now_ms = 1_000

    def do(self, command: AnyCommand) -> None:
        """Decides and applies; the event is not durable yet."""
        self._now_ms += 1
        decision = self.ledger.decide(command, Now(self._now_ms, self._now_ms))
        assert isinstance(decision, Decision)
        assert decision.event is not None
        self.ledger.apply(decision.event)
        self.window.applied(self.ledger.position, decision.event, self.ledger)

    def sync(self) -> None:
        """Marks all events so far as durable."""
        self.window.durable(self.ledger.position)

    def positions(self, after: int = 0, count: int = 100) -> list[int]:
        return [position for position, _ in self.window.after(after, count)]


def submit(job_id: str, payload: bytes = b"") -> commands.Submit:
    return commands.Submit([Template("t")], [NewJob(job_id, 0, payload)])


@pytest.fixture
def told() -> Told:
    """A window of three events."""
    return Told(WindowConfig(events_max=3))


def test_window_returns_only_durable_events(told: Told) -> None:
    """The window returns an applied event only after its frame is synced."""
    told.do(submit("a"))
    told.sync()
    told.do(submit("b"))
    assert told.positions() == [1]
    told.sync()
    assert told.positions() == [1, 2]
    assert told.positions(after=1) == [2]
    assert told.positions(after=2) == []
    assert told.positions(count=1) == [1]


def test_oldest_events_go_first(told: Told) -> None:
    """Above its limit of events the window drops the oldest ones and reports its first position."""
    for number in range(10):
        told.do(submit(str(number)))
    told.sync()
    assert told.window.first_position == 8
    assert told.positions(after=7) == [8, 9, 10]


def test_query_for_dropped_events_is_a_bug(told: Told) -> None:
    """A query for dropped events is a bug and raises an AssertionError."""
    for number in range(10):
        told.do(submit(str(number)))
    told.sync()
    with pytest.raises(AssertionError):
        told.positions(after=3)


def test_payloads_and_outputs_count() -> None:
    """The size of payloads and outputs counts, so that a large event drops the events before it."""
    told = Told(WindowConfig(bytes_max=10_000))
    for number in range(5):
        told.do(submit(str(number)))
    told.sync()
    assert told.window.first_position == 1
    told.do(submit("large", bytes(9_000)))
    told.sync()
    assert told.window.first_position > 1
    told.do(commands.GrantLeases("w", frozenset({"t"}), frozenset(), 1, 1_000))
    told.do(commands.Report("w", [ReportRow("0", 1, DONE, bytes(9_500))]))
    told.sync()
    assert told.window.first_position >= 7


def test_notes_count() -> None:
    """The size of notes counts too, although no job stores them."""
    told = Told(WindowConfig(bytes_max=5_000))
    told.do(submit("a"))
    told.do(commands.GrantLeases("w", frozenset({"t"}), frozenset(), 1, 100_000))
    for _ in range(20):
        told.do(commands.TakeNotes("w", [Note("a", 1, 5, "m", ("x" * 500,))]))
    told.sync()
    assert told.window.first_position > 15


def test_forgotten_jobs_leave_the_weights_right() -> None:
    """Evicting a job does not reduce the size of its events in the window."""
    told = Told(WindowConfig(bytes_max=10_000))
    told.do(submit("a", bytes(4_000)))
    told.do(commands.Cancel("a", ""))
    told.do(commands.Evict(0, 0, 0))
    told.do(submit("b", bytes(4_000)))
    told.sync()
    assert told.window.first_position == 1
    told.do(submit("c", bytes(4_000)))
    told.sync()
    assert told.window.first_position == 2


def test_listeners_hear_of_every_sync(told: Told) -> None:
    """Listeners are called once for each sync."""
    heard: list[int] = []
    told.window.listeners.add(lambda: heard.append(told.window.durable_position))
    told.do(submit("a"))
    told.do(submit("b"))
    told.sync()
    assert heard == [2]


def test_walk_that_is_closed_while_it_is_read_ends_after_the_step() -> None:
    """Closing a walk does not wait for a running step, and the reader releases the walk's resources after the step."""
    inside, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def steps() -> Generator[int, None, None]:
        try:
            inside.set()
            go_on.wait()
            yield 1
        finally:
            ended.set()

    walk = JournalWalk(steps())
    reader = threading.Thread(target=walk.take, args=(1,))
    reader.start()
    inside.wait()
    walk.close()
    assert not ended.is_set()
    go_on.set()
    reader.join()
    assert ended.is_set()
    assert walk.take(1) == []
