"""The fixed routing rule: which of N nodes owns a key; and ids that the creating node owns."""

import hashlib
from collections.abc import Callable, Iterator

import msgspec


def owner_index(key: str, nodes: int) -> int:
    """The index of the node that owns `key`, the same on every machine and in every run."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % nodes


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """The share of all keys that one node owns: node `index` of `nodes`, counted from 0."""

    index: int
    nodes: int

    def owns(self, key: str) -> bool:
        """Whether this node owns the key."""
        return owner_index(key, self.nodes) == self.index

    @property
    def is_everything(self) -> bool:
        """Whether this node is the only one."""
        return self.nodes == 1

    def __str__(self) -> str:
        return f"node {self.index} of {self.nodes}"


def uuid4(random: bytes) -> str:
    """Formats 16 random bytes as a UUIDv4."""
    digits = random.hex()
    variant = "89ab"[random[8] & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def mint(random_bytes: Callable[[int], bytes], count: int) -> list[str]:
    """`count` fresh ids from one draw."""
    random = random_bytes(16 * count)
    return [uuid4(random[start : start + 16]) for start in range(0, 16 * count, 16)]


def mint_owned(random_bytes: Callable[[int], bytes], index: int, nodes: int) -> Iterator[str]:
    """An endless iterator of fresh ids, each owned by node `index` of `nodes`."""
    while True:
        job_id = uuid4(random_bytes(16))
        if owner_index(job_id, nodes) == index:
            yield job_id
