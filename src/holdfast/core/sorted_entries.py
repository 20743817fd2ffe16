"""A sorted collection with cheap insertion and removal at any place.

Invariants: no two entries are equal; every chunk is sorted, holds at most `2 * CHUNK` entries and, unless it is the
only one, at least one; each chunk ends before the next one begins. Adding or removing an entry moves at most one chunk,
so the cost is about the same for ten entries and for a million.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

CHUNK = 512

T = TypeVar("T", bound=tuple[Any, ...])


class SortedEntries(Generic[T]):
    """A sorted list in chunks. An iterator over it is valid until the next change."""

    __slots__ = ("_chunks", "_lasts", "size")

    def __init__(self) -> None:
        self._chunks: list[list[T]] = [[]]
        #: The last entry of each chunk except the last chunk, which takes all greater entries.
        self._lasts: list[T] = []
        #: Number of entries; only this class changes it.
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[T]:
        chunks = self._chunks
        return iter(chunks[0]) if len(chunks) == 1 else chain.from_iterable(chunks)

    def add(self, entry: T) -> None:
        """Inserts an entry."""
        self.size += 1
        index = bisect_left(self._lasts, entry)
        part = self._chunks[index]
        insort(part, entry)
        if len(part) > 2 * CHUNK:
            self._chunks[index : index + 1] = [part[:CHUNK], part[CHUNK:]]
            self._lasts.insert(index, part[CHUNK - 1])

    def remove(self, entry: T) -> None:
        """Removes an existing entry."""
        lasts, chunks = self._lasts, self._chunks
        index = bisect_left(lasts, entry)
        part = chunks[index]
        place = bisect_left(part, entry)
        assert part[place] == entry, "the entry is not there"
        del part[place]
        self.size -= 1
        if not lasts:
            return
        if not part:
            del chunks[index]
            del lasts[min(index, len(lasts) - 1)]
        elif place == len(part) and index < len(lasts):
            lasts[index] = part[-1]
