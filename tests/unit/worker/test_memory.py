"""Available memory: that of the machine, or of the container if that is less."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.process.memory import available_bytes, physical_bytes, resident_bytes


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "3000000"}, 3_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "2000000", "a/memory.max": "3000000"}, 2_000_000),
        ("0::/\n", {"memory.max": "5000000"}, 5_000_000),
        ("4:cpu,memory:/c\n1:name=x:/d\n", {"memory/c/memory.limit_in_bytes": "7000000"}, 7_000_000),
        ("4:memory:/c\n", {"memory/c/memory.limit_in_bytes": str(1 << 63)}, None),
        ("0::/gone\n", {}, None),
    ],
)
def test_limit_of_the_container_counts(
    tmp_path: Path, groups: str, files: dict[str, str], expected: int | None
) -> None:
    """Available memory is the least of the machine's memory and all limits of control groups, of either version."""
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert available_bytes(tmp_path / "cgroup", tmp_path / "root") == (expected or physical_bytes())


def test_machine_without_control_groups_has_its_memory(tmp_path: Path) -> None:
    """Without control groups, all memory of the machine is available."""
    assert available_bytes(tmp_path / "nothing", tmp_path) == physical_bytes()
    assert 0 < resident_bytes() < available_bytes()


#: Prints the size when there is a free descriptor, and when there is none and 50 MB more are held.
EXHAUSTED = """
import resource
from holdfast.process.memory import ResidentSize
size = ResidentSize()
before = size.read()
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
held = bytes(range(256)) * 200_000
try:
    open("/dev/null")
except OSError:
    print(before, size.read())
size.close()
assert size.read() == 0
"""


def test_resident_size_is_known_without_a_free_descriptor() -> None:
    """A process without a free descriptor still learns its current size."""
    done = subprocess.run([sys.executable, "-c", EXHAUSTED], capture_output=True, text=True, timeout=60, check=True)
    before, now = map(int, done.stdout.split())
    assert before + 50_000_000 < now < before + 100_000_000
