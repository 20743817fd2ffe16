"""Nodes and leaderships, judged by the clock of the database."""

from typing import Any

import psycopg
import pytest

from holdfast.topologies.cluster.database.connection import BoundedConnection
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.registry import PostgresRegistry
from holdfast.topologies.cluster.ports import ClusterView, DatabaseLostError, DatabaseRefusedError
from tests.integration.cluster.cluster_work import LEASE_MS, chain, lead, node, take_over, write


def end_lease(admin: psycopg.Connection, shard: int = 0) -> None:
    """Moves the end of a lease into the past, as if the time had passed."""
    admin.execute("UPDATE holdfast.leaders SET lease_until = clock_timestamp() WHERE shard = %s", [shard])


def silence(admin: psycopg.Connection, name: str) -> None:
    """Moves the last beat of a node into the past by a lease."""
    admin.execute("UPDATE holdfast.nodes SET beat_at = beat_at - interval '60 s' WHERE name = %s", [name])


def leaders(view: ClusterView) -> list[tuple[int, str, str]]:
    """Returns epoch, holder and successor of each shard."""
    return [(shard.epoch, shard.holder, shard.successor) for shard in view.shards]


def test_beat_returns_nodes_and_shards(registry: PostgresRegistry, writer: PostgresFrameWriter) -> None:
    """A beat registers a node with all its facts, and returns every node and shard."""
    write(writer, *chain(b"one", b"two", count=5))
    facts = node("a", applied={0: 7, 1: 0}, state="draining", events=frozenset({"Created", "Granted"}))
    registry.beat(facts, {0: 1}, LEASE_MS)
    view = registry.beat(node("b"), {}, LEASE_MS)
    assert [entry.record for entry in view.nodes] == [facts, node("b")]
    assert all(0 <= entry.silent_ms < LEASE_MS for entry in view.nodes)
    assert leaders(view) == [(1, "a", ""), (0, "", "")]
    assert [shard.end_position for shard in view.shards] == [10, 0]
    assert [shard.remaining_ms > 0 for shard in view.shards] == [True, False]
    assert view.shards[0].incarnation == "a-1"


def test_beat_renews_only_living_leases_of_its_epochs(registry: PostgresRegistry, admin: psycopg.Connection) -> None:
    """A beat renews the lease of an epoch that leads, and neither an ended lease nor another epoch's."""
    assert [lead(registry, shard=0), lead(registry, shard=1)] == [1, 1]
    end_lease(admin, 1)
    view = registry.beat(node(), {0: 1, 1: 1}, 10 * LEASE_MS)
    assert view.shards[0].remaining_ms > 9 * LEASE_MS
    assert view.shards[1].remaining_ms <= 0
    view = registry.beat(node(), {0: 2}, 90 * LEASE_MS)
    assert view.shards[0].remaining_ms <= 10 * LEASE_MS


def test_shard_is_taken_only_after_its_lease(registry: PostgresRegistry, admin: psycopg.Connection) -> None:
    """A takeover succeeds once, after the end of the lease, and only with the epoch that was seen."""
    assert lead(registry, "a") == 1
    assert lead(registry, "b", seen_epoch=1) is None
    end_lease(admin)
    assert lead(registry, "b", seen_epoch=0) is None
    assert lead(registry, "b", seen_epoch=1) == 2
    assert lead(registry, "c", seen_epoch=1) is None
    assert leaders(registry.beat(node("b"), {0: 2}, LEASE_MS)) == [(2, "b", ""), (0, "", "")]


def test_handover_names_the_successor(registry: PostgresRegistry) -> None:
    """A handover ends the lease at once and names the successor until the next takeover."""
    assert lead(registry) == 1
    assert registry.hand_over(0, 2, "b") is False
    assert registry.hand_over(0, 1, "b") is True
    view = registry.beat(node("b"), {}, LEASE_MS)
    assert leaders(view)[0] == (1, "a", "b")
    assert view.shards[0].remaining_ms <= 0
    assert take_over(registry, "b") == 2
    assert leaders(registry.beat(node("b"), {}, LEASE_MS))[0] == (2, "b", "")


def test_second_living_node_of_a_name_is_refused(registry: PostgresRegistry, admin: psycopg.Connection) -> None:
    """Of two processes with one name, the second is refused until the first is silent for a lease."""
    registry.beat(node("a", "first"), {}, LEASE_MS)
    with pytest.raises(DatabaseRefusedError, match=r"only node 'a'.*choose another name") as refused:
        registry.beat(node("a", "second"), {}, LEASE_MS)
    assert refused.value.reason == "NODE_NAME_TAKEN"
    registry.beat(node("a", "first"), {}, LEASE_MS)
    silence(admin, "a")
    view = registry.beat(node("a", "second"), {}, LEASE_MS)
    assert [entry.record.incarnation for entry in view.nodes] == ["second"]
    with pytest.raises(DatabaseRefusedError):
        registry.beat(node("a", "first"), {}, LEASE_MS)


def test_refused_node_renews_no_lease(registry: PostgresRegistry, admin: psycopg.Connection) -> None:
    """A beat that is refused changes nothing, not even a lease."""
    assert lead(registry) == 1
    registry.beat(node("a", "first"), {}, LEASE_MS)
    before = admin.execute("SELECT lease_until FROM holdfast.leaders WHERE shard = 0").fetchone()
    with pytest.raises(DatabaseRefusedError):
        registry.beat(node("a", "second"), {0: 1}, LEASE_MS)
    assert admin.execute("SELECT lease_until FROM holdfast.leaders WHERE shard = 0").fetchone() == before


def test_node_leaves_with_its_own_entry(registry: PostgresRegistry) -> None:
    """A node that leaves is gone at once, and cannot remove the entry of another incarnation."""
    registry.beat(node("a"), {}, LEASE_MS)
    registry.leave(node("a", "other"))
    assert len(registry.beat(node("b"), {}, LEASE_MS).nodes) == 2
    registry.leave(node("a"))
    assert [entry.record.name for entry in registry.beat(node("b"), {}, LEASE_MS).nodes] == ["b"]


def test_beat_is_one_statement(registry: PostgresRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each beat of an open session is one statement, so that an idle node costs one statement a second."""
    registry.beat(node(), {}, LEASE_MS)
    sent: list[object] = []
    execute = BoundedConnection.execute

    def counted(self: BoundedConnection, query: bytes, *arguments: Any, **options: Any) -> object:  # noqa: ANN401 - as psycopg has them
        sent.append(query)
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(BoundedConnection, "execute", counted)
    for _ in range(5):
        registry.beat(node(), {0: 1, 1: 1}, LEASE_MS)
    assert len(sent) == 5


def test_warning_makes_the_outcome_of_a_takeover_unknown(registry: PostgresRegistry, admin: psycopg.Connection) -> None:
    """A takeover that the server answers with a warning is not reported as successful."""
    admin.execute(
        """
        CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE WARNING 'canceling wait for synchronous replication due to user request'; RETURN NULL; END $$;
        CREATE TRIGGER warn AFTER UPDATE ON holdfast.leaders FOR EACH ROW EXECUTE FUNCTION warn()"""
    )
    with pytest.raises(DatabaseLostError):
        lead(registry)


def test_names_of_any_letters_are_kept(registry: PostgresRegistry) -> None:
    """Names, addresses and events keep every letter."""
    facts = node("ä'\"\\ %s", addresses={"wire": "[::1]:5"})
    view = registry.beat(facts, {}, LEASE_MS)
    assert [entry.record for entry in view.nodes] == [facts]
