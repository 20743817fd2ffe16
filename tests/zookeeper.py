"""A real ZooKeeper for tests: one server or three per process of the test run, one root per test."""

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from scripts.engines import ZOOKEEPER
from tests.engines import require

#: Servers check sessions at this interval, and the shortest session timeout is twice the interval.
TICK_MS = 100

_numbers = itertools.count(1)


class Place(NamedTuple):
    """An ensemble, and a root in it that no other test uses."""

    hosts: str
    root: str


def require_zookeeper() -> None:
    """Skip or fail the current test if ZooKeeper is missing."""
    require(ZOOKEEPER)


def fresh_root(name: str = "") -> str:
    """Returns a root that no other test of this process uses."""
    words = re.sub(r"\W+", "_", name.lower()).removeprefix("test_")[:40]
    return f"/t{os.getpid()}_{next(_numbers)}_{words}"


@pytest.fixture(scope="session")
def lone_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateZooKeeper]:
    """One server that tests share; a test that stops a server starts one of its own."""
    require_zookeeper()
    server = PrivateZooKeeper(tmp_path_factory.mktemp("zookeeper"), 1, TICK_MS, is_synced=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def zookeeper(lone_zookeeper: PrivateZooKeeper, request: pytest.FixtureRequest) -> Place:
    """A root of this test, for tests that do not stop ZooKeeper."""
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
    """Three servers that a test may kill and stop; all of them serve again for the next test."""
    yield shared_ensemble
    for index, server in enumerate(shared_ensemble.servers):
        shared_ensemble.resume(index)
        if not server.is_kept:
            shared_ensemble.start_server(index)
    for index in range(len(shared_ensemble.servers)):
        shared_ensemble.serving(index)


class Known(NamedTuple):
    """The state of a node on one server, with the transactions that created and changed it."""

    data: bytes
    made_by: int
    changed_by: int
    owner: int


def differences(ensemble: PrivateZooKeeper, tops: Sequence[str]) -> list[str]:
    """Returns the paths, at and below these, of nodes that differ between servers."""
    trees = [known_by(host, tops) for host in ensemble.hosts.split(",")]
    paths = sorted(set().union(*trees))
    return [path for path in paths if any(tree.get(path) != trees[0].get(path) for tree in trees)]


def known_by(host: str, tops: Sequence[str]) -> dict[str, Known]:
    """Returns all nodes of one server at and below these paths, after a sync."""
    client = KazooClient(host, timeout=10)
    client.start(timeout=30)
    try:
        client.retry(client.sync, "/")
        found: dict[str, Known] = {}
        level = list(tops)
        while level:
            asked = [(path, client.get_async(path), client.get_children_async(path)) for path in level]
            level = []
            for path, node, names in asked:
                with contextlib.suppress(NoNodeError):  # the node was just removed
                    data, stat = node.get()
                    found[path] = Known(data, stat.czxid, stat.mzxid, stat.ephemeralOwner)
                    level += [f"{path}/{name}" for name in names.get()]
        return found
    finally:
        client.stop()
        client.close()
