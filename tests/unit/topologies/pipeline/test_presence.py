"""Absent workers, as the pipeline's coordinator finds them in periodic checks."""

from holdfast.topologies.pipeline.roles.presence import LOOK_S, Presence

WORKER = ("w-1", "s-1")


def looks(presence: Presence, count: int) -> list[tuple[str, str]]:
    """Returns the result of the last of `count` checks."""
    found: list[tuple[str, str]] = []
    for _ in range(count):
        found = presence.look()
    return found


def test_worker_that_keeps_its_connection_is_never_absent() -> None:
    """A worker with an open connection is never absent, however long it sends nothing."""
    presence = Presence(grace_looks=3)
    presence.open(WORKER)
    assert looks(presence, 100) == []
    assert presence.since_s(WORKER) is None


def test_worker_is_absent_once_its_grace_is_over() -> None:
    """A worker is absent after `grace_looks` checks without a connection."""
    presence = Presence(grace_looks=3)
    presence.open(WORKER)
    presence.drop(WORKER, 10.0)
    assert looks(presence, 2) == []
    assert presence.look() == [WORKER]
    assert presence.since_s(WORKER) == 10.0


def test_worker_that_returns_is_there() -> None:
    """A new connection of the same session ends the absence."""
    presence = Presence(grace_looks=2)
    presence.open(WORKER)
    presence.drop(WORKER, 10.0)
    presence.look()
    presence.open(WORKER)
    assert looks(presence, 10) == []


def test_one_of_two_connections_is_enough() -> None:
    """A worker whose new connection opens before the old one is dropped is not absent."""
    presence = Presence(grace_looks=1)
    presence.open(WORKER)
    presence.open(WORKER)
    presence.drop(WORKER, 10.0)
    assert presence.look() == []
    presence.drop(WORKER, 11.0)
    assert presence.look() == [WORKER]


def test_word_of_an_absent_worker_begins_its_grace_anew() -> None:
    """A heartbeat of an absent worker restarts its grace, but only for its own session."""
    presence = Presence(grace_looks=2)
    presence.open(WORKER)
    presence.drop(WORKER, 10.0)
    presence.look()
    presence.hear(("w-1", "another"), 11.0)
    presence.hear(WORKER, 12.0)
    assert presence.look() == []
    assert presence.since_s(WORKER) == 12.0
    assert presence.look() == [WORKER]


def test_worker_that_said_goodbye_is_not_absent() -> None:
    """A worker that said goodbye is not absent after its connection drops."""
    presence = Presence(grace_looks=1)
    presence.open(WORKER)
    presence.drop(WORKER, 10.0)
    presence.forget(WORKER)
    assert presence.look() == []


def test_worker_that_is_waited_for_longer_can_still_be_absent() -> None:
    """A longer grace also holds after a later heartbeat, and ends with a new connection."""
    presence = Presence(grace_looks=1)
    presence.open(WORKER)
    presence.drop(WORKER, 10.0)
    presence.wait_longer(WORKER, 11.0, 2 * LOOK_S)
    assert looks(presence, 2) == []
    presence.hear(WORKER, 12.0)
    assert looks(presence, 2) == []
    assert presence.look() == [WORKER]
    assert presence.since_s(WORKER) == 12.0
    presence.open(WORKER)
    presence.drop(WORKER, 20.0)
    assert presence.look() == [WORKER]
