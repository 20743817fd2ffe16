"""Notes: progress and log lines of running attempts, and where they can be read."""

import pytest

from holdfast import limits
from holdfast.core import commands, events, history
from holdfast.core.commands import Decision
from holdfast.core.lifecycle import FAILED
from holdfast.core.model import Note, QueueMode, Template
from holdfast.core.progress import Progress, ProgressBoard
from tests.unit.core.ledger_driver import LedgerDriver


def taken(driver: LedgerDriver, note: Note) -> Note:
    """Returns the note as the journal stores it."""
    decided = driver.decide(commands.TakeNotes("w1", [note]))
    assert isinstance(decided, Decision)
    assert isinstance(decided.event, events.Noted)
    (kept,) = decided.event.notes
    return kept


def test_note_changes_no_state(driver: LedgerDriver) -> None:
    """A note is an event that changes neither the digest nor a job nor a lease."""
    driver.submit("a")
    lease = driver.run_one()
    before = driver.ledger.digest, driver.job("a"), driver.ledger.state.leases[lease.token].expires_ms
    assert driver.note(Note("a", lease.token, 500, "half", ("one", "two"))) == [""]
    assert driver.ledger.position == 3
    assert (driver.ledger.digest, driver.job("a"), driver.ledger.state.leases[lease.token].expires_ms) == before
    assert driver.ledger.state.moves == []


def test_only_the_current_holder_is_listened_to(driver: LedgerDriver) -> None:
    """A note without a valid lease of its sender is refused with a reason and writes no event."""
    driver.submit("a", template=Template("echo", max_attempts=3))
    old = driver.run_one().token
    driver.report("a", old, FAILED, retry_after_ms=1)
    driver.submit("b")
    assert driver.note(Note("a", old), Note("b", 0), Note("nobody", old)) == [
        "STALE_TOKEN",
        "STALE_TOKEN",
        "UNKNOWN_JOB",
    ]
    driver.pass_ms(1)
    lease = driver.run_one()
    assert driver.note(Note("a", lease.token), worker="w2") == ["NOT_THE_HOLDER"]
    assert driver.note(Note("a", old)) == ["STALE_TOKEN"]
    driver.pass_ms(1_000)
    assert driver.note(Note("a", lease.token)) == ["LEASE_EXPIRED"]
    driver.expire()
    driver.cancel("a")
    assert driver.note(Note("a", lease.token)) == ["ALREADY_FINISHED"]
    assert not [body for body in driver.bodies if isinstance(events.decode(body)[0], events.Noted)]


def test_note_without_a_token_speaks_for_the_lease_on_its_job(driver: LedgerDriver) -> None:
    """A note with token 0 stands for the lease that its worker holds on the job, and the journal stores that token."""
    driver.submit("a")
    lease = driver.run_one()
    assert taken(driver, Note("a", 0, 1)).token == lease.token


@pytest.mark.parametrize(("said", "kept"), [(-1, -1), (-7, 0), (0, 0), (1_000, 1_000), (5_000, 1_000)])
def test_progress_is_kept_within_its_range(driver: LedgerDriver, said: int, kept: int) -> None:
    """The progress of a note is limited to 0 to 1,000, or -1 for none."""
    driver.submit("a")
    driver.run_one()
    assert taken(driver, Note("a", 1, said)).permille == kept


def test_long_notes_are_cut_to_their_limits(driver: LedgerDriver) -> None:
    """The message, the lines and their number are cut to their limits, and characters outside UTF-8 are replaced."""
    driver.submit("a")
    driver.run_one()
    note = taken(driver, Note("a", 1, 0, "m" * 9_999, ("\udcff" + "x" * 9_999,) * 999))
    assert len(note.message) == limits.NOTE_MESSAGE_CHARS_MAX
    assert len(note.lines) == limits.NOTE_LINES_MAX
    assert note.lines[0] == "?" + "x" * (limits.NOTE_LINE_CHARS_MAX - 1)
    assert driver.note(note) == [""]


def test_notes_of_one_command_are_bounded_together(driver: LedgerDriver) -> None:
    """The ledger refuses the notes that would make the event too large, and accepts those before them."""
    driver.submit("a")
    driver.run_one()
    note = Note("a", 1, lines=("x" * limits.NOTE_LINE_CHARS_MAX,) * limits.NOTE_LINES_MAX)
    reasons = driver.note(*[note] * 12)
    assert (reasons[0], reasons[-1], reasons.count("")) == ("", "NOTES_TOO_LARGE", 10)


def test_history_tells_progress_and_each_line() -> None:
    """The history has one entry for the progress and one per line, with worker and token, and none for a queue mode."""
    event = events.Noted(7, "w1", [Note("a", 3, 505, "half", ("one", "two")), Note("b", 4, -1, "", ("three",))])
    told = [(one.job_id, one.what, one.reason, one.worker, one.token) for one in history.entries(9, event)]
    assert told == [
        ("a", "progress", "50.5 %: half", "w1", 3),
        ("a", "log", "one", "w1", 3),
        ("a", "log", "two", "w1", 3),
        ("b", "log", "three", "w1", 4),
    ]
    canceled = list(history.entries(9, events.QueuedCanceled(8, ["a", "b"], "purged")))
    assert [(one.job_id, one.what, one.state, one.reason) for one in canceled] == [
        ("a", "canceled", "CANCELED", "purged"),
        ("b", "canceled", "CANCELED", "purged"),
    ]
    assert not list(history.entries(9, events.QueueModeSet(8, "q", QueueMode.PAUSED, "")))


class Watched:
    """A desk whose events a board reads."""

    def __init__(self) -> None:
        self.driver, self.board = LedgerDriver(), ProgressBoard()
        self._read = 0

    def read(self) -> ProgressBoard:
        for body in self.driver.bodies[self._read :]:
            for event in events.decode(body):
                self.board.applied(event)
        self._read = len(self.driver.bodies)
        return self.board


def test_board_merges_notes() -> None:
    """The board merges notes: one with only a percentage or only a message keeps the other, and lines keep both."""
    watched = Watched()
    watched.driver.submit("a")
    watched.driver.run_one()
    assert watched.read().get(1) is None
    for note in (Note("a", 1, 100), Note("a", 1, -1, "loading"), Note("a", 1, lines=("x",))):
        watched.driver.note(note)
        watched.driver.pass_ms(1)
    assert watched.read().get(1) == Progress(100, "loading", 1_001)


def test_board_forgets_with_the_lease() -> None:
    """A report, a revocation and an expiry each remove the progress of their lease."""
    watched = Watched()
    driver = watched.driver
    driver.submit("a", "b", "c")
    for lease in driver.lease(3):
        driver.note(Note(lease.job_id, lease.token, 1))
    assert len(watched.read()) == 3
    driver.report("a", 1)
    driver.revoke(tokens=frozenset({2}), reason="released")
    assert len(watched.read()) == 1
    driver.pass_ms(1_000)
    driver.expire()
    assert len(watched.read()) == 0
