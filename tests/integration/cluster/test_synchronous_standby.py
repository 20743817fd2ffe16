"""A synchronous standby: a commit counts only once the standby has it, and the promoted standby goes on."""

import threading
from collections.abc import Iterator

import pytest

from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.creation import create_cluster
from holdfast.topologies.cluster.database.frame_reader import PostgresFrameReader
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.registry import PostgresRegistry
from holdfast.topologies.cluster.database.server_checks import check_server
from holdfast.topologies.cluster.ports import Append, DatabaseLostError, DatabaseRefusedError, FrameKey, StoredFrame
from tests.integration.cluster.cluster_work import LEASE_MS, LIMIT_MS, chain, lead, node, wait_until, write
from tests.integration.cluster.standby import PostgresServer, url_of
from tests.postgres import require_postgres

WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary with a cluster whose shard 0 the epoch 1 leads, and its synchronous standby."""
    require_postgres()
    folder = tmp_path_factory.mktemp("servers")
    folder.chmod(0o711)  # the servers may run as another user
    primary, standby = PostgresServer(folder, "primary"), PostgresServer(folder, "standby")
    try:
        primary.create()
        standby.copy_from(primary)
        primary.start()
        standby.start()
        create_cluster(DatabaseAddress(url=primary.url))
        registry = PostgresRegistry(DatabaseAddress(url=primary.url))
        assert lead(registry) == 1
        registry.close()
        primary.do("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        primary.do("SELECT pg_reload_conf()")
        wait_until(lambda: primary.ask("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))
        yield primary, standby
    finally:
        standby.close()
        primary.close()


class BackgroundAppend(threading.Thread):
    """An append in a thread, and its outcome."""

    def __init__(self, writer: PostgresFrameWriter, frame: StoredFrame) -> None:
        super().__init__()
        self._writer, self._frame = writer, frame
        self.outcome: Append | DatabaseLostError | None = None

    def run(self) -> None:
        """Appends."""
        try:
            self.outcome = self._writer.append(self._frame)
        except DatabaseLostError as error:
            self.outcome = error


def test_commit_counts_once_the_standby_has_it(servers: tuple[PostgresServer, PostgresServer]) -> None:
    """A canceled wait is unconfirmed, a terminated one is lost, and the promoted standby has what was confirmed."""
    primary, standby = servers
    address = DatabaseAddress(url=url_of(standby, primary), limit_ms=LIMIT_MS)
    writer, registry = PostgresFrameWriter(address, 0), PostgresRegistry(address)
    frames = chain(b"confirmed", b"canceled", b"terminated", b"timed out")
    with pytest.raises(DatabaseRefusedError, match="a standby") as refused:
        check_server(DatabaseAddress(url=standby.url, limit_ms=LIMIT_MS))
    assert refused.value.reason == "DATABASE_READ_ONLY"
    write(writer, frames[0])

    standby.crash()
    for frame, how in zip(frames[1:3], ("cancel", "terminate"), strict=True):
        appending = BackgroundAppend(writer, frame)
        appending.start()
        wait_until(lambda: primary.ask(f"SELECT 1 {WAITING}"))
        primary.ask(f"SELECT pg_{how}_backend(pid) {WAITING}")
        appending.join()
        if how == "cancel":
            assert appending.outcome == Append.UNCONFIRMED
        else:
            assert isinstance(appending.outcome, DatabaseLostError)
        assert writer.find(frame.first_position) == FrameKey(1, frame.checksum), "committed, but not replicated"
    hurried = DatabaseAddress(url=address.url, limit_ms=1_000)
    impatient, beating = PostgresFrameWriter(hurried, 0), PostgresRegistry(hurried)
    calls = (
        lambda: impatient.append(frames[3]),
        lambda: impatient.confirm(1),
        lambda: beating.beat(node(), {0: 1}, LEASE_MS),
    )
    for call in calls:
        with pytest.raises(DatabaseLostError):
            call()

    primary.crash()
    standby.start()
    standby.ask("SELECT pg_promote()")
    reader = PostgresFrameReader(address, 0)
    with pytest.raises(DatabaseLostError):
        writer.find(1)
    assert writer.find(1) == FrameKey(1, frames[0].checksum)
    assert reader.frames(0, 1 << 30) == frames[:1], "what was not confirmed is lost with the primary"
    write(writer, frames[1])
    for one in (writer, registry, impatient, beating, reader):
        one.close()
