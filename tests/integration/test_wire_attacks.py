"""Memory and descriptors that callers of the wire without a token can make a secured server use."""

import pytest

from holdfast_lab.faults.anonymous_streams import attack_wire
from holdfast_lab.faults.idle_connection_holders import hold_idle_connections
from holdfast_lab.faults.secured_server import secured_server
from holdfast_lab.faults.wire_openings import OPENINGS
from holdfast_lab.measure.process_tree import descriptors
from tests.e2e.wait_until import eventually

MIB = 1 << 20
COUNT = 100
#: Limit of the memory that the server may add for bodies of 400 MiB in total.
ADDED_MAX = 16 * MIB


@pytest.mark.parametrize("opening", sorted(OPENINGS))
def test_bodies_after_openings_without_a_token_are_not_received(opening: str) -> None:
    """A server ends a hundred connections with bodies of 4 MiB each, and keeps at most an unfinished opening."""
    with secured_server() as server:
        figures = attack_wire(server, opening, connections=COUNT, body_bytes=4 * MIB)
        assert figures.added_bytes < ADDED_MAX
        assert figures.refused == (0 if opening == "unfinished opening" else COUNT)


def test_idle_connections_hold_a_bounded_number_of_descriptors() -> None:
    """With 3,000 idle connections, a server holds no more descriptors than connections of HTTP are allowed."""
    with secured_server() as server:
        before = descriptors(server.pid)
        host, _, port = server.http.rpartition(":")
        with hold_idle_connections(host, int(port), 3_000) as opened:
            assert opened == 3_000
            # Connections that were evicted are closed in a later turn of the server's loop.
            eventually(lambda: descriptors(server.pid) <= before + 1_000, what="the end of the others")
