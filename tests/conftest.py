"""Fixtures and hooks of all tests."""

import compileall
import faulthandler
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import settings

from tests.engines import pytest_sessionfinish
from tests.postgres import bare_database, database, postgres, template
from tests.zookeeper import ensemble, lone_zookeeper, shared_ensemble, zookeeper

__all__ = [
    "bare_database",
    "database",
    "ensemble",
    "lone_zookeeper",
    "postgres",
    "pytest_sessionfinish",
    "shared_ensemble",
    "template",
    "zookeeper",
]

# Machines differ and tests run in parallel, so that properties have no deadline.
settings.register_profile("holdfast", deadline=None, print_blob=True)
settings.load_profile("holdfast")

#: The time beyond its timeout that a test may take, including the teardown of its fixtures.
_OVERTIME_S = 180


def pytest_configure(config: pytest.Config) -> None:
    """Enables SIGINT and compiles the package once.

    A shell ignores SIGINT in background processes, and their children inherit that, but tests need it. Many processes
    load the package, also if Python may not write its cache.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(config.rootpath / "src", quiet=2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Ends the process of a test that pytest-timeout could not end, and prints the stack of each thread.

    The timeout is an exception in the main thread: an event loop may swallow it, and no second one follows during the
    teardown of fixtures. A run that hangs names no test, but a worker of xdist that ends is reported with its test.
    """
    marker = item.get_closest_marker("timeout")
    timeout_s = float(marker.args[0] if marker else item.config.getoption("timeout"))
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(timeout_s + _OVERTIME_S, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def root() -> Path:
    """The root folder of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a path short enough for Unix sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    yield folder
    shutil.rmtree(folder)
