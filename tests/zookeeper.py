"""A real ZooKeeper for tests: one server or three for each process of the test run, a root for each test that asks."""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.errors import FailedPreconditionError
from holdfast.topology.private_zookeeper import PrivateZooKeeper
from holdfast.topology.zookeeper_programs import INSTALLED, find_programs

#: Servers look at their sessions this often, and take no shorter ones than twice that.
TICK_MS = 100

_numbers = itertools.count(1)


class Place(NamedTuple):
    """Where jobs are kept: an ensemble, and a root in it that nobody else uses."""

    hosts: str
    root: str


def require_zookeeper(installed: Path = INSTALLED) -> None:
    """Skips where there is no ZooKeeper; in continuous integration that is a failure."""
    try:
        find_programs(installed)
    except FailedPreconditionError as error:
        if os.environ.get("CI"):
            pytest.fail(error.message)
        pytest.skip(error.message)


def fresh_root(name: str = "") -> str:
    """A root that no other test of this process has."""
    words = re.sub(r"\W+", "_", name.lower()).removeprefix("test_")[:40]
    return f"/t{os.getpid()}_{next(_numbers)}_{words}"


@pytest.fixture(scope="session")
def lone_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateZooKeeper]:
    """One server that tests share; whoever stops it should have one of its own."""
    require_zookeeper()
    server = PrivateZooKeeper(tmp_path_factory.mktemp("zookeeper"), 1, TICK_MS, is_synced=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def zookeeper(lone_zookeeper: PrivateZooKeeper, request: pytest.FixtureRequest) -> Place:
    """A root of this test's own, for tests of what happens while ZooKeeper is well."""
    return Place(lone_zookeeper.hosts, fresh_root(request.node.name))


@pytest.fixture(scope="session")
def shared_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateZooKeeper]:
    """Three servers that tests share."""
    require_zookeeper()
    servers = PrivateZooKeeper(tmp_path_factory.mktemp("ensemble"), 3, TICK_MS, is_synced=False)
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
def ensemble(shared_ensemble: PrivateZooKeeper) -> Iterator[PrivateZooKeeper]:
    """Three servers that may be killed and stopped; all of them serve again for the next test."""
    yield shared_ensemble
    for index, server in enumerate(shared_ensemble.servers):
        shared_ensemble.resume(index)
        if not server.is_kept:
            shared_ensemble.start_server(index)
    for index in range(len(shared_ensemble.servers)):
        shared_ensemble.serving(index)
