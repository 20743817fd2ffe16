"""A follower keeps the state of a shard equal to its frames, and says when it cannot."""

from collections.abc import Iterator

import pytest
from msgspec import structs

from holdfast.core import image
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.ledger import Ledger
from holdfast.journal.errors import JournalFailedError
from holdfast.journal.snapshot import SnapshotHeader
from holdfast.topologies.cluster.followed_ledger import FollowedLedger
from holdfast.topologies.cluster.follower import FollowerState, ShardFollower, TakenOver
from holdfast.topologies.cluster.frame_checksum import seal
from holdfast.topologies.cluster.journal import ClusterJournal
from holdfast_lab.simulation.process_thread import ProcessThread
from tests.unit.ledger.test_archives import fill
from tests.unit.topologies.cluster.cluster_rig import CLUSTER_ID, LEASE_MS, ClusterRig, new_ledger

JOBS = 10
END = 2 * JOBS


class Followed:
    """A shard with jobs, its leader, and a follower."""

    def __init__(self, rig: ClusterRig, segment_bytes: int = 1 << 20) -> None:
        self.rig = rig
        self.ledger: Ledger = new_ledger()
        self.journal: ClusterJournal
        self.thread: ProcessThread
        self.journal, self.thread = rig.journal(rig.take(), segment_bytes=segment_bytes)
        self.write(0, JOBS)
        self.followed, self.follower = self.new_follower()

    def write(self, first: int, count: int) -> None:
        self.rig.do(lambda: fill(self.journal, self.ledger, first, count), self.thread)

    def new_follower(self) -> tuple[FollowedLedger, ShardFollower]:
        thread = self.rig.thread()
        followed = self.rig.followed(thread)
        return followed, ShardFollower(0, self.rig.process, thread, followed, poll_ms=50)

    def take_over(self) -> TakenOver | None:
        taken = list[TakenOver | None]()
        self.follower.take_over(taken.append)
        self.rig.until(lambda: bool(taken))
        return taken[0]


@pytest.fixture
def rig() -> Iterator[ClusterRig]:
    """A database with one shard."""
    rig = ClusterRig()
    yield rig
    rig.close()


@pytest.fixture
def shard(rig: ClusterRig) -> Followed:
    """A shard with jobs, and a follower at its end."""
    shard = Followed(rig)
    shard.follower.start()
    rig.until(lambda: shard.follower.state is FollowerState.FOLLOWING)
    return shard


def test_follower_has_the_state_of_its_leader(shard: Followed) -> None:
    """Every frame is applied, and the digests are equal."""
    assert (shard.follower.position, shard.followed.ledger.digest) == (END, shard.ledger.digest)


def test_follower_polls_without_signals(shard: Followed) -> None:
    """New frames are found although nothing signals them."""
    shard.write(JOBS, 2)
    shard.rig.until(lambda: shard.follower.position == END + 4)


def test_signal_wakes_the_follower(shard: Followed) -> None:
    """A signal is followed by a read, also if one is under way."""
    shard.write(JOBS, 2)
    shard.follower.wake()
    shard.follower.wake()
    shard.rig.until(lambda: shard.follower.position == END + 4)


def test_takeover_reads_the_tail(shard: Followed) -> None:
    """The state that is taken over contains frames that the follower had not read yet."""
    shard.write(JOBS, 3)
    taken = shard.take_over()
    assert taken is not None
    assert (taken.position, taken.link) == (END + 6, shard.journal.end_checksum)
    assert taken.ledger.digest == shard.ledger.digest


def test_new_leader_continues_from_a_takeover(shard: Followed) -> None:
    """A journal that continues from what was taken over makes one chain."""
    taken = shard.take_over()
    assert taken is not None
    shard.rig.pass_ms(2 * LEASE_MS)
    journal, thread = shard.rig.journal(shard.rig.take(name="b"), end=(taken.position, taken.link))
    shard.rig.do(lambda: fill(journal, taken.ledger, JOBS, 2), thread)
    followed, follower = shard.new_follower()
    follower.start()
    shard.rig.until(lambda: follower.position == END + 4)
    assert followed.ledger.digest == taken.ledger.digest


def test_takeover_goes_on_while_the_database_is_away(shard: Followed) -> None:
    """A takeover ends once the database answers again."""
    shard.rig.database.crash(400_000, is_failover=False)
    assert shard.take_over() is not None


def replace_last(shard: Followed, change: dict[str, object], *, is_sealed: bool = True) -> None:
    """Changes the last frame in the database, behind the back of all nodes."""
    frames = shard.rig.database.rows.frames[0]
    first = next(reversed(frames))
    changed = structs.replace(frames[first], **change)
    fields = structs.asdict(changed)
    del fields["checksum"]
    frames[first] = seal(**fields) if is_sealed else changed


@pytest.mark.parametrize(
    ("change", "is_sealed", "problem"),
    [
        ({"digest": 1}, True, "digest"),
        ({"body": b"damaged"}, False, "checksum"),
        ({"body": b"\x91\x00"}, True, "does not know"),
        ({"link": 1}, True, "does not follow"),
    ],
)
def test_divergence_stops_the_follower_and_says_so(
    rig: ClusterRig, change: dict[str, object], *, is_sealed: bool, problem: str
) -> None:
    """A frame that cannot lead to this state stops the follower for good, with a condition, and it cannot lead."""
    shard = Followed(rig)
    replace_last(shard, change, is_sealed=is_sealed)
    shard.follower.start()
    rig.until(lambda: shard.follower.state is FollowerState.DIVERGED)
    assert problem in shard.follower.problem
    assert not shard.follower.can_lead
    (condition,) = shard.follower.conditions()
    assert "shard 0" in condition.summary
    assert shard.take_over() is None


def test_follower_without_problems_has_no_condition(shard: Followed) -> None:
    """Conditions exist only for divergences."""
    assert not shard.follower.conditions()


def lose_last(shard: Followed) -> None:
    """Has the database lose its last frame, as a failover to a standby that never had it does."""
    frames = shard.rig.database.rows.frames[0]
    del frames[next(reversed(frames))]


def test_frame_that_vanished_is_dropped(shard: Followed) -> None:
    """A follower that applied a frame which a failover has lost builds its state again when another one is there."""
    lose_last(shard)
    rest, _ = shard.rig.journal(2, end=(END - 1, list(shard.rig.database.rows.frames[0].values())[-1].checksum))
    del rest
    ledger, thread = new_ledger(), shard.rig.thread()
    followed = shard.rig.followed(thread)
    shard.rig.do(followed.take_over, thread)
    ledger = followed.ledger
    shard.rig.pass_ms(2 * LEASE_MS)
    journal, writer = shard.rig.journal(shard.rig.take(name="b"), end=(followed.position, followed.link))
    shard.rig.do(lambda: fill(journal, ledger, 100, 2), writer)
    shard.rig.until(lambda: shard.follower.position == ledger.position)
    shard.rig.until(lambda: shard.followed.ledger.digest == ledger.digest)
    assert shard.followed.rebuilt == 1
    assert shard.follower.state is FollowerState.FOLLOWING


def test_takeover_drops_a_last_frame_that_vanished(shard: Followed) -> None:
    """A takeover compares the last frame with the database, also if no frame follows it."""
    lose_last(shard)
    taken = shard.take_over()
    assert taken is not None
    assert taken.position == END - 1


def test_takeover_drops_last_frames_that_were_replaced(shard: Followed) -> None:
    """A takeover compares the last frame with the database, also if the frames end at the same position."""
    lose_last(shard)
    lose_last(shard)
    thread = shard.rig.thread()
    other = shard.rig.followed(thread)
    shard.rig.do(other.take_over, thread)
    shard.rig.pass_ms(2 * LEASE_MS)
    journal, writer = shard.rig.journal(shard.rig.take(name="b"), end=(other.position, other.link))
    shard.rig.do(lambda: fill(journal, other.ledger, 100, 1), writer)
    assert shard.follower.position == other.ledger.position == END
    taken = shard.take_over()
    assert taken is not None
    assert (taken.ledger.digest, taken.link) == (other.ledger.digest, journal.end_checksum)


def keep_snapshot(shard: Followed) -> None:
    """Writes a snapshot of the leader's state."""
    header = SnapshotHeader(
        digest_version=DIGEST_VERSION,
        cluster_id=CLUSTER_ID,
        position=shard.ledger.position,
        link=shard.journal.end_checksum,
        log_time_ms=shard.ledger.state.last_ms,
        digest=shard.ledger.digest,
    )
    shard.rig.snapshots.write_snapshot(header, list(image.dump(shard.ledger)))


def test_follower_starts_from_the_newest_snapshot(rig: ClusterRig) -> None:
    """A follower needs no frame that a snapshot contains."""
    shard = Followed(rig, segment_bytes=600)
    keep_snapshot(shard)
    shard.write(JOBS, 10)
    rig.do(lambda: shard.journal.remove_segments(END), shard.thread)
    assert shard.journal.first_position > 1
    shard.follower.start()
    rig.until(lambda: shard.follower.state is FollowerState.FOLLOWING)
    assert shard.followed.ledger.digest == shard.ledger.digest


def test_follower_starts_once_the_snapshots_can_be_read(rig: ClusterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is away while the snapshot is read is no divergence."""
    shard, failures = Followed(rig), [JournalFailedError("away"), JournalFailedError("away")]

    def snapshots() -> list[int]:
        if failures:
            raise failures.pop()
        return []

    monkeypatch.setattr(rig.snapshots, "snapshots", snapshots)
    shard.follower.start()
    rig.until(lambda: shard.follower.state is FollowerState.FOLLOWING)
    assert not failures


def test_follower_that_slept_starts_again_from_a_snapshot(rig: ClusterRig) -> None:
    """A follower whose next frame was removed continues from a snapshot."""
    shard = Followed(rig, segment_bytes=600)
    thread = rig.thread()
    followed = rig.followed(thread)
    rig.do(followed.take_over, thread)
    shard.write(JOBS, 11)
    keep_snapshot(shard)
    shard.write(JOBS + 11, 10)
    rig.do(lambda: shard.journal.remove_segments(END + 22), shard.thread)
    rig.do(followed.take_over, thread)
    assert (followed.rebuilt, followed.position) == (1, shard.ledger.position)
    assert followed.ledger.digest == shard.ledger.digest


def test_removed_frames_without_a_snapshot_are_a_divergence(rig: ClusterRig) -> None:
    """Without any state to start from, the follower stops and says which positions are gone."""
    shard = Followed(rig, segment_bytes=600)
    rig.do(lambda: shard.journal.remove_segments(END // 2), shard.thread)
    shard.follower.start()
    rig.until(lambda: shard.follower.state is FollowerState.DIVERGED)
    assert "no snapshot of shard 0" in shard.follower.problem
