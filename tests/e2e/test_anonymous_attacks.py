"""Calls and connections without a token on a server that wants one: what they can make it hold."""

import pytest

from holdfast import limits
from holdfast.lab.faults.anonymous_streams import PATHS, attack
from holdfast.lab.faults.secured_server import secured_server

MIB = 1 << 20
#: Of the server's own: a bound on what all bodies together, 400 MiB, may add.
ADDED_MAX = 64 * MIB


@pytest.mark.parametrize("call", sorted(PATHS))
def test_bodies_of_calls_without_a_token_are_not_received(call: str) -> None:
    """The headers decide: a hundred bodies of 4 MiB stay with the client, whichever method they are sent to."""
    with secured_server("--no-http") as server:
        figures = attack(server, call, streams=100, body_bytes=4 * MIB)
        assert figures.added_bytes < ADDED_MAX
        assert (
            figures.refused >= 100 - limits.OPEN_REQUESTS_MAX
        )  # health waits for the last few, in case that they are probes


def test_many_connections_add_no_more() -> None:
    """The same from ten connections at once."""
    with secured_server("--no-http") as server:
        assert (
            attack(server, "submit", streams=100, body_bytes=4 * MIB, connections=10).added_bytes < 2 * ADDED_MAX
        )  # each connection has windows of its own
