"""The plot in docs/benchmarks.md. A separate module, because only it needs matplotlib."""

import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from holdfast_lab.measure.drawing import INK, dress, encoded
from holdfast_lab.peers.results import OWN, Figure, PeersResults, figure_of, figures

_PANELS = {
    "bulk": "Bulk enqueue\n× echo, more is better",
    "end_to_end": "End to end\n× echo, more is better",
    "p50": "Idle latency, p50\nround trips, less is better",
}
_LABELS = {
    "default": "Redis' defaults (RDB only)",
    "always": "Redis with appendfsync always",
    OWN: "Holdfast (every accepted job is synced)",
}
_COLORS = {"default": "#8fb0cc", "always": "#2f5d8a", OWN: "#d1662f"}


def draw(results: PeersResults, file: Path) -> None:
    """Write dots with the spread over the rounds, a panel for each figure."""
    names = list(reversed(results.systems))
    canvas = Canvas(figsize=(12, 1.6 + 0.55 * len(names)), layout="constrained")
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
        for step, mode in enumerate(_modes(found, name, figure)):
            value = figure_of(found, name, mode, figure)
            if value:
                offset = 0.0 if mode == OWN else 0.17 - 0.34 * step
                _dot(panel, place + offset, value, _COLORS[mode])
    dress(panel)
    _scale(panel)


def _modes(found: dict[tuple[str, str, str], Figure], name: str, figure: str) -> list[str]:
    return [mode for mode in _LABELS if (name, mode, figure) in found]


def _dot(panel: Any, place: float, value: Figure, color: str) -> None:  # noqa: ANN401
    """Draw a dot: the length of a bar on a logarithmic axis has no meaning."""
    spread = [[value.median - min(value.values)], [max(value.values) - value.median]]
    panel.errorbar(value.median, place, xerr=spread, fmt="o", color=color, markersize=8, linewidth=2, capsize=3)
    at = (max(value.values), place)
    panel.annotate(f"{value.median:.3g}", at, (8, 0), textcoords="offset points", va="center", fontsize=9, color=INK)


def _scale(panel: Any) -> None:  # noqa: ANN401
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter("")
    low, high = panel.get_xlim()
    panel.set_xlim(10 ** math.floor(math.log10(low)), high * 2.5)  # whole decades, and room for the numbers


def _legend() -> list[Any]:
    return [Patch(color=_COLORS[mode], label=label) for mode, label in _LABELS.items()]
