"""Pins prevent the removal of segments until their holders end."""

import subprocess
import sys
from pathlib import Path

from holdfast.journal.os_disk import OsDisk
from holdfast.journal.pins import pin, pinned_position
from tests.unit.journal.workload import empty_disk

HOLDER = """
import sys
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.pins import pin
with pin(OsDisk(sys.argv[1]), 30):
    print("pinned", flush=True)
    sys.stdin.read()
"""


def test_lowest_pin_counts() -> None:
    """The lowest of several pins counts, also if two pins have the same position."""
    disk = empty_disk()
    assert pinned_position(disk) is None
    with pin(disk, 50), pin(disk, 20), pin(disk, 20):
        assert pinned_position(disk) == 20
    assert pinned_position(disk) is None
    assert disk.files() == {}


def test_pin_ends_with_its_machine() -> None:
    """A pin that is left after a crash of the machine is ignored and removed."""
    disk = empty_disk()
    with pin(disk, 20):
        disk.sync_dir()
        disk.crash()
        assert pinned_position(disk) is None
        assert disk.files() == {}


def test_pin_of_another_process_counts_until_it_dies(tmp_path: Path) -> None:
    """The pin of another process counts until that process is killed, and is then removed."""
    disk = OsDisk(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"pinned\n"
        assert pinned_position(disk) == 30
        holder.kill()
        holder.wait()
        assert disk.names() != []
        assert pinned_position(disk) is None
        assert disk.names() == []


def test_pins_of_one_process_are_apart(tmp_path: Path) -> None:
    """Two pins of one process at the same position are two files that are released independently."""
    disk = OsDisk(tmp_path)
    with pin(disk, 5):
        with pin(disk, 5):
            assert len(disk.names()) == 2
        assert pinned_position(disk) == 5
    assert pinned_position(disk) is None
