"""The plot in docs/benchmarks.md. A separate module, because only it needs matplotlib."""

import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from holdfast_lab.measure.measures import Measure
from holdfast_lab.measure.plot_style import INK, dress, encoded
from holdfast_lab.peers.results import PeersResults, figures
from holdfast_lab.peers.stores import MODES, ONLY_SYNCED, SYNCED, UNSYNCED

_PANELS = {
    "bulk": "Bulk enqueue\n× echo, more is better",
    "one_by_one": "Submit one by one\n× echo, more is better",
    "end_to_end": "End to end\n× echo, more is better",
    "p50": "Idle latency, p50\nround trips, less is better",
}
_OURS = "#d1662f"
_COLORS = {UNSYNCED: "#8fb0cc", SYNCED: "#2f5d8a", ONLY_SYNCED: "#2f5d8a"}
_LEGEND = {
    "Accepted jobs are not synced to disk": _COLORS[UNSYNCED],
    "Every accepted job is synced": _COLORS[SYNCED],
    "Holdfast (every accepted job is synced)": _OURS,
}


def draw(results: PeersResults, file: Path) -> None:
    """Write dots with the spread over the rounds, a panel for each figure."""
    names = list(reversed(results.systems))
    canvas = Figure(figsize=(15, 1.6 + 0.55 * len(names)), layout="constrained")
    panels: Any = canvas.subplots(1, len(_PANELS), sharey=True, squeeze=False)[0]
    for panel, (figure, title) in zip(panels, _PANELS.items(), strict=True):
        _fill(panel, results, names, figure)
        panel.set_title(title, fontsize=11, color=INK)
    panels[0].set_ylim(-0.6, len(names) - 0.4)
    panels[0].set_yticks(range(len(names)), [results.systems[name].title for name in names], fontsize=11)
    words = "Logarithmic axes; lines show the spread over the rounds"
    canvas.legend(handles=_legend(), loc="outside lower center", ncols=3, frameon=False, title=words)
    file.write_bytes(encoded(canvas, "peers", file.suffix[1:]))


def _fill(panel: Any, results: PeersResults, names: list[str], figure: str) -> None:  # noqa: ANN401 - matplotlib's axes
    found = figures(results.trials)
    for place, name in enumerate(names):
        modes = [mode for mode in MODES if (name, mode, figure) in found]
        for step, mode in enumerate(modes):
            offset = 0.17 - 0.34 * step if len(modes) > 1 else 0.0
            color = _OURS if results.systems[name].is_ours else _COLORS[mode]
            _dot(panel, place + offset, found[name, mode, figure], color)
    dress(panel)
    _scale(panel)


def _dot(panel: Any, place: float, value: Measure, color: str) -> None:  # noqa: ANN401
    """Draw a dot: the length of a bar on a logarithmic axis has no meaning."""
    spread = [[value.median - value.lowest], [value.highest - value.median]]
    panel.errorbar(value.median, place, xerr=spread, fmt="o", color=color, markersize=8, linewidth=2, capsize=3)
    at = (value.highest, place)
    panel.annotate(f"{value.median:.3g}", at, (8, 0), textcoords="offset points", va="center", fontsize=9, color=INK)


def _scale(panel: Any) -> None:  # noqa: ANN401
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter("")
    low, high = panel.get_xlim()
    panel.set_xlim(10 ** math.floor(math.log10(low)), high * 2.5)  # whole decades, and room for the numbers


def _legend() -> list[Any]:
    return [Patch(color=color, label=label) for label, color in _LEGEND.items()]
