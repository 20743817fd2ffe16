"""The keeper of snapshots: how often it asks for one that cannot be made."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from holdfast.coordinator.loop import Coordinator
from holdfast.coordinator.snapshots import KeeperConfig, SnapshotKeeper
from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.port import SegmentInfo


class Maker:
    """Ends at once, as told."""

    def __init__(self) -> None:
        self.is_able = False
        self.starts = 0

    def start(self, done: Callable[[bool], None]) -> None:
        self.starts += 1
        done(self.is_able)


def test_snapshot_that_cannot_be_made_is_asked_for_ever_less_often() -> None:
    """A maker that fails costs a replay each time; one that succeeds is asked as before."""
    book = SimpleNamespace(last_ms=0)
    coordinator = SimpleNamespace(observers=[], ledger=SimpleNamespace(book=book), is_serving=False)
    segment = SegmentInfo("one", 1, 9, 1, 1_000, is_sealed=True)
    journal, disk, maker = SimpleNamespace(segments=lambda: [segment]), SimpleNamespace(names=list), Maker()
    keeper = SnapshotKeeper(
        cast("Coordinator", coordinator),
        cast("FileJournal", journal),
        cast("Disk", disk),
        maker,
        KeeperConfig(snapshot_bytes=1_000, look_ms=1_000),
    )

    def pass_s(seconds: int) -> int:
        before = maker.starts
        for _ in range(seconds):
            book.last_ms += 1_000
            keeper.durable(9)
        return maker.starts - before

    assert pass_s(64) == 6
    assert pass_s(640) == 10
    maker.is_able = True
    pass_s(64)
    assert pass_s(10) == 10
