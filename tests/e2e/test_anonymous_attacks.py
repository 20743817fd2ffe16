"""Memory that calls and connections without a token can make a secured server allocate."""

import pytest

from holdfast import limits
from holdfast_lab.faults.anonymous_streams import PATHS, attack
from holdfast_lab.faults.secured_server import secured_server

MIB = 1 << 20
#: Limit of the memory that the server may add for bodies of 400 MiB in total.
ADDED_MAX = 64 * MIB


@pytest.mark.parametrize("call", sorted(PATHS))
def test_bodies_of_calls_without_a_token_are_not_received(call: str) -> None:
    """A server reads only the headers of a call without a token, so a hundred bodies of 4 MiB are never received."""
    with secured_server("--no-http") as server:
        figures = attack(server, call, streams=100, body_bytes=4 * MIB)
        assert figures.added_bytes < ADDED_MAX
        assert (
            figures.refused >= 100 - limits.OPEN_REQUESTS_MAX
        )  # Health accepts up to OPEN_REQUESTS_MAX calls: they could be probes.


def test_many_connections_add_no_more() -> None:
    """Calls without a token over ten connections keep the server's added memory within twice the limit."""
    with secured_server("--no-http") as server:
        assert (
            attack(server, "submit", streams=100, body_bytes=4 * MIB, connections=10).added_bytes < 2 * ADDED_MAX
        )  # each connection has flow-control windows of its own
