"""The typical path of a call: the hops that nearly all calls have, with their median times."""

import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Mark = tuple[int, str, str]
Interval = tuple[int, int]

#: A hop belongs to the path if this share of the calls has it.
_COMMON = 0.8
_NS_PER_US = 1_000


class Hop(NamedTuple):
    """One hop: the process, what happens, and the median time since the start of the call, in microseconds."""

    role: str
    what: str
    at_us: float


def path_of(intervals: Sequence[Interval], marks: Iterable[Mark]) -> list[Hop]:
    """Returns the hops of the calls, in order; the last one is the return to the caller."""
    ordered = sorted(marks)
    times = [mark[0] for mark in ordered]
    found: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
    for begun, ended in intervals:
        seen: Counter[tuple[str, str]] = Counter()
        for at, role, hop in ordered[bisect_left(times, begun) : bisect_left(times, ended)]:
            seen[role, hop] += 1
            found[role, hop, seen[role, hop]].append((at - begun) / _NS_PER_US)
    hops = [
        Hop(role, what, statistics.median(values))
        for (role, what, _), values in found.items()
        if len(values) >= _COMMON * len(intervals)
    ]
    whole = statistics.median((ended - begun) / _NS_PER_US for begun, ended in intervals)
    return [*sorted(hops, key=lambda hop: hop.at_us), Hop("client", "the call returns", whole)]


def table_of(hops: Sequence[Hop]) -> str:
    """Returns the hops as a Markdown table: when each happens, and the time since the one before."""
    lines = ["| µs | + | process | hop |", "|---|---|---|---|"]
    before = 0.0
    for hop in hops:
        lines.append(f"| {hop.at_us:.0f} | {hop.at_us - before:.0f} | {hop.role} | {hop.what} |")
        before = hop.at_us
    return "\n".join(lines)
