"""The picture of traces: one row for each, a bar for each hop, in the colour of the process that works."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from holdfast_lab.measure.plot_style import INK, dress, encoded
from holdfast_lab.trace.campaign import Traced

_COLOURS = {"client": "#4c78a8", "server": "#f58518", "disk": "#54a24b", "worker": "#b279a2"}
_ROW_INCHES, _WIDTH_INCHES = 0.8, 9.0


def picture(traces: Sequence[Traced]) -> bytes:
    """Returns the picture as SVG: the time before a hop has the colour of the process that reaches it."""
    canvas = Figure(figsize=(_WIDTH_INCHES, 1.4 + _ROW_INCHES * len(traces)), layout="constrained")
    panel = canvas.subplots()
    for row, trace in enumerate(reversed(traces)):
        before = 0.0
        for hop in trace.hops:
            panel.barh(row, hop.at_us - before, left=before, height=0.6, color=_COLOURS[hop.role], edgecolor="white")
            before = hop.at_us
        panel.text(before, row, f" {before:.0f} µs", va="center", color=INK, fontsize=9)
    panel.set_yticks(range(len(traces)), [one.title for one in reversed(traces)])
    panel.legend(handles=[Patch(color=colour, label=role) for role, colour in _COLOURS.items()], loc="lower right")
    dress(panel, "µs since the call (median)")
    return encoded(canvas, "trace")
