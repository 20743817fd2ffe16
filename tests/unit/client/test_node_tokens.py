"""Tokens of several nodes: one number identifies one lease."""

import pytest

from holdfast.client.node_tokens import NodeTokens


@pytest.mark.parametrize("nodes", [1, 2, 3, 6, 64])
def test_token_names_its_node_and_comes_back(nodes: int) -> None:
    """Outer tokens of different nodes are distinct, and each maps back to its node and inner token."""
    tokens = NodeTokens(nodes)
    outer = {(index, token): tokens.outer(index, token) for index in range(nodes) for token in range(1, 200)}
    assert len(set(outer.values())) == len(outer)
    for (index, token), known in outer.items():
        assert (tokens.node(known), tokens.inner(known)) == (index, token)


def test_tokens_of_one_node_only_grow() -> None:
    """A later lease of a job has a larger outer token, as fencing requires."""
    tokens = NodeTokens(3)
    known = [tokens.outer(1, token) for token in range(1, 100)]
    assert known == sorted(set(known))


def test_no_token_stays_no_token() -> None:
    """Token 0, which means none, maps to 0 in both directions."""
    assert (NodeTokens(3).outer(2, 0), NodeTokens(3).inner(0)) == (0, 0)


@pytest.mark.parametrize("token", [1, 2])
def test_token_that_no_node_can_have_given_names_no_lease(token: int) -> None:
    """A token that no node can have issued does not map to 0, which would mean the current lease."""
    assert NodeTokens(3).inner(token) > 1 << 40
