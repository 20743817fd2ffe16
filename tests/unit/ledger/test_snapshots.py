"""The keeper of snapshots: cleaning up, and retries of a failed snapshot."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.disk import Disk
from holdfast.journal.port import Journal, SegmentInfo
from holdfast.ledger.group_commit import GroupCommit
from holdfast.ledger.snapshot_keeper import SnapshotKeeper
from holdfast.ledger.snapshot_policy import KeeperConfig


class Maker:
    """Ends at once, with success or failure."""

    def __init__(self) -> None:
        self.is_able = False
        self.starts = 0

    def start(self, done: Callable[[str], None]) -> None:
        self.starts += 1
        done("" if self.is_able else "no room")


class Aside:
    """Runs its work when the test says so."""

    def __init__(self) -> None:
        self._given: list[tuple[Callable[[], int], Callable[[int | BaseException], None]]] = []

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        del is_lone
        self._given.append((work, done))

    def go_on(self) -> int:
        """Runs the pending work; returns its number of items."""
        given, self._given = self._given, []
        for work, done in given:
            done(work())
        return len(given)


def test_directory_is_listed_and_tidied_aside() -> None:
    """The writer's thread reads and deletes no file, and one cleanup runs at a time."""
    writer = SimpleNamespace(log_ms=0, is_serving=True)
    lists: list[int] = []

    def names() -> list[str]:
        lists.append(1)
        return []

    disk = SimpleNamespace(names=names, free_bytes=lambda: 1 << 40)
    aside = Aside()
    keeper = SnapshotKeeper(
        cast("GroupCommit", SimpleNamespace(writer=writer)),
        cast("Journal", SimpleNamespace(segments=list)),
        DirectoryArchive(cast("Disk", disk)),
        Maker(),
        aside,
        KeeperConfig(look_ms=1_000),
    )
    lists.clear()
    for _ in range(5):
        writer.log_ms += 1_000
        keeper.durable(9)
    assert not lists
    assert aside.go_on() == 1
    assert lists == [1]


def test_directory_that_cannot_be_read_is_looked_at_again() -> None:
    """A cleanup that fails has no effect on the writer, and the next one runs."""
    writer = SimpleNamespace(log_ms=0, is_serving=True)
    lists: list[int] = []

    def names() -> list[str]:
        lists.append(1)
        if len(lists) > 1:
            raise OSError(5, "Input/output error")
        return []

    aside = Aside()
    keeper = SnapshotKeeper(
        cast("GroupCommit", SimpleNamespace(writer=writer)),
        cast("Journal", SimpleNamespace(segments=list)),
        DirectoryArchive(cast("Disk", SimpleNamespace(names=names, free_bytes=lambda: 1 << 40))),
        Maker(),
        aside,
        KeeperConfig(look_ms=1_000),
    )
    for rounds in (1, 2):
        writer.log_ms += 1_000
        keeper.durable(9)
        assert aside.go_on() == 1
        assert len(lists) == 1 + rounds


def test_snapshot_that_cannot_be_made_is_asked_for_ever_less_often() -> None:
    """A snapshot that fails is retried at growing intervals, and after a success at the usual one."""
    writer = SimpleNamespace(log_ms=0, is_serving=False)
    segment = SegmentInfo("one", 1, 9, 1, 1_000, is_sealed=True)
    journal, disk, maker = (
        SimpleNamespace(segments=lambda: [segment]),
        SimpleNamespace(names=list, free_bytes=lambda: 1 << 40),
        Maker(),
    )
    aside = Aside()
    keeper = SnapshotKeeper(
        cast("GroupCommit", SimpleNamespace(writer=writer)),
        cast("Journal", journal),
        DirectoryArchive(cast("Disk", disk)),
        maker,
        aside,
        KeeperConfig(snapshot_bytes=1_000, look_ms=1_000),
    )

    def pass_s(seconds: int) -> int:
        before = maker.starts
        for _ in range(seconds):
            writer.log_ms += 1_000
            keeper.durable(9)
            aside.go_on()
        return maker.starts - before

    assert pass_s(64) == 6
    assert pass_s(640) == 10
    maker.is_able = True
    pass_s(64)
    assert pass_s(10) == 10
