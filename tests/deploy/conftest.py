"""An engine with the image in it; where there can be none, these tests fail in CI and are skipped elsewhere."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import images
from tests.deploy.engine import Engine, NoEngineError, engine_running, give_up
from tests.deploy.stack import Stack, stack_up


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A real engine of this session's own."""
    with contextlib.ExitStack() as afterwards:
        try:
            engine = afterwards.enter_context(engine_running())
        except NoEngineError as error:
            give_up(error)
        yield engine


@pytest.fixture(scope="session")
def checkout(engine: Engine, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean checkout, from which the image has been built."""
    try:
        wheels = images.wheelhouse(root, images.import_base(engine))
    except NoEngineError as error:
        give_up(error)
    checkout = images.clean_checkout(root, tmp_path_factory.mktemp("checkout"), wheels)
    Stack(engine, checkout, "microservices").compose("build", "gateway")
    return checkout


@pytest.fixture(scope="module")
def microservices(engine: Engine, checkout: Path) -> Iterator[Stack]:
    """Design A, in containers."""
    with stack_up(engine, checkout, "microservices") as stack:
        yield stack


@pytest.fixture(scope="module")
def monolith(engine: Engine, checkout: Path) -> Iterator[Stack]:
    """Design B, in containers."""
    with stack_up(engine, checkout, "monolith") as stack:
        yield stack


@pytest.fixture(scope="module")
def server(engine: Engine, checkout: Path) -> Iterator[Stack]:
    """One server with its workers, in containers."""
    with stack_up(engine, checkout, "server") as stack:
        yield stack


@pytest.fixture(scope="module")
def microservices_memory(engine: Engine, checkout: Path) -> Iterator[Stack]:
    """Design A as it is compared, in containers that keep nothing."""
    with stack_up(engine, checkout, "microservices-memory") as stack:
        yield stack
