"""The typical path of a call, the hops that nearly all calls have with their median times: as tables and a picture."""

import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast_lab.measure.tables import markdown

Mark = tuple[int, str, str]
Interval = tuple[int, int]

#: A hop belongs to the path if this share of the calls has it.
_COMMON = 0.8
_NS_PER_US = 1_000
_COLOURS = {"client": "#4c78a8", "server": "#f58518", "disk": "#54a24b", "worker": "#b279a2"}
_ROW_INCHES, _WIDTH_INCHES = 0.8, 9.0


class Hop(NamedTuple):
    """One hop: the process, what happens, and the median time since the start of the call, in microseconds."""

    role: str
    what: str
    at_us: float


class Traced(NamedTuple):
    """One trace: the link, the kind of call, and its hops."""

    link: str
    kind: str
    hops: list[Hop]

    @property
    def title(self) -> str:
        """The heading of its table."""
        return f"A lone {self.kind}, {self.link}"


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
    befores = (0.0, *(hop.at_us for hop in hops))
    rows = [
        (f"{hop.at_us:.0f}", f"{hop.at_us - before:.0f}", hop.role, hop.what)
        for before, hop in zip(befores, hops, strict=False)
    ]
    return markdown(("µs", "+", "process", "hop"), rows)


def report_of(traces: list[Traced]) -> str:
    """Returns all traces as Markdown."""
    return "\n\n".join(f"### {one.title}\n\n{table_of(one.hops)}" for one in traces) + "\n"


def picture(traces: Sequence[Traced]) -> bytes:
    """Returns the picture as SVG, a row for each trace; the time before a hop has the colour of its process."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - only the picture needs it
    from matplotlib.patches import Patch  # noqa: PLC0415

    from holdfast_lab.measure.plot_style import INK, dress, encoded  # noqa: PLC0415

    canvas = Figure(figsize=(_WIDTH_INCHES, 1.4 + _ROW_INCHES * len(traces)), layout="constrained")
    panel = canvas.subplots()
    for row, trace in enumerate(reversed(traces)):
        before = 0.0
        for hop in trace.hops:
            panel.barh(row, hop.at_us - before, left=before, height=0.6, color=_COLOURS[hop.role], edgecolor="white")
            before = hop.at_us
        panel.text(before, row, f" {before:.0f} µs", va="center", color=INK, fontsize=9)
    panel.set_yticks(range(len(traces)), [one.title for one in reversed(traces)])
    panel.margins(x=0.1)
    colours = [Patch(color=colour, label=role) for role, colour in _COLOURS.items()]
    canvas.legend(handles=colours, loc="outside lower center", ncols=len(colours))
    dress(panel, "µs since the call (median)")
    return encoded(canvas, "trace")
