"""Ids of new jobs."""

import os
from collections.abc import Callable
from itertools import islice

from holdfast.core.owner import Ownership, mint, mint_owned

Mint = Callable[[int], list[str]]

_POOL_BYTES = 16_384


class RandomPool:
    """Random bytes of the kernel, read in large blocks: a system call for every id would cost more than the id."""

    __slots__ = ("_offset", "_pool")

    def __init__(self) -> None:
        self._pool = b""
        self._offset = 0

    def __call__(self, size: int) -> bytes:
        """Returns `size` random bytes, each of them used once."""
        if self._offset + size > len(self._pool):
            self._pool, self._offset = os.urandom(max(size, _POOL_BYTES)), 0
        start, self._offset = self._offset, self._offset + size
        return self._pool[start : self._offset]


def random_minter() -> Mint:
    """Creates ids without regard to their owner."""
    pool = RandomPool()
    return lambda count: mint(pool, count)


def owned_minter(ownership: Ownership) -> Mint:
    """Creates ids that the node owns."""
    ids = mint_owned(RandomPool(), ownership.index, ownership.nodes)
    return lambda count: list(islice(ids, count))
