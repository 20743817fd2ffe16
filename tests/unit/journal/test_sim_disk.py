"""The simulated disk keeps synced data, and may lose other data."""

import errno
import random

import pytest

from holdfast_lab.simulation.disk import SECTOR_BYTES, SimDisk, SimulatedCrash

RUNS = 200


def disk_of(seed: int = 0) -> SimDisk:
    return SimDisk(random.Random(seed))


def after_crash(prepare: str, seed: int) -> bytes | None:
    """Run one of the small workloads below, crash, and return the contents of the file "a"."""
    disk = disk_of(seed)
    file = disk.create("a")
    file.write_at(0, b"o" * 1_024)
    file.sync()
    disk.sync_dir()
    if prepare == "write":
        file.write_at(256, b"n" * 512)
    elif prepare == "synced write":
        file.write_at(256, b"n" * 512)
        file.sync()
    elif prepare == "growth":
        file.write_at(1_024, b"n" * 1_024)
    elif prepare == "truncation":
        file.truncate(100)
    elif prepare == "removal":
        disk.remove("a")
    elif prepare == "failed sync":
        file.write_at(0, b"n" * 512)
        disk.faults.fail_next_sync = True
        with pytest.raises(OSError, match="Input"):
            file.sync()
        assert file.read_at(0, 1) == b"n"
        file.sync()
    return disk.crash().files().get("a")


OLD = b"o" * 1_024
HALF_OLD, HALF_NEW = b"o" * 256, b"n" * 256


@pytest.mark.parametrize(
    ("prepare", "outcomes"),
    [
        ("nothing", {OLD}),
        (
            "write",
            {
                OLD,
                HALF_OLD + HALF_NEW + b"o" * 512,
                b"o" * 512 + HALF_NEW + HALF_OLD,
                HALF_OLD + HALF_NEW * 2 + HALF_OLD,
            },
        ),
        ("synced write", {HALF_OLD + HALF_NEW * 2 + HALF_OLD}),
        ("truncation", {OLD, b"o" * 100}),
        ("removal", {OLD, None}),
        ("failed sync", {OLD}),
    ],
)
def test_crash_leaves_each_possible_state_and_no_other(prepare: str, outcomes: set[bytes | None]) -> None:
    """Over many seeds exactly the expected states occur, because each unsynced change is kept or lost independently."""
    assert {after_crash(prepare, seed) for seed in range(RUNS)} == outcomes


def test_unsynced_growth_keeps_its_old_part() -> None:
    """Sectors past the synced size may be zeros or missing, and the bytes before are kept."""
    states = {after_crash("growth", seed) for seed in range(RUNS)}
    assert all(state is not None and state.startswith(OLD) for state in states)
    assert {len(state) for state in states if state} == {1_024, 2_048}
    assert OLD + bytes(512) + b"n" * 512 in states


def test_unsynced_rename_is_kept_or_lost_whole() -> None:
    """After a crash a renamed file has its old or its new name, and a replaced one its old or its new contents."""
    outcomes = set()
    for seed in range(RUNS):
        disk = disk_of(seed)
        for name in ("old", "new"):
            file = disk.create(name)
            file.write_at(0, name.encode())
            file.sync()
        disk.sync_dir()
        disk.rename("old", "new")
        outcomes.add(tuple(disk.crash().files().items()))
    assert outcomes == {(("new", b"old"),), (("new", b"new"), ("old", b"old"))}


def test_unsynced_creation_may_be_lost() -> None:
    """A new name is durable only after a sync of the directory, even if the file was synced."""
    found = set()
    for seed in range(RUNS):
        disk = disk_of(seed)
        disk.create("a").sync()
        found.add(tuple(disk.crash().files()))
    assert found == {(), ("a",)}


def test_equal_seeds_give_equal_disks() -> None:
    """Equal seeds lead to equal disks, so that a failing run can be replayed."""
    for prepare in ("write", "growth", "truncation"):
        assert after_crash(prepare, 5) == after_crash(prepare, 5)


def test_short_write_comes_before_no_space() -> None:
    """On a full disk a write is short before it fails, and `reserve` succeeds completely or not at all."""
    disk = disk_of()
    file = disk.create("a")
    disk.faults.free_bytes = 10
    with pytest.raises(OSError, match="No space") as caught:
        file.reserve(11)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 0
    assert file.write_at(0, b"x" * 15) == 10
    with pytest.raises(OSError, match="No space"):
        file.write_at(10, b"y")
    assert file.write_at(0, b"z" * 10) == 10


def test_removal_gives_space_back() -> None:
    """Truncation and removal free space."""
    disk = disk_of()
    disk.faults.free_bytes = 100
    file = disk.create("a")
    file.reserve(80)
    file.truncate(30)
    assert disk.faults.free_bytes == 70
    disk.remove("a")
    assert disk.faults.free_bytes == 100


@pytest.mark.parametrize("fault", ["fail_next_read", "fail_next_write"])
def test_injected_failure_happens_once(fault: str) -> None:
    """A fault that is set for the next call affects only that call."""
    disk = disk_of()
    file = disk.create("a")
    setattr(disk.faults, fault, True)
    with pytest.raises(OSError, match="Input/output"):
        file.write_at(0, file.read_at(0, 1) + b"x")
    assert file.write_at(0, b"x" + file.read_at(0, 1)) == 1


def test_no_call_succeeds_after_the_power_is_gone() -> None:
    """After the crash every call raises, and files that were opened before it stay unusable after the restart."""
    disk = disk_of()
    file = disk.create("a")
    disk.faults.crash_at_operation = disk.operations + 1
    with pytest.raises(SimulatedCrash):
        file.sync()
    for call in (file.sync, disk.names, disk.sync_dir):
        with pytest.raises(SimulatedCrash):
            call()
    disk.crash()
    disk.names()
    with pytest.raises(SimulatedCrash):
        file.sync()


@pytest.mark.parametrize(("moment", "lengths"), [("before", {0}), ("after", {300}), ("middle", set(range(301)))])
def test_crash_moment_says_how_much_was_written(moment: str, lengths: set[int]) -> None:
    """A power cut can occur before a write, after it, or at any byte of it."""
    seen = set()
    for seed in range(3_000):
        disk = disk_of(seed)
        file = disk.create("a")
        disk.faults.crash_at_operation = disk.operations + 1
        disk.faults.crash_moment = moment  # type: ignore[assignment]
        with pytest.raises(SimulatedCrash):
            file.write_at(0, b"x" * 300)
        seen.add(len(disk.kill().files()["a"]))
    assert seen == lengths


def test_sync_records_only_sectors_written_since_the_last_one() -> None:
    """A simulated file records only the sectors written since the last sync."""
    disk = disk_of()
    file = disk.create("a")
    file.reserve(1 << 40)
    file.write_at(5 * SECTOR_BYTES, b"x")
    assert file.size() == 1 << 40
    assert sum(map(len, disk._names["a"].unsynced.values())) <= SECTOR_BYTES
    file.sync()
    assert disk._names["a"].unsynced == {}
