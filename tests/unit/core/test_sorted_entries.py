"""Sorted entries: after any additions and removals they equal a sorted list."""

import random

from holdfast.core.sorted_entries import CHUNK, SortedEntries


def test_entries_are_those_of_a_sorted_list() -> None:
    """Over random additions and removals in several chunks, the order and the length are right."""
    rng = random.Random(3)
    entries: SortedEntries[tuple[int, int]] = SortedEntries()
    kept: set[tuple[int, int]] = set()
    for step in range(12 * CHUNK):
        is_growing = step < 8 * CHUNK
        if kept and rng.random() < (0.2 if is_growing else 0.9):
            entry = rng.choice(sorted(kept)) if step % 64 == 0 else next(iter(kept))
            kept.remove(entry)
            entries.remove(entry)
        else:
            entry = (rng.randrange(1_000), step)
            kept.add(entry)
            entries.add(entry)
        if step % 256 == 0:
            assert list(entries) == sorted(kept)
    assert len(entries) == len(kept)
    assert list(entries) == sorted(kept)


def test_everything_can_leave_and_come_again() -> None:
    """Sorted entries that became empty are false and accept new entries."""
    entries: SortedEntries[tuple[int]] = SortedEntries()
    for number in range(3 * CHUNK):
        entries.add((number,))
    for number in range(3 * CHUNK):
        entries.remove((number,))
    assert not entries
    entries.add((1,))
    assert list(entries) == [(1,)]
