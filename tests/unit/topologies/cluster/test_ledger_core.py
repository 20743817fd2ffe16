"""`LedgerCore` serves from a store that it is given, over any implementation of the ports of the database."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import Template
from holdfast.journal.port import JournalConfig, SegmentInfo
from holdfast.ledger.service import LedgerCore
from holdfast.ports import JobDraft
from holdfast.process.memory import memory_for_jobs
from holdfast.settings import Settings
from holdfast.testing import ManualClock
from holdfast.topologies.cluster.event_versions import EventGate
from holdfast.topologies.cluster.follower import TakenOver
from holdfast.topologies.cluster.journal import ShardStorage
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.ports import Append, FrameKey, StoredFrame
from holdfast.topologies.cluster.store import ClusterStore, ShardLeadership
from tests.unit.topologies.cluster.cluster_rig import CLUSTER_ID


class FrameTable:
    """One shard in memory, without faults: writer and reader at once."""

    def __init__(self) -> None:
        self.rows: list[StoredFrame] = []

    def append(self, frame: StoredFrame, inbox: Sequence[int] = ()) -> Append:
        del inbox
        self.rows.append(frame)
        return Append.WRITTEN

    def find(self, first_position: int) -> FrameKey | None:
        raise AssertionError(first_position)

    def confirm(self, epoch: int) -> Append:
        raise AssertionError(epoch)

    def open_segment(self, first_position: int, epoch: int, created_ms: int) -> Append:
        raise AssertionError((first_position, epoch, created_ms))

    def segments(self) -> list[SegmentInfo]:
        return [SegmentInfo("all", 1, self.end_position(), 1, 0, is_sealed=False)]

    def remove_segments(self, names: Sequence[str], epoch: int) -> Append:
        raise AssertionError((names, epoch))

    def frames(self, after: int, bytes_max: int) -> list[StoredFrame]:
        del bytes_max
        return [frame for frame in self.rows if frame.last_position > after]

    def first_position(self) -> int:
        return 1

    def end_position(self) -> int:
        return self.rows[-1].last_position if self.rows else 0

    def close(self) -> None:
        pass


def unexpected(error: BaseException) -> None:
    raise AssertionError("the journal failed") from error


async def test_core_serves_from_a_store_that_it_is_given(tmp_path: Path) -> None:
    """Jobs are written as frames of the shard, and their history is read from there."""
    settings, clock, table = Settings(data=str(tmp_path / "unused")), ManualClock(), FrameTable()
    config = LedgerConfig(settings.aging_ms, settings.dedup_keys_max, memory_for_jobs(settings))
    leadership = ShardLeadership(0, CLUSTER_ID, 7, LeaseDeadline(clock, 10_000), EventGate())
    storage = ShardStorage(table, table, lambda: table)
    store = ClusterStore(leadership, TakenOver(Ledger(config), 0, 0), storage, lambda _: None, JournalConfig())
    core = LedgerCore(settings, unexpected, clock, store=store)
    core.open()
    core.prepare()
    core.start()
    try:
        (job_id,) = (await core.jobs.submit([Template("echo")], [JobDraft(0, b"payload")])).job_ids
        entries = await core.feed.history(job_id)
    finally:
        await core.close()
    assert core.terms().epoch == 7
    assert [frame.epoch for frame in table.rows] == [7] * len(table.rows)
    assert [entry.position for entry in entries] == [2]
    assert not (tmp_path / "unused").exists()
