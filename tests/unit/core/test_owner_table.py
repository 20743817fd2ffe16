"""Owners compared with a table that was computed independently, and minted ids of clusters of one to seven nodes."""

import random
import uuid

import pytest

from holdfast.core.owner import Ownership, owner_index
from holdfast.ledger.job_ids import owned_minter

#: Made by `printf %s KEY | sha256sum | cut -c1-16` and `bc`: the owner among one, two, … seven nodes.
TABLE = (
    ("", (0, 0, 1, 0, 2, 4, 1)),
    ("abc", (0, 0, 0, 2, 4, 0, 2)),
    ("order-17", (0, 0, 2, 0, 3, 2, 1)),
    ("größe", (0, 1, 0, 3, 4, 3, 2)),
    ("日本", (0, 1, 0, 3, 1, 3, 2)),
    ("00000000-0000-4000-8000-000000000000", (0, 0, 0, 2, 3, 0, 5)),
    ("f47ac10b-58cc-4372-a567-0e02b2c3d479", (0, 1, 1, 1, 1, 1, 6)),
)


@pytest.mark.parametrize(("key", "owners"), TABLE, ids=[key or "empty" for key, _ in TABLE])
def test_owner_is_the_one_of_the_table(key: str, owners: tuple[int, ...]) -> None:
    """The owner is the first eight bytes of the SHA-256 of the UTF-8 key, big-endian, modulo the nodes."""
    assert tuple(owner_index(key, nodes) for nodes in range(1, 8)) == owners


@pytest.mark.parametrize("nodes", range(1, 8))
def test_every_id_is_owned_by_the_node_that_minted_it(nodes: int) -> None:
    """Of 10,000 ids that nodes mint for themselves each is a distinct UUIDv4 and is routed to its minter."""
    each = -(-10_000 // nodes)
    minted = {index: owned_minter(Ownership(index=index, nodes=nodes))(each) for index in range(nodes)}
    assert len({job_id for ids in minted.values() for job_id in ids}) == nodes * each
    for index, ids in minted.items():
        assert {owner_index(job_id, nodes) for job_id in ids} == {index}
        sample = random.Random(index).sample(ids, 20)
        assert {uuid.UUID(job_id).version for job_id in sample} == {4}


def test_part_of_a_node_has_the_keys_it_owns() -> None:
    """A node owns the keys that are routed to it, and a single node owns everything."""
    third = Ownership(index=2, nodes=3)
    assert [third.owns(key) for key, _ in TABLE] == [owners[2] == 2 for _, owners in TABLE]
    assert not third.is_everything
    assert Ownership(index=0, nodes=1).is_everything
    assert str(third) == "node 2 of 3"
