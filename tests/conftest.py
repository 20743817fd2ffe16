"""What every test shares."""

import compileall
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
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


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the program once: many processes load it, also where Python may not keep what it has compiled.

    A shell starts what runs in the background deaf to Ctrl-C, and whoever is started by it in turn: tests need it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(config.rootpath / "src", quiet=2)


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
