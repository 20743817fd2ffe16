"""kill -9 of the servers of a private ensemble under load, with plain nodes instead of jobs.

The torture kills these servers too, and judges the jobs. This test compares every node of every server, so that a
server that comes back with other data is found even if no job shows it.
"""

import itertools
import logging
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from tests.e2e.campaign import kills_each, seed, victims
from tests.e2e.wait_until import eventually, pause
from tests.zookeeper import TICK_MS, differences, known_by, require_zookeeper

SEED = seed(20_261_121)
KILLS = kills_each(2)
WRITERS = 6
#: The number of nodes that a writer keeps; it deletes older ones.
_LEAVES = 20
_QUIET = logging.getLogger("tests.quiet")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[PrivateZooKeeper]:
    """Three servers for this test alone, because their state after it is not reliable."""
    require_zookeeper()
    servers = PrivateZooKeeper(tmp_path / "servers", 3, TICK_MS, is_synced=False)
    servers.start()
    yield servers
    servers.stop()


class Writer:
    """Creates nodes and deletes older ones, each in one transaction, and records the acknowledged changes."""

    def __init__(self, hosts: str, name: int) -> None:
        self._client = KazooClient(hosts, timeout=2, logger=_QUIET)
        self._name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        #: Nodes that must exist, and nodes that must not.
        self.made: list[str] = []
        self.deleted: set[str] = set()
        #: Errors of refused transactions; there must be none.
        self.errors: list[Exception] = []

    def start(self) -> None:
        """Connects and starts writing."""
        self._client.start(timeout=30)
        self._thread.start()

    def stop(self) -> None:
        """Stops writing and closes the session, which deletes its ephemeral nodes."""
        self._stopping.set()
        self._thread.join()
        self._client.stop()
        self._client.close()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                return
            self._write(f"{self._name}-{number}", self.made[0] if len(self.made) > _LEAVES else "")

    def _write(self, name: str, old: str) -> None:
        transaction = self._client.transaction()
        transaction.create(f"/kept/{name}", name.encode())
        transaction.create(f"/own/{name}", ephemeral=True)
        if old:
            transaction.delete(old)
        try:
            results = transaction.commit()
        except (KazooException, KazooTimeoutError):  # the outcome is unknown, so neither node is checked
            self.made = [path for path in self.made if path != old]
            pause()
            return
        self.errors += [each for each in results if isinstance(each, Exception)]
        self.made.append(f"/kept/{name}")
        if old:
            self.made.remove(old)
            self.deleted.add(old)


def _written(writers: list[Writer]) -> int:
    for writer in writers:
        assert writer.errors == []
    return sum(len(writer.deleted) for writer in writers)


def _go_on(writers: list[Writer], count: int) -> None:
    wanted = _written(writers) + count
    eventually(lambda: _written(writers), lambda written: written >= wanted, what="progress")


@pytest.mark.slow
@pytest.mark.timeout(240 + 60 * KILLS)
def test_servers_that_are_killed_come_back_to_the_same_nodes(ensemble: PrivateZooKeeper) -> None:
    """Every server has all acknowledged nodes and no deleted ones, and all servers have the same nodes."""
    draw = random.Random(SEED)
    client = KazooClient(ensemble.hosts, timeout=10)
    client.start(timeout=30)
    client.create("/kept")
    client.create("/own")
    client.stop()
    client.close()
    writers = [Writer(ensemble.hosts, number) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        for victim in victims(range(3), KILLS, draw):
            ensemble.kill(victim)
            ensemble.start_server(victim)
            pause(draw.uniform(0.2, 2.0))
            if draw.random() < 0.3:  # otherwise the next server is killed while this one synchronizes
                _all_serve(ensemble)
                _go_on(writers, draw.randrange(1, 500))
        _all_serve(ensemble)
    finally:
        for writer in writers:
            writer.stop()
    sys.stdout.write(f"SEED={SEED} kills {3 * KILLS}, transactions acknowledged {_written(writers)}\n")
    eventually(lambda: differences(ensemble, ["/kept", "/own"]), lambda paths: not paths, what="the same nodes")
    eventually(
        lambda: known_by(ensemble.hosts, ["/own"]).keys() - {"/own"}, lambda paths: not paths, what="no sessions"
    )
    there = known_by(ensemble.hosts, ["/kept"])
    for writer in writers:
        assert [path for path in writer.made if path not in there] == []
        assert [path for path in writer.deleted if path in there] == []


def _all_serve(ensemble: PrivateZooKeeper) -> None:
    for index in range(3):
        ensemble.serving(index)
