"""Test runs on a machine without engines: the end of pytest's output, and the exit status of make in CI."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from tests.engines import pytest_sessionfinish
__all__ = ["pytest_sessionfinish"]
"""
TESTS = """
import pytest
from scripts.engines import CHROMIUM, ZOOKEEPER
from tests.engines import require

@pytest.fixture(scope="session")
def browser():
    require(CHROMIUM)

@pytest.mark.parametrize("number", range(3))
def test_needs_a_browser(browser, number):
    pass

@pytest.mark.parametrize("number", range(2))
def test_needs_zookeeper(number):
    require(ZOOKEEPER)

def test_needs_nothing():
    pass
"""
LAST_LINES = [
    "5 tests were skipped because an engine was missing or could not run:",
    "     3  Chromium is not installed",
    "     2  ZooKeeper is not installed",
    "To install what is missing, run as root: make chromium zookeeper",
]


@pytest.fixture
def environment(tmp_path: Path, root: Path) -> dict[str, str]:
    """An environment whose PATH has only a shell."""
    path = tmp_path / "programs"
    path.mkdir()
    (path / "bash").symlink_to("/usr/bin/bash")
    return {"PATH": str(path), "PYTHONPATH": str(root), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}


def run(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with tests, most of which need an engine."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_engines.py").write_text(TESTS)
    return folder


def pytest_in(folder: Path, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options], folder, environment)


def alone(environment: dict[str, str]) -> dict[str, str]:
    """Returns the environment with pytest's plugins disabled, because they load slowly."""
    return {**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "two workers"])
def test_run_without_engines_ends_with_a_report_of_skipped_tests(
    project: Path, environment: dict[str, str], options: tuple[str, ...]
) -> None:
    """A run without engines exits with 0 and ends with one report of the skipped tests, also with xdist."""
    done = pytest_in(project, alone(environment), *options)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-4:] == LAST_LINES
    assert done.stdout.count(LAST_LINES[0]) == 1


def test_missing_engine_is_an_error_in_ci(project: Path, environment: dict[str, str]) -> None:
    """With CI set, a missing engine makes its tests fail instead of skipping them."""
    done = pytest_in(project, {**alone(environment), "CI": "yes"})
    assert done.returncode == 1, done.stdout
    assert "2 failed, 1 passed, 3 errors" in done.stdout
    assert "Chromium is not installed (make chromium installs chromium fonts-dejavu-core" in done.stdout


def test_tests_that_start_engines_through_the_product_are_skipped(root: Path, environment: dict[str, str]) -> None:
    """Without Java and curl, pytest skips the comparison of ZooKeeper and the document that uses curl."""
    files = ("tests/unit/lab/test_fairness.py", "tests/e2e/test_documents.py")
    done = pytest_in(root, environment, "-q", "-k", "zookeeper or monitor", *files)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-4:] == [
        "2 tests were skipped because an engine was missing or could not run:",
        "     1  ZooKeeper is not installed",
        "     1  curl is not installed",
        "To install what is missing, run as root: make zookeeper tools",
    ]


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("anything", 2)])
def test_engines_that_cannot_be_installed_stop_make_in_ci_alone(
    root: Path, environment: dict[str, str], ci: str, status: int
) -> None:
    """`make engines` fails in CI if engines are missing, continues elsewhere, and with APT=no installs nothing."""
    make = shutil.which("make")
    assert make is not None
    witness = Path(environment["HOME"]) / "called"
    apt_get = Path(environment["PATH"]) / "apt-get"
    apt_get.write_text(f"#!/bin/bash\ntouch {witness}\n")
    apt_get.chmod(0o755)
    # The environment of this run is complete, so make need not check it.
    options = ["-o", ".venv/.installed", "APT=no", f"BIN={Path(sys.executable).parent}"]
    done = run([make, *options, "engines"], root, {**environment, "CI": ci})
    assert done.returncode == status, done.stdout + done.stderr
    assert " Chromium, " in done.stdout
    assert not witness.exists()
