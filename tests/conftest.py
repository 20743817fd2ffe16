"""What every test shares."""

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

# Machines differ and tests run side by side: a property is false or true, never late.
settings.register_profile("holdfast", deadline=None, print_blob=True)
settings.load_profile("holdfast")

#: How much longer than its timeout a test may take, with the end of its fixtures.
_OVERTIME_S = 180


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the program once: many processes load it, also where Python may not keep what it has compiled.

    A shell starts what runs in the background deaf to Ctrl-C, and whoever is started by it in turn: tests need it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(config.rootpath / "src", quiet=2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Ends the process of a test that pytest-timeout could not end, and shows where each of its threads was.

    The timeout is an exception in the main thread: an event loop may swallow it, and no second one follows while
    fixtures are torn down. A run that hangs names no test; a worker of xdist that ends is reported with its test.
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
    """The top of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder in whose depths a socket can still have a name."""
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    yield folder
    shutil.rmtree(folder)
