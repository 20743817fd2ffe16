"""Appends under an epoch: they succeed whole, or change nothing."""

import signal
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from typing import IO

import psycopg
import pytest

from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.frame_reader import PostgresFrameReader
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.registry import PostgresRegistry
from holdfast.topologies.cluster.ports import Append, DatabaseRefusedError, FrameKey
from tests.integration.cluster.cluster_work import chain, lead, take_over, wait_until, write

#: Appends frames until it is stopped, and prints a line after the first.
APPENDER = """
import sys, itertools
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from tests.integration.cluster.cluster_work import chained
writer = PostgresFrameWriter(DatabaseAddress(url=sys.argv[1]), 0)
for frame in chained(itertools.repeat(bytes(100_000)), 1, None, 1):
    print(frame.first_position, writer.append(frame), flush=True)
"""


def waits_for_lock(admin: psycopg.Connection) -> bool:
    """Returns whether a session of this database waits for a lock."""
    found = admin.execute(
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return found.fetchone() is not None


def test_frame_is_written_and_found(writer: PostgresFrameWriter, reader: PostgresFrameReader) -> None:
    """An appended frame is read back with all its fields, and is found by its position."""
    frames = chain(b"one", b"", b"\0" * 100_000, count=3)
    write(writer, *frames)
    assert reader.frames(0, 1 << 30) == frames
    assert [writer.find(frame.first_position) for frame in frames] == [FrameKey(1, one.checksum) for one in frames]
    assert writer.find(2) is None
    assert (reader.first_position(), reader.end_position()) == (1, 9)


def test_append_of_another_epoch_is_fenced(
    writer: PostgresFrameWriter, reader: PostgresFrameReader, registry: PostgresRegistry
) -> None:
    """After a takeover the old epoch appends nothing, and the new one goes on."""
    (first, second) = chain(b"first", b"second")
    write(writer, first)
    assert take_over(registry) == 2
    assert writer.append(second) == Append.FENCED
    assert writer.confirm(1) == Append.FENCED
    assert writer.open_segment(2, 1, 0) == Append.FENCED
    assert writer.remove_segments([], 1) == Append.FENCED
    (other,) = chain(b"other", epoch=2, after=first)
    write(writer, other)
    assert reader.frames(0, 1 << 30) == [first, other]
    assert writer.find(2) == FrameKey(2, other.checksum)


def test_taken_position_is_not_overwritten(writer: PostgresFrameWriter, reader: PostgresFrameReader) -> None:
    """An append at the position of a frame changes nothing, in the newest segment and below it."""
    (frame, following) = chain(b"first", b"second")
    write(writer, frame)
    assert writer.append(chain(b"other")[0]) == Append.TAKEN
    assert writer.open_segment(2, 1, 0) == Append.WRITTEN
    assert writer.append(chain(b"other")[0]) == Append.TAKEN
    write(writer, following)
    assert [*reader.frames(0, 1 << 30), *reader.frames(1, 1 << 30)] == [frame, following]


@pytest.mark.usefixtures("writer")
def test_takeover_waits_for_append_in_flight(
    registry: PostgresRegistry, reader: PostgresFrameReader, admin: psycopg.Connection
) -> None:
    """A takeover returns after the commit of an append that holds the leader row, and then sees its frame."""
    registry.hand_over(0, 1, "b")
    taken: list[int | None] = []
    with psycopg.connect(admin.info.dsn) as appending:
        appending.execute("SELECT FROM holdfast.leaders WHERE shard = 0 AND epoch = 1 FOR SHARE")
        appending.execute("INSERT INTO holdfast.frames VALUES (0, 1, 1, 1, 1, 0, 2, 0, 0, 'x')")
        thread = threading.Thread(target=lambda: taken.append(lead(registry, "b", seen_epoch=1)))
        thread.start()
        wait_until(lambda: waits_for_lock(admin))
        assert taken == []
    thread.join()
    assert (taken, reader.end_position()) == ([2], 1)


def test_append_that_waited_for_takeover_is_fenced(
    writer: PostgresFrameWriter, admin: psycopg.Connection, reader: PostgresFrameReader
) -> None:
    """An append that began before the commit of a takeover finds the new epoch and inserts nothing."""
    found: list[Append] = []
    with psycopg.connect(admin.info.dsn) as taking:
        taking.execute("UPDATE holdfast.leaders SET epoch = 2 WHERE shard = 0")
        thread = threading.Thread(target=lambda: found.append(writer.append(chain(b"late")[0])))
        thread.start()
        wait_until(lambda: waits_for_lock(admin))
    thread.join()
    assert (found, reader.end_position()) == ([Append.FENCED], 0)


@pytest.mark.usefixtures("writer")
def test_stopped_process_holds_no_lock(registry: PostgresRegistry, cluster: str) -> None:
    """A takeover succeeds while the old leader's process is stopped in the middle of its appends."""
    with subprocess.Popen([sys.executable, "-c", APPENDER, cluster], stdout=subprocess.PIPE, text=True) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == "1 written\n"
        old.send_signal(signal.SIGSTOP)
        assert take_over(registry) == 2
        old.send_signal(signal.SIGCONT)
        wait_until(partial(_is_fenced, old.stdout))
        old.kill()


def _is_fenced(lines: IO[str]) -> bool:
    return lines.readline().endswith("fenced\n")


@pytest.mark.usefixtures("writer")
def test_stalled_transaction_is_ended_by_takeover(
    registry: PostgresRegistry, cluster: str, admin: psycopg.Connection
) -> None:
    """A takeover terminates a connection of a node that stalls in a transaction and holds the leader row."""
    registry.hand_over(0, 1, "b")
    with closing(psycopg.connect(cluster, application_name="holdfast-stalled")) as stalled:
        stalled.execute("SELECT FROM holdfast.leaders FOR SHARE")
        stalls = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state_change < clock_timestamp() - interval '2 s'"
        wait_until(lambda: admin.execute(stalls, [stalled.info.backend_pid]).fetchone())
        assert lead(registry, "b", seen_epoch=1) == 2


def test_inbox_rows_go_with_their_frame(writer: PostgresFrameWriter, admin: psycopg.Connection) -> None:
    """Rows of the inbox are deleted by the append that names them, and by no append that fails."""
    rows = [submitted(admin) for _ in range(3)]
    (frame, following) = chain(b"jobs", b"more")
    assert writer.append(frame, rows[:2]) == Append.WRITTEN
    assert left(admin) == rows[2:]
    assert writer.append(frame, rows[2:]) == Append.TAKEN
    assert writer.append(chain(b"jobs", epoch=9, after=frame)[0], rows[2:]) == Append.FENCED
    assert left(admin) == rows[2:]
    with pytest.raises(DatabaseRefusedError) as refused:
        writer.append(following, rows)
    assert refused.value.reason == "INBOX_CHANGED"
    assert (left(admin), writer.find(2)) == (rows[2:], None)
    assert writer.append(following, rows[2:]) == Append.WRITTEN


def test_repeated_append_with_inbox_is_taken(writer: PostgresFrameWriter, admin: psycopg.Connection) -> None:
    """An append that is repeated after its commit finds its own frame."""
    row, (frame,) = submitted(admin), chain(b"jobs")
    assert writer.append(frame, [row]) == Append.WRITTEN
    assert writer.append(frame, [row]) == Append.TAKEN


def submitted(admin: psycopg.Connection) -> int:
    """Puts a row into the inbox of shard 0."""
    found = admin.execute(
        """
        INSERT INTO holdfast.inbox (shard, job_id, submitted_ms, not_before_ms, type, queue, priority, max_attempts,
            max_losses, timeout_ms, unique_key, request_id, payload)
        VALUES (0, gen_random_uuid(), 1, 0, 'echo', 'default', 5, 1, 3, 0, '', '', '') RETURNING id"""
    ).fetchone()
    assert found is not None
    return int(found[0])


def left(admin: psycopg.Connection) -> list[int]:
    """Returns the rows of the inbox."""
    return [row for (row,) in admin.execute("SELECT id FROM holdfast.inbox ORDER BY id").fetchall()]


def test_confirm_commits_under_the_epoch(writer: PostgresFrameWriter, admin: psycopg.Connection) -> None:
    """A confirmation changes the leader row, so that its commit waits for the standby."""
    assert [writer.confirm(1), writer.confirm(1)] == [Append.WRITTEN, Append.WRITTEN]
    assert admin.execute("SELECT confirms FROM holdfast.leaders WHERE shard = 0").fetchone() == (2,)


def test_warning_leaves_an_append_unconfirmed(writer: PostgresFrameWriter, admin: psycopg.Connection) -> None:
    """A commit that the server answers with a warning does not count as written."""
    admin.execute(
        """
        CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE WARNING 'canceling wait for synchronous replication due to user request'; RETURN NULL; END $$;
        CREATE TRIGGER warn AFTER INSERT ON holdfast.frames_0 FOR EACH ROW EXECUTE FUNCTION warn()"""
    )
    (frame,) = chain(b"one")
    assert writer.append(frame) == Append.UNCONFIRMED
    assert writer.find(1) == FrameKey(1, frame.checksum)
    assert writer.confirm(1) == Append.WRITTEN


def test_full_address_has_many_hosts(address: DatabaseAddress) -> None:
    """An unreachable host of the URL is passed over."""
    host = address.url.split("host=")[1].split("&")[0]
    several = address.url.replace(f"host={host}", f"host=%2Fnowhere,{host}").replace("port=5432", "port=1,5432")
    writer = PostgresFrameWriter(DatabaseAddress(url=several), 0)
    assert writer.find(1) is None
    writer.close()
