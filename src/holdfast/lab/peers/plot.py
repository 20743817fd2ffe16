"""The picture in docs/benchmarks.md. A separate module, because only it needs matplotlib."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from holdfast.lab.peers.results import Figure, Results, figure_of, figures

_PANELS = {
    "bulk": "Bulk enqueue\n× echo, more is better",
    "end_to_end": "End to end\n× echo, more is better",
    "p50": "Idle latency, p50\nround trips, less is better",
}
_MODES = {"default": "Redis' defaults (RDB only)", "always": "appendfsync always"}
_COLORS = {"default": "#9db4c8", "always": "#41698f"}
_OURS = "#d1662f"
_INK = "#333333"


def draw(results: Results, file: Path) -> None:
    """Bars with the spread over the rounds, a panel for each figure; the same results give the same file."""
    mpl.rcParams["svg.hashsalt"] = "holdfast"
    mpl.rcParams["svg.fonttype"] = "none"
    names = list(reversed(results.systems))
    canvas = Canvas(figsize=(12, 1.6 + 0.55 * len(names)), layout="constrained", facecolor="white")
    panels: Any = canvas.subplots(1, len(_PANELS), sharey=True, squeeze=False)[0]
    for panel, (figure, title) in zip(panels, _PANELS.items(), strict=True):
        _fill(panel, results, names, figure)
        panel.set_title(title, fontsize=11, color=_INK)
    panels[0].set_yticks(range(len(names)), [results.systems[name].title for name in names], fontsize=11)
    canvas.legend(handles=_legend(), loc="outside lower center", ncols=3, frameon=False, fontsize=10)
    canvas.savefig(file, metadata={"Date": None})


def _fill(panel: Any, results: Results, names: list[str], figure: str) -> None:  # noqa: ANN401 - matplotlib's axes
    found = figures(results.trials)
    for place, name in enumerate(names):
        is_own = (name, "own", figure) in found
        for step, mode in enumerate(["always"] if is_own else _MODES):
            value = figure_of(found, name, mode, figure)
            offset = 0.0 if is_own else 0.19 - 0.38 * step
            if value:
                _bar(panel, place + offset, value, _OURS if is_own else _COLORS[mode])
    panel.set_xscale("log")
    panel.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.tick_params(colors=_INK, length=0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    low, high = panel.get_xlim()
    panel.set_xlim(low, high * 2.2)  # room for the numbers


def _bar(panel: Any, place: float, value: Figure, color: str) -> None:  # noqa: ANN401
    spread = [[value.median - min(value.values)], [max(value.values) - value.median]]
    panel.barh(place, value.median, height=0.36, color=color)
    panel.errorbar(value.median, place, xerr=spread, color=_INK, linewidth=1, capsize=2)
    text = f"{value.median:.3g}"
    panel.annotate(text, (max(value.values), place), (5, 0), textcoords="offset points", va="center", fontsize=9)


def _legend() -> list[Any]:
    modes = [Patch(color=_COLORS[mode], label=label) for mode, label in _MODES.items()]
    return [*modes, Patch(color=_OURS, label="Holdfast (every accepted job is synced)")]
