"""Names of processes, by which an ended process is recognised."""

import os
import subprocess
import sys

import pytest

from holdfast.process.process_identity import is_gone, own

NAMED = "from holdfast.process.process_identity import own; print(own(), flush=True); input()"


def test_process_that_runs_is_not_gone() -> None:
    """A process recognises itself as running by its own name."""
    assert not is_gone(own())
    assert own() == own()


def test_process_that_has_ended_is_gone() -> None:
    """Another process counts as gone by its name only after it has ended."""
    child = subprocess.Popen(
        [sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert not is_gone(name)
    child.communicate("\n")
    assert is_gone(name)


def test_process_that_its_parent_has_not_looked_after_is_gone() -> None:
    """A zombie process counts as gone."""
    child = subprocess.Popen(
        [sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(name)
    child.communicate()


@pytest.mark.parametrize("part", [0, 1, 3], ids=["another boot", "another namespace", "the PID is another's by now"])
def test_process_of_another_place_or_time_is_gone(part: int) -> None:
    """A process with the same PID but another boot, namespace or start time is another process."""
    parts = own().split("/")
    parts[part] += "0"
    assert is_gone("/".join(parts))


@pytest.mark.parametrize("name", ["", "/", "a/b/c/d", "boot/pid/-1/0", "////"])
def test_name_that_no_process_has_is_gone(name: str) -> None:
    """A malformed name counts as that of a process that is gone."""
    assert is_gone(name)
