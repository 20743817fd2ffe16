"""Entries in ascending order, where any of them may come and go.

Invariants: entries differ from each other; every chunk is sorted, holds at most `2 * CHUNK` entries and, unless it is
the only one, at least one; it ends before the next one begins. Adding and removing move at most one chunk, so that they
cost about the same for ten entries and for a million.
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
        #: The last entry of each chunk but the last one, which takes whatever is greater.
        self._lasts: list[T] = []
        #: How many entries there are; only this class changes it.
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[T]:
        chunks = self._chunks
        return iter(chunks[0]) if len(chunks) == 1 else chain.from_iterable(chunks)

    def add(self, entry: T) -> None:
        """Puts an entry in its place."""
        self.size += 1
        index = bisect_left(self._lasts, entry)
        part = self._chunks[index]
        insort(part, entry)
        if len(part) > 2 * CHUNK:
            self._chunks[index : index + 1] = [part[:CHUNK], part[CHUNK:]]
            self._lasts.insert(index, part[CHUNK - 1])

    def remove(self, entry: T) -> None:
        """Takes out an entry that is there."""
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
