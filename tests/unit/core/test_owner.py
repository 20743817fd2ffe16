"""Owner routing: the fixed rule, and ids that are owned by the node that minted them."""

import random
import uuid
from itertools import islice

import pytest

from holdfast.core.owner import mint, mint_owned, owner_index, uuid4


@pytest.mark.parametrize(
    ("key", "nodes", "index"),
    [
        # From `printf KEY | sha256sum`: the first 16 hex digits as a number, modulo the nodes.
        ("", 6, 0xE3B0C44298FC1C14 % 6),
        ("abc", 6, 0xBA7816BF8F01CFEA % 6),
        ("abc", 3, 0xBA7816BF8F01CFEA % 3),
        ("abc", 1, 0),
    ],
)
def test_owner_follows_the_locked_rule(key: str, nodes: int, index: int) -> None:
    """The owner is the first eight bytes of SHA-256, big-endian, modulo the number of nodes."""
    assert owner_index(key, nodes) == index


def test_minted_ids_are_uuids_of_version_4() -> None:
    """Every minted id is a UUIDv4 in its canonical form."""
    ids = mint(random.Random(1).randbytes, 500)
    assert len(set(ids)) == 500
    for text in ids:
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)


@pytest.mark.parametrize("random_bytes", [b"\0" * 16, b"\xff" * 16])
def test_version_and_variant_do_not_depend_on_the_draw(random_bytes: bytes) -> None:
    """The fixed bits of an id are set for the smallest and the largest random number."""
    assert uuid4(random_bytes) == str(uuid.UUID(bytes=random_bytes, version=4))


@pytest.mark.parametrize("index", range(6))
def test_minted_ids_are_owned_by_their_minter(index: int) -> None:
    """Ids that a node mints for itself are routed to it."""
    ids = list(islice(mint_owned(random.Random(index).randbytes, index, 6), 20))
    assert {owner_index(job_id, 6) for job_id in ids} == {index}
    assert {uuid.UUID(job_id).version for job_id in ids} == {4}


def test_owners_are_spread_evenly() -> None:
    """Each of six nodes owns about a sixth of many ids."""
    ids = mint(random.Random(2).randbytes, 6_000)
    counts = [sum(owner_index(job_id, 6) == index for job_id in ids) for index in range(6)]
    assert all(850 < count < 1_150 for count in counts)
