"""The picture of a run. A separate module, because only it needs matplotlib."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from holdfast_lab.measure.plot_style import INK, PAPER, dress, encoded
from holdfast_lab.torture.faults.kinds import FAULTS
from holdfast_lab.torture.timeline import Timeline

_GOOD, _ENDED, _LOST, _PEACE = "#2f7fd0", "#2a9d6f", "#c8372d", "#2a9d6f"
#: By kind of fault, the same in every picture; readable on white, and also with red-green colour blindness.
_COLORS = ("#c8372d", "#2f7fd0", "#e07b1a", "#2a9d6f", "#b5539c", "#8a7f00", "#7a6ff0", "#4d4d4d", "#17a2b8", "#a0522d")
#: Distinguishes kinds with the same colour.
_HATCHES = ("", "////", "xxxx")
_WIDTH = 12.0


def draw(timeline: Timeline, title: str, path: Path) -> None:
    """Writes the picture; the suffix of its name selects svg or png."""
    lanes_high = 0.32 * max(1, len(timeline.lanes))
    canvas = Figure(figsize=(_WIDTH, 4.6 + lanes_high), layout="constrained")
    upper, middle, lower = canvas.subplots(3, 1, sharex=True, height_ratios=[2.4, 1.0, max(0.6, lanes_high)])
    times = [(index + 0.5) * timeline.bin_s for index in range(len(timeline.acknowledged))]
    _rates(upper, times, timeline)
    middle.fill_between(times, timeline.lost, step="mid", color=_LOST, alpha=0.85, linewidth=0)
    middle.set_ylabel("calls lost/s", color=INK, fontsize=9)
    middle.set_ylim(bottom=0, top=max(1.0, *timeline.lost) * 1.05)
    _lanes(lower, timeline)
    for panel in (upper, middle, lower):
        dress(panel)
        _marks(panel, timeline)
    lower.set_xlabel("seconds since the load began", color=INK, fontsize=9)
    lower.set_xlim(0, len(times) * timeline.bin_s)
    canvas.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left")
    path.write_bytes(encoded(canvas, "torture", path.suffix[1:]))


def _rates(panel: Any, times: list[float], timeline: Timeline) -> None:  # noqa: ANN401 - matplotlib's axes
    panel.plot(times, timeline.acknowledged, color=_GOOD, linewidth=1.4, label="jobs acknowledged")
    panel.plot(times, timeline.ended, color=_ENDED, linewidth=1.4, label="attempts ended", linestyle=(0, (4, 1.5)))
    panel.set_ylabel("per second", color=INK, fontsize=9)
    panel.set_ylim(bottom=0)
    if timeline.peace_s:
        panel.annotate(
            "no more faults",
            (timeline.peace_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-4, -2),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
            color=INK,
        )
    panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=9, labelcolor=INK)


def _lanes(panel: Any, timeline: Timeline) -> None:  # noqa: ANN401 - matplotlib's axes
    kinds = sorted({bar.kind for bar in timeline.bars})
    looks = _looks(kinds)
    rows = {lane: place for place, lane in enumerate(timeline.lanes)}
    thinnest_s = len(timeline.acknowledged) * timeline.bin_s / 250
    for bar in timeline.bars:
        width = max(bar.until_s - bar.from_s, thinnest_s)
        panel.broken_barh(
            [(bar.from_s, width)], (rows[bar.lane] - 0.36, 0.72), edgecolor=PAPER, linewidth=0.4, **looks[bar.kind]
        )
    panel.set_yticks(range(len(timeline.lanes)), timeline.lanes)
    panel.set_ylim(max(1, len(timeline.lanes)) - 0.5, -0.5)
    if kinds:
        handles = [Patch(edgecolor=PAPER, linewidth=0.4, label=kind, **looks[kind]) for kind in kinds]
        columns = min(len(kinds), 7)
        panel.figure.legend(
            handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9, labelcolor=INK
        )


def _looks(kinds: list[str]) -> dict[str, dict[str, Any]]:
    known = [*FAULTS, *(kind for kind in kinds if kind not in FAULTS)]
    return {
        kind: {"facecolor": _COLORS[place % len(_COLORS)], "hatch": _HATCHES[place // len(_COLORS) % len(_HATCHES)]}
        for place, kind in enumerate(known)
    }


def _marks(panel: Any, timeline: Timeline) -> None:  # noqa: ANN401 - matplotlib's axes
    """Marks the end of the faults, and the time when all jobs had ended."""
    if timeline.peace_s:
        panel.axvline(timeline.peace_s, color=INK, linewidth=1.0, linestyle=":")
    if timeline.peace_s and timeline.drained_s:
        panel.axvspan(timeline.peace_s, timeline.drained_s, color=_PEACE, alpha=0.08, linewidth=0)
