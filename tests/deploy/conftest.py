"""A container engine with the image under test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import images
from tests.deploy.engine import Engine, engine_running
from tests.deploy.stack import Stack, stack_up
from tests.engines import unavailable


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A real engine for this session."""
    with engine_running() as engine:
        yield engine


@pytest.fixture(scope="session")
def checkout(engine: Engine, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean checkout, from which the image has been built."""
    try:
        wheels = images.wheelhouse(root, images.import_base(engine))
    except images.NoImageError as error:
        unavailable(f"the image cannot be made: {error}")
    checkout = images.clean_checkout(root, tmp_path_factory.mktemp("checkout"), wheels)
    Stack(engine, checkout, "microservices").compose("build", "gateway")
    return checkout


@pytest.fixture(scope="module")
def microservices(engine: Engine, checkout: Path) -> Iterator[Stack]:
    """The microservices, in containers."""
    with stack_up(engine, checkout, "microservices") as stack:
        yield stack


@pytest.fixture(scope="module")
def monolith(engine: Engine, checkout: Path) -> Iterator[Stack]:
    """The monolith, in containers."""
    with stack_up(engine, checkout, "monolith") as stack:
        yield stack


@pytest.fixture(scope="module")
def server(engine: Engine, checkout: Path) -> Iterator[Stack]:
    """One server with its workers, in containers."""
    with stack_up(engine, checkout, "server") as stack:
        yield stack


@pytest.fixture(scope="module")
def microservices_memory(engine: Engine, checkout: Path) -> Iterator[Stack]:
    """The microservices of the comparison, in containers that store nothing."""
    with stack_up(engine, checkout, "microservices-memory") as stack:
        yield stack
